"""Shared memory, disks, host memory, limits and permissions of the container."""

from __future__ import annotations

from verify.doctor import facts_stack
from verify.doctor.entry import Entry

ENTRIES = (
    Entry(
        id="shared-memory-too-small",
        title="Shared memory (/dev/shm) is too small",
        layer="resources",
        rank=2,
        cause="DataLoader workers and NCCL exchange data through /dev/shm, which is full: Docker gives it 64 MiB "
        'unless told otherwise. "No space left on device" then is said of it, not of the disk.',
        fix="Start the container with --shm-size=8g (compose: shm_size: 8gb) or --ipc=host; num_workers=0 gets by "
        "until then.",
        command="docker run --shm-size=8g …; df -h /dev/shm",
        text=(
            r"(?:dataloader|worker).{0,60}killed by signal: bus error",
            r"unexpected bus error encountered in worker",
            r"insufficient shared memory",
            r"signal SIGBUS",
            r"unable to open shared memory object",
            r"/dev/shm has only \d{1,12} bytes",
            r"unable to open shared memory object.{0,80}(?:no space|\(28\))",
            r"bus error\b.{0,40}",
            (
                r"unable to (?:write to file|allocate shared memory\(shm\) for file|resize|mmap \d{1,20} bytes from"
                r" file) <?/?torch_"
            ),
            r"no space left on device.{0,80}(?:/dev/shm|/torch_|psm_|nccl-)",
            r"(?:/dev/shm|psm_\w{2,12}|/torch_\d).{0,120}no space left on device",
            r"error while creating shared memory segment",
            r"out of shared memory",
            r"shm_open.{0,60}no space",
            r"/dev/shm.{0,40}(?:too small|only \d{1,2} ?M|64 ?M)",
            r"call to posix_fallocate failed.{0,40}no space",
        ),
        weak=(
            r"no space left on device",
            r"dataloader worker \(pid(?:\(s\))? ?[\d, ]{1,60}\) exited unexpectedly",
        ),
        beside=(
            r"torch/multiprocessing",
            r"multiprocessing/(?:shared_memory|heap|queues)",
            r"/dev/shm",
            r"NCCL WARN.{0,60}(?:shm|shared memory)",
            r"--shm-size",
            r"shm_manager",
            r"storage.{0,12}_share_f",
        ),
        unless=(r"too many open files",),
        facts=facts_stack.small_shm,
        checks=("container.shared_memory",),
        hides=("disk-full", "engine-disk-full", "worker-died", "nccl-failed"),
        source=("bytedance/Protenix#2", "NVIDIA/Megatron-LM#878"),
    ),
    Entry(
        id="host-out-of-memory",
        title="The container ran out of main memory",
        layer="resources",
        rank=5,
        cause="The kernel ended a process for lack of main memory (not the GPU's): the container's limit or the "
        "machine's memory was used up.",
        fix="Give the container more (--memory), use fewer or leaner DataLoader workers, load weights with "
        "low_cpu_mem_usage or mmap; `dmesg` on the host names what was killed.",
        command="sudo dmesg | grep -i 'killed process'; docker inspect -f '{{.State.OOMKilled}}' NAME",
        text=(
            (
                r"^\s{0,80}(?:/bin/(?:ba)?sh: line \d{1,4}:\s{1,4}\d{1,8} |\S{1,60}: line \d{1,4}:\s{1,4}\d{1,8} "
                r"|\[\d\]\+\s{1,4})?killed(?:\s|$)"
            ),
            r"^\s{0,80}\[\d{1,3}\]\s{0,2}[+-]?\s{1,6}(?:\d{1,8}\s{1,4})?killed\b",
            r"oom[-_ ]?kill(?:ed)?",
            r"out of memory: killed process",
            r"srun: error:.{0,60}out of memory",
            r"oom[-_ ]killer",
            r"(?:kernel|notebook).{0,20}(?:appears to have died|died, restarting)",
            r"os error 12\b",
            r"memory cgroup out of memory",
            r"(?:dataloader|worker).{0,60}killed by signal: killed",
            r"DefaultCPUAllocator: (?:can't allocate|not enough) memory",
            r"unable to allocate \S{1,12} [KMGT]iB for an array",
            r"(?:exit ?code|exitcode|status):? ?\(?:? ?(?:137|-9)\b",
            r"signal 9 \(SIGKILL\)",
            r"died with <Signals\.SIGKILL",
            r"signal: killed",
            r"(?:terminated|exited|died|killed) (?:with|by) (?:signal )?\(?SIGKILL\b",
            r"\[Errno 12\] Cannot allocate memory",
            r"^\s{0,80}MemoryError\b",
            r"std::bad_alloc",
            r"Cannot allocate memory.{0,30}(?:fork|mmap)",
        ),
        unless=(r"ibv_", r"CUDA out of memory"),
        facts=facts_stack.memory_killed,
        hides=("worker-died",),
    ),
    Entry(
        id="worker-died",
        title="A DataLoader worker died",
        layer="resources",
        rank=30,
        cause="A DataLoader worker ended without an exception of its own; this text does not say by what. Too small "
        "a /dev/shm, too little main memory and a crash in a library are the usual reasons.",
        fix="Run with num_workers=0 to see the error; check `df -h /dev/shm` (--shm-size=8g) and the memory limit.",
        command="df -h /dev/shm; dmesg | tail",
        text=(r"dataloader worker.{0,40}exited unexpectedly", r"dataloader worker.{0,60}killed by signal"),
    ),
    Entry(
        id="locked-memory",
        title="Too little memory may be locked for InfiniBand",
        layer="resources",
        rank=7,
        cause="RDMA registers memory, and the container may lock only a little ({limit|8 MiB} by default).",
        fix="Start the container with --ulimit memlock=-1 (or LimitMEMLOCK=infinity for docker.service).",
        command="docker run --ulimit memlock=-1 …; ulimit -l",
        text=(
            r"ibv_(?:reg_mr|create_cq|create_qp|alloc_pd)\S{0,12}.{0,60}(?:cannot allocate memory|failed|ENOMEM)",
            r"(?:libibverbs|UCX|MLX5).{0,60}RLIMIT_MEMLOCK",
            r"RLIMIT_MEMLOCK (?:is )?(?:too )?(?:small|low|\d)",
            r"max locked memory.{0,40}(?:too (?:small|low)|64)",
        ),
        facts=facts_stack.memlock,
        checks=("container.locked_memory",),
        hides=("nccl-failed",),
        source=("NVIDIA/nccl-tests#206", "mlcommons/mlperf-automations#664"),
    ),
    Entry(
        id="too-many-open-files",
        title="Too many files are open",
        layer="resources",
        rank=8,
        cause="The limit on open files is reached; DataLoader workers open one for every tensor they hand over.",
        fix="Start the container with --ulimit nofile=65536, or "
        "torch.multiprocessing.set_sharing_strategy('file_system').",
        command="ulimit -n 65536",
        text=(r"too many open files", r"\[Errno 24\]", r"received 0 items of ancdata"),
        checks=("container.limits",),
        hides=("worker-died",),
    ),
    Entry(
        id="too-many-processes",
        title="No further process or thread may be started",
        layer="resources",
        rank=9,
        cause="The container's limit on processes and threads is reached.",
        fix="Start it with a larger --pids-limit (or --ulimit nproc), use fewer workers, set OMP_NUM_THREADS.",
        command="docker run --pids-limit 4096 …; cat /sys/fs/cgroup/pids.max",
        text=(
            r"can't start new thread",
            r"pthread_create failed",
            r"resource temporarily unavailable",
            r"fork: retry",
            r"thread creation failed",
            r"libgomp: thread creation failed",
        ),
    ),
    Entry(
        id="process-crashed",
        title="A library crashed",
        layer="resources",
        rank=34,
        cause="The process ended by {signal|a segmentation fault} in compiled code; the text does not show which "
        "library. Mixed library versions and a damaged installation are the usual reasons.",
        fix="Run with `python -X faulthandler` (or gdb) to see the library, then `verify run libraries stack`.",
        command="python -X faulthandler …; verify run libraries stack",
        text=(r"segmentation fault", r"SIGSEGV", r"exitcode:? ?-11\b", r"exit code:? 139\b"),
    ),
    Entry(
        id="process-aborted",
        title="A library gave up",
        layer="resources",
        rank=35,
        cause="The process aborted in compiled code (exit code 134); the lines before say who gave up.",
        fix="Look at the line before; a foreign cuDNN on LD_LIBRARY_PATH is the usual reason: unset it and try again.",
        command="env -u LD_LIBRARY_PATH -u LD_PRELOAD python …",
        text=(
            r"aborted \(core dumped\)",
            r"SIGABRT",
            r"exitcode:? ?-6\b",
            r"exit code:? 134\b",
            r"^\s{0,80}Aborted\s*$",
        ),
    ),
)
