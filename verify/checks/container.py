"""How this container was started: shared memory, limits, disks, temporary folder."""

from __future__ import annotations

from verify.core import Outcome, check, fail, pass_, skip, warn
from verify.machine import UNLIMITED, Disk, Machine
from verify.report.group import gib

MIB, GIB = 1 << 20, 1 << 30
DOCKER_SHM = 64 * MIB  # Docker's default for /dev/shm
# The instance of the article this image follows: cores, memory, system disk and data disk in bytes.
ARTICLE_CORES, ARTICLE_MEMORY, ARTICLE_DISKS = 10, 120e9, (50e9, 40e9)


def _size(size: float) -> str:
    return f"{size / MIB:.0f} MiB" if size < GIB else gib(size)


@check(about="container")
def shared_memory(m: Machine) -> Outcome:
    """/dev/shm is large enough for DataLoader workers.

    Workers hand every batch over through /dev/shm. When it is full they die of a bus error, or of "No space left on
    device" while the disk is empty. Docker's default is 64 MiB; one batch of 64 images of 512 x 512 is 192 MiB.
    """
    d = m.disk("shm")
    if d is None or not d.exists:
        return fail(
            "There is no /dev/shm, so DataLoader workers cannot start.",
            hint="Start the container with --shm-size=8g, or --ipc=host.",
        )
    if not d.writable:
        return fail(
            f"/dev/shm cannot be written ({d.problem or 'read-only'}), so DataLoader workers cannot start.",
            hint="Start the container with --shm-size=8g instead of a mount of its own on /dev/shm.",
        )
    data = {"total": d.total, "free": d.free}
    if d.total <= DOCKER_SHM:
        return fail(
            f"/dev/shm has {_size(d.total)}: DataLoader workers die of a bus error at the first large batch.",
            hint="Start the container with --shm-size=8g (compose: shm_size: 8gb), or --ipc=host.",
            data=data,
        )
    if d.free < GIB:
        return warn(
            f"/dev/shm has {_size(d.free)} of {_size(d.total)} free, little for DataLoader workers with large batches.",
            hint="Start the container with --shm-size=8g, or remove what is left in /dev/shm.",
            data=data,
        )
    return pass_(f"/dev/shm has {_size(d.free)} free.", data=data)


@check(about="container")
def locked_memory(m: Machine) -> Outcome:
    """Memory can be locked where InfiniBand needs it.

    RDMA registers memory and fails under Docker's 8 MiB limit. Without InfiniBand a low limit is no fault.
    """
    limit = m.container.memlock
    said = "unlimited" if limit == UNLIMITED else _size(limit)
    if m.container.infiniband and limit != UNLIMITED and limit < GIB:
        return fail(
            f"This machine has InfiniBand and at most {said} may be locked: NCCL fails to register memory.",
            hint="Start the container with --ulimit memlock=-1.",
            data={"memlock": limit},
        )
    where = "" if m.container.infiniband else "; nothing here needs more, there is no InfiniBand"
    return pass_(f"Locked memory: {said}{where}.", data={"memlock": limit})


def _full(d: Disk) -> str:
    if d.free < 16 * MIB:
        return f"{d.path} ({d.mount}, {d.fstype}) has {_size(d.free)} left"
    if d.inodes_free is not None and d.inodes_free < 100:
        return f"{d.path} ({d.mount}, {d.fstype}) has {d.inodes_free} inodes left"
    return ""


@check(about="container")
def disk_space(m: Machine) -> Outcome:
    """No file system that is written to is full, in bytes or in inodes."""
    # A read-only root and shared memory are judged elsewhere; a file system nobody may write needs no room.
    disks = [d for d in m.disks if d.total and not d.readonly and d.name != "shm"]
    if not disks:
        return skip(f"No file system could be looked at: {m.problems.get('disks', 'none is known')}.")
    full = {d.mount: text for d in disks if (text := _full(d))}
    if full:
        return fail(
            f"A file system is full: {'; '.join(full.values())}.",
            hint="Free some room there, or give the container a larger volume; docker system df shows what takes it.",
            data={"full": list(full)},
        )
    free = {d.mount: d.free for d in disks}
    work = m.disk("workspace") or m.disk("root")
    if work and work.total and not work.readonly and work.free < 5 * GIB:
        return warn(
            f"{work.path} has {_size(work.free)} left, less than one model of a few billion parameters.",
            hint="Mount a larger volume on /workspace, or clear /workspace/.cache.",
            data=free,
        )
    listed = ", ".join(f"{mount} {_size(size)}" for mount, size in free.items())
    return pass_(f"Free: {listed}.", data=free)


@check(about="container")
def temporary_folder(m: Machine) -> Outcome:
    """The temporary folder can be written and code can be loaded from it.

    Inductor and Triton compile there and load the result. Docker's --tmpfs mounts noexec unless told otherwise.
    """
    d = m.disk("tmp")
    if d is None:
        return skip(f"The temporary folder was not looked at: {m.problems.get('disks', 'nothing is known of it')}.")
    if not d.exists or not d.writable:
        return fail(
            f"The temporary folder {d.path} cannot be written ({d.problem or 'it does not exist'}).",
            hint="With --read-only add --tmpfs /tmp:exec, or set TMPDIR to a folder that can be written.",
        )
    if not d.noexec:
        return pass_(f"{d.path} ({d.fstype}) is writable and lets code run, {_size(d.free)} free.")
    caches = [m.disk("TORCHINDUCTOR_CACHE_DIR"), m.disk("TRITON_CACHE_DIR")]
    hint = "Mount it with exec: --tmpfs /tmp:exec."
    if all(c and c.writable and not c.noexec for c in caches):
        return warn(
            f"{d.path} is mounted noexec; the compile caches lie elsewhere, other builds in it fail.", hint=hint
        )
    return fail(f"{d.path} is mounted noexec: torch.compile cannot load the code it compiles there.", hint=hint)


@check(about="container")
def memory(m: Machine) -> Outcome:
    """The container may use enough memory to import and compile."""
    box, have = m.container, m.container.memory_limit or m.system.memory
    data = {"limit": box.memory_limit, "memory": m.system.memory, "kills": box.memory_kills}
    if not have:
        return skip(f"The amount of memory is not known: {m.problems.get('system.memory', 'nothing said so')}.")
    if have < 2 * GIB:
        return fail(
            f"Only {_size(have)} of memory may be used; importing the stack and one compile take about 2 GiB.",
            hint="Start the container with a larger --memory, or without that limit.",
            data=data,
        )
    if box.memory_kills:
        times = "once" if box.memory_kills == 1 else f"{box.memory_kills} times"
        return warn(
            f"The kernel killed a process of this container {times} for lack of memory (limit {_size(have)}).",
            hint="Give the container more memory, or load less at once.",
            data=data,
        )
    return pass_(f"{_size(have)} of memory may be used.", data=data)


@check(about="container")
def processors(m: Machine) -> Outcome:
    """torch starts no more threads than the container has cores.

    torch counts the cores it sees, not the CPU quota of the container. Too many threads wait for each other.
    """
    quota, seen = m.container.cpu_limit, m.system.cpus_usable
    data = {"quota": quota, "seen": seen}
    if quota is None or not seen or quota > seen / 2:
        return pass_(f"{seen} cores{'' if quota is None else f', quota {quota:g}'}.", data=data)
    cores = max(1, int(quota))
    if m.env.get("OMP_NUM_THREADS", "").isdigit() and int(m.env["OMP_NUM_THREADS"]) <= 2 * cores:
        return pass_(f"Quota {quota:g} of {seen} cores, OMP_NUM_THREADS={m.env['OMP_NUM_THREADS']}.", data=data)
    return warn(
        f"The CPU quota is {quota:g} and torch sees {seen} cores: its threads will wait for each other.",
        hint=f"Set OMP_NUM_THREADS={cores}, or start the container with --cpuset-cpus instead of --cpus.",
        data=data,
    )


@check(about="container")
def limits(m: Machine) -> Outcome:
    """Enough processes and open files are allowed for DataLoader and compile workers."""
    box = m.container
    allowed = [n for n in (box.pids_limit, box.nproc) if n is not None and n != UNLIMITED]
    processes = min(allowed, default=UNLIMITED)
    data = {"processes": processes, "nofile": box.nofile}
    if processes != UNLIMITED and processes < 256:
        return fail(
            f"At most {processes} processes and threads are allowed; torch and its workers need several hundred.",
            hint="Start the container with a larger --pids-limit (or --ulimit nproc).",
            data=data,
        )
    if box.nofile != UNLIMITED and box.nofile < 1024:
        return fail(
            f"At most {box.nofile} files may be open; DataLoader workers open one for each tensor they hand over.",
            hint="Start the container with --ulimit nofile=65536.",
            data=data,
        )
    said = "no limit" if processes == UNLIMITED else f"{processes}"
    return pass_(f"Processes: {said}, open files: {box.nofile if box.nofile != UNLIMITED else 'no limit'}.", data=data)


@check(about="machine")
def beside_the_article(m: Machine) -> Outcome:
    """This machine beside the article's instance: 10 cores, 120 GB of memory, disks of 50 and 40 GB.

    For information: it passes whatever the machine is.
    """
    cores, have = m.container.cpu_limit or m.system.cpus_usable, m.container.memory_limit or m.system.memory
    root, work = m.disk("root"), m.disk("workspace")
    disks = [d.total for d in {d.mount: d for d in (root, work) if d and d.total}.values()]
    sizes = " and ".join(f"{d / 1e9:.0f}" for d in disks) or "?"
    here = f"{cores:g} cores, {have / 1e9:.0f} GB memory, disks of {sizes} GB"
    article = f"{ARTICLE_CORES} cores, {ARTICLE_MEMORY / 1e9:.0f} GB memory, disks of 50 and 40 GB"
    data = {"cores": cores, "memory": have, "disks": disks, "article": {"cores": ARTICLE_CORES, "disks": ARTICLE_DISKS}}
    return pass_(f"Here: {here}; in the article: {article}.", data=data)
