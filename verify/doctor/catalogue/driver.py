"""The driver answers with an error, or is too old for what it is asked."""

from __future__ import annotations

from verify.doctor import facts
from verify.doctor.entry import Entry

ENTRIES = (
    Entry(
        id="compat-library-on-geforce",
        title="A cuda-compat library hides the driver's own (error 804)",
        layer="driver",
        rank=1,
        cause="A forward-compatibility libcuda (…/compat/) from the image answers instead of the driver's own, and "
        "it works on data-centre GPUs only.",
        fix="Take compat out of the loader's path: remove /etc/ld.so.conf.d/*compat*, take it out of "
        "LD_LIBRARY_PATH, run ldconfig; or update the host's driver.",
        command="rm -f /etc/ld.so.conf.d/*compat* && ldconfig && unset LD_LIBRARY_PATH",
        text=(
            r"(?<!http )error 804\b",
            r"forward compatibility was attempted",
            r"COMPAT_NOT_SUPPORTED_ON_DEVICE",
            r"cudaErrorCompatNotSupportedOnDevice",
        ),
        weak=(r"(?<!http )error 803\b", r"unsupported display driver", r"SYSTEM_DRIVER_MISMATCH"),
        beside=(r"/compat/(?:lib\S{0,40})?", r"cuda-compat", r"compat\.conf"),
        facts=facts.because("cuda-compat"),
        hides=("driver-library-mismatch", "no-gpu-visible"),
        source=("vllm-project/vllm#5283", "vllm-project/vllm#5510", "vllm-project/vllm#34821"),
    ),
    Entry(
        id="driver-library-mismatch",
        title="The libcuda in the container is of another driver version (error 803)",
        layer="driver",
        rank=2,
        cause="The libcuda that the program loads is of another version than the host's kernel module: it came with "
        "the image (a cuda-compat or driver package, older than the host) and hides the one that is mounted.",
        fix="Remove that libcuda from the image (cuda-compat*, libnvidia-compute*, libcuda1 packages), run "
        "ldconfig, and let the mounted one be found first; after a driver update create the container anew.",
        command="ldconfig -p | grep libcuda; cat /proc/driver/nvidia/version",
        text=(
            r"(?<!http )error 803\b",
            r"unsupported display driver / cuda driver",
            r"SYSTEM_DRIVER_MISMATCH",
            r"cudaErrorSystemDriverMismatch",
            r"kernel version \S{1,40} does not match DSO version",
        ),
        facts=facts.library_of_another_driver,
        hides=("no-gpu-visible",),
        source=("vllm-project/vllm#34821", "vllm-project/vllm#33992"),
    ),
    Entry(
        id="stub-libcuda",
        title="A stub libcuda is loaded (error 34)",
        layer="driver",
        rank=3,
        cause="The loader finds the empty libcuda of a `stubs` folder, which is for linking only, before the driver's.",
        fix="Take …/stubs out of LD_LIBRARY_PATH and /etc/ld.so.conf.d (linking uses LIBRARY_PATH), remove links "
        "from it to libcuda.so.1, and run ldconfig.",
        command="echo $LD_LIBRARY_PATH; ldconfig -p | grep libcuda",
        text=(
            r"CUDA driver is a stub library",
            r"CUDA_ERROR_STUB_LIBRARY",
            r"cudaErrorStubLibrary",
            r"error 34: CUDA",
            r"You are (?:currently )?(?:running|using).{0,40}stub",
            r"stubs/libcuda\.so\S{0,20}.{0,60}(?:loaded|mapped|=>)",
            r"=> \S{1,120}/stubs/libcuda\.so",
        ),
        facts=facts.because("stub"),
        hides=("no-gpu-visible", "driver-too-old", "library-not-linked"),
        source=("fboulnois/stable-diffusion-docker#13", "NVIDIA/warp#219"),
    ),
    Entry(
        id="driver-too-old",
        title="The NVIDIA driver is too old for this CUDA",
        layer="driver",
        rank=4,
        cause="The host's driver is of an older CUDA family than the program's CUDA: every CUDA 12 build needs "
        "driver 525 or newer. (In a container without a GPU some programs say the same.)",
        fix="Update the host's driver (550 or newer for this image); where that cannot be, use a torch built for "
        "the driver's CUDA family.",
        command="nvidia-smi --query-gpu=driver_version --format=csv",
        text=(
            r"driver on your system is too old",
            r"CUDA driver version is insufficient",
            r"cudaErrorInsufficientDriver",
            r"cudaErrorCallRequiresNewerDriver",
            r"not supported in the installed CUDA driver",
            r"requires? (?:a )?newer (?:NVIDIA )?driver",
            r"libcuda\.so\S{0,12}: undefined symbol: cu[A-Z]\w{2,60}",
            r"CUDA_ERROR_SYSTEM_NOT_READY.{0,30}driver",
            r"requires driver version \S{1,20} or (?:later|newer|higher)",
            r"driver release \S{1,20}.{0,40}is required",
        ),
        unless=(r"CUDA driver is a stub", r"error 80[34]"),
        facts=facts.too_old,
        hides=("no-gpu-visible",),
        source=("shiyu-coder/Kronos#71",),
    ),
    Entry(
        id="nvml-function-missing",
        title="The driver's NVML is older than what asks it",
        layer="driver",
        rank=9,
        cause="A tool asks NVML for a function that this driver does not have yet: the driver is older than the "
        "tool, and CUDA itself is not affected.",
        fix="Install an older nvidia-ml-py for the tool, or update the driver.",
        command="pip install 'nvidia-ml-py<13'",
        text=(
            r"libnvidia-ml\.so\S{0,12}: undefined symbol: nvml\w{1,60}",
            r"NVMLError_FunctionNotFound",
            r"undefined symbol: nvmlDevice\w{1,60}",
        ),
    ),
    Entry(
        id="fabric-not-ready",
        title="The NVSwitch fabric is not started (error 802)",
        layer="driver",
        rank=3,
        cause="This is a machine with NVSwitch whose fabric manager does not run or is of another version than the "
        "driver, so CUDA says that the system is not initialised (error 802).",
        fix="On the host install and start nvidia-fabricmanager of exactly the driver's version.",
        command="sudo systemctl enable --now nvidia-fabricmanager",
        text=(
            r"(?<!http )error 802\b",
            r"system not yet initialized",
            r"CUDA_ERROR_SYSTEM_NOT_READY",
            r"cudaErrorSystemNotReady",
            r"nvidia-fabricmanager\S{0,20}.{0,60}(?:fail|version|not running|inactive)",
        ),
        facts=facts.because("fabric"),
    ),
    Entry(
        id="system-call-blocked",
        title="A system call of the driver is blocked (error 304)",
        layer="access",
        rank=5,
        cause="The driver's library may not make a system call or open a file it needs (error 304): a seccomp or "
        "AppArmor profile, a sandboxed runtime, or a limit on open files.",
        fix="Start the container with the default profile (or --security-opt seccomp=unconfined to prove it) and a "
        "usual runtime; raise --ulimit nofile.",
        command="docker run --security-opt seccomp=unconfined …",
        text=(r"error 304: OS", r"OS call failed or operation not supported", r"CUDA_ERROR_OPERATING_SYSTEM"),
        facts=facts.because("system call"),
    ),
    Entry(
        id="gpu-busy",
        title="The GPU takes no further process",
        layer="access",
        rank=6,
        cause="The GPU is busy or unavailable: another process has it exclusively (compute mode), or its driver "
        "waits for a process that died.",
        fix="On the host see who uses it (`nvidia-smi`), end that process, and set the compute mode back to default.",
        command="sudo nvidia-smi -c 0",
        text=(
            r"CUDA-capable device\(s\) (?:is|are|is/are) (?:all )?busy",
            r"devices? (?:is|are|is/are) busy or unavailable",
            r"cudaErrorDevicesUnavailable",
            r"CUDA_ERROR_DEVICE_UNAVAILABLE",
            r"exclusive-(?:process|thread).{0,60}(?:in use|busy)",
            r"error 46: all",
        ),
        facts=facts.exclusive,
    ),
    Entry(
        id="driver-init-failed",
        title="CUDA does not start (error 3)",
        layer="access",
        rank=7,
        cause="The driver's library failed to start without saying why (error 3): the container got part of the "
        "driver's files, or the driver is broken on the host.",
        fix="Run `nvidia-smi` on the host and in the container; create the container anew with --gpus all; if the "
        "host fails too, reboot it.",
        command="nvidia-smi",
        text=(
            r"CUDA driver initialization failed",
            r"CUDA_ERROR_NOT_INITIALIZED",
            r"cuInit\S{0,20}.{0,30}failed",
        ),
        unless=(
            r"error 80[234]",
            r"\(303\)",
            r"CUDA unknown error",
            r"CUDA_ERROR_(?:NO_DEVICE|UNKNOWN|SHARED|STUB|COMPAT|SYSTEM|INVALID_DEV)",
        ),
        facts=facts.because("initialisation"),
        hides=("no-gpu-visible",),
    ),
)
