"""The container has the GPU's device files and may not, or cannot, use them."""

from __future__ import annotations

from verify.doctor import facts
from verify.doctor.catalogue.access import NO_DEVICE
from verify.doctor.entry import Entry

ENTRIES = (
    Entry(
        id="gpu-access-taken-away",
        title="The container lost its right to use the GPU",
        layer="access",
        rank=3,
        cause="The device files are there and may not be opened any more: systemd applied its own device list again "
        "(after `systemctl daemon-reload` or an update) and dropped the GPU from the container's cgroup. The host "
        "is fine.",
        fix="Create the container anew now. For good: give the devices explicitly (`--device /dev/nvidia0 …`), use "
        'CDI, or set "exec-opts": ["native.cgroupdriver=cgroupfs"] in daemon.json.',
        command="sudo nvidia-ctk system create-dev-char-symlinks --create-all",
        text=(r"failed to initialize NVML: unknown error", r"NVMLError_Unknown", r"NVML: unknown error"),
        weak=(*NO_DEVICE, r"CUDA unknown error"),
        beside=(r"daemon-reload",),
        facts=facts.because("cgroup"),
        hides=("no-gpu-visible", "cuda-unknown-error", "driver-not-in-container"),
        source=("NVIDIA/nvidia-container-toolkit#48", "NVIDIA/nvidia-container-toolkit#1227"),
    ),
    Entry(
        id="no-cgroups",
        title="The toolkit is told not to allow the devices",
        layer="access",
        rank=2,
        cause="`no-cgroups = true` in the toolkit's config.toml keeps it from allowing the devices, which only "
        "rootless engines need; so no container of this host ever reached the GPU.",
        fix="Set it to false in /etc/nvidia-container-runtime/config.toml and restart Docker.",
        command="sudo nvidia-ctk config --set nvidia-container-cli.no-cgroups=false --in-place && sudo systemctl "
        "restart docker",
        weak=(r"failed to initialize NVML: unknown error", r"NVMLError_Unknown", *NO_DEVICE),
        beside=(r"no-cgroups", r"rootless"),
        unless=(r"daemon-reload",),
        hides=("gpu-access-taken-away", "no-gpu-visible"),
        source=("NVIDIA/nvidia-container-toolkit#580",),
    ),
    Entry(
        id="gpu-access-denied",
        title="The device files may not be opened by this user",
        layer="access",
        rank=3,
        cause="The GPU's device files are there, but their mode, their group or an SELinux label forbids this user "
        "to open them.",
        fix="SELinux: `sudo setsebool -P container_use_devices 1`, or --security-opt label=disable. Else give the "
        "user the files' group (--group-add) or set NVreg_DeviceFileMode=0666 for the nvidia module.",
        command="ls -lZ /dev/nvidia*",
        text=(
            r"failed to initialize NVML: insufficient permissions",
            r"NVMLError_NoPermission",
            r"NVML.{0,30}insufficient permissions",
            r"/dev/nvidia\S{0,12}['\"]?:? ?\(?permission denied",
            r"permission denied:? ?'?/dev/nvidia",
            r"/dev/nvidia\S{0,12}.{0,30}operation not permitted",
        ),
        facts=facts.access_denied,
        hides=("no-gpu-visible", "cuda-unknown-error"),
        source=("NVIDIA/nvidia-container-toolkit#33",),
    ),
    Entry(
        id="uvm-missing",
        title="The device file /dev/nvidia-uvm is missing",
        layer="access",
        rank=4,
        cause="CUDA needs /dev/nvidia-uvm, which is not in the container or is stale; nvidia-smi works without it.",
        fix="On the host run `sudo nvidia-modprobe -c 0 -u`, then create the container anew, with /dev/nvidia-uvm and "
        "/dev/nvidia-uvm-tools when the devices are listed by hand.",
        command="sudo nvidia-modprobe -c 0 -u",
        text=(r"/dev/nvidia-uvm\S{0,8}['\"]?: no such file",),
        weak=(r"CUDA unknown error", r"CUDA_ERROR_UNKNOWN", r"error 999"),
        beside=(r"nvidia-uvm", r"podman", r"--device[= ]/dev/nvidia\d"),
        facts=facts.uvm_missing,
        hides=("cuda-unknown-error", "no-gpu-visible"),
        source=("pytorch/pytorch#49081",),
    ),
    Entry(
        id="cuda-unknown-error",
        title="CUDA does not start (error 999)",
        layer="access",
        rank=8,
        cause="CUDA fails with error 999 while it starts: /dev/nvidia-uvm is missing or stale, or the driver is "
        "wedged after a suspend. PyTorch's hint about CUDA_VISIBLE_DEVICES seldom is the reason.",
        fix="Look for /dev/nvidia-uvm in the container; if it is missing run `sudo nvidia-modprobe -c 0 -u` on the "
        "host and create the container anew; if it is there reload the module (`sudo rmmod nvidia_uvm; sudo "
        "modprobe nvidia_uvm`).",
        command="ls -l /dev/nvidia*",
        text=(
            r"CUDA unknown error",
            r"CUDA_ERROR_UNKNOWN",
            r"cuda runtime error \(30\)",
            r"(?:failed to |cannot |could not )?init\w{0,12} CUDA\W{1,3}unknown error",
            r"error 999: unknown error",
            r"cuInit\(?0?\)?.{0,30}\b999\b",
        ),
        facts=facts.because("wedged driver"),
        source=("pytorch/pytorch#49081",),
    ),
    Entry(
        id="mps-unreachable",
        title="CUDA's multi-process service does not answer",
        layer="access",
        rank=11,
        cause="CUDA is told to use the multi-process service (MPS), whose daemon does not run or belongs to another "
        "user or container.",
        fix="Start nvidia-cuda-mps-control on the host and share its pipe folder and IPC with the container, or unset "
        "CUDA_MPS_PIPE_DIRECTORY and stop the daemon.",
        command="unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY",
        text=(
            r"MPS client failed to connect",
            r"CUDA_ERROR_MPS_\w{4,40}",
            r"cudaErrorMps\w{4,40}",
            r"MPS (?:server|client|control daemon).{0,60}(?:fail|not ready|not running|terminated|limit)",
            r"error 80[5-9]: ",
        ),
        hides=("no-gpu-visible",),
    ),
    Entry(
        id="ipc-blocked",
        title="Processes may not share GPU memory in this container",
        layer="access",
        rank=12,
        cause="Sharing CUDA memory between processes needs a common IPC namespace and the right to look into each "
        "other, which the container does not give.",
        fix="Start it with --ipc=host (or one container for all ranks) and --cap-add=SYS_PTRACE.",
        command="docker run --ipc=host --cap-add=SYS_PTRACE …",
        text=(
            r"pidfd_(?:getfd|open)\S{0,12}.{0,80}not permitted",
            r"cudaIpc\w{4,30}.{0,80}(?:fail|invalid|not supported)",
        ),
    ),
    Entry(
        id="cuda-operation-not-supported",
        title="The driver does not offer an operation here",
        layer="driver",
        rank=40,
        cause="CUDA refuses an operation that this driver, virtual GPU or WSL does not offer (error 801 or 800), "
        "such as memory shared between processes or expandable segments.",
        fix="Unset PYTORCH_CUDA_ALLOC_CONF, set NCCL_CUMEM_ENABLE=0, switch off CUDA IPC; on a virtual GPU ask the "
        "provider.",
        command="unset PYTORCH_CUDA_ALLOC_CONF; export NCCL_CUMEM_ENABLE=0",
        text=(
            r"CUDA error: operation not (?:supported|permitted)",
            r"CUDA_ERROR_NOT_(?:SUPPORTED|PERMITTED)",
            r"cudaErrorNot(?:Supported|Permitted)",
        ),
        unless=(r"stream capture", r"previous error during capture", r"capturing"),
    ),
)
