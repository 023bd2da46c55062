"""The container runs and does not reach the GPU: the driver's files or the right to open them are missing."""

from __future__ import annotations

from verify.doctor import facts
from verify.doctor.entry import Entry

NO_LIBRARY = (
    r"found no NVIDIA driver",
    r"libcuda\.so\.1: cannot open shared object file",
    r"the NVIDIA driver was not detected",
    r"could not find cuda drivers on your machine",
    r"no NVIDIA GPU found",
    r"could not load (?:dynamic )?library '?libcuda\.so",
    r"could not find any nv libraries on this host",
    r"unable to (?:find|load) libcuda",
    r"CUDA driver library could not be found",
    r"NVML Shared Library Not Found",
    r"cuInit\S{0,12}.{0,80}\b303\b",
    r"SHARED_OBJECT_(?:SYMBOL_NOT_FOUND|INIT_FAILED)",
    r"NVMLError_LibraryNotFound",
)
NO_DEVICE = (
    r"no CUDA GPUs are available",
    r"CUDA_ERROR_NO_DEVICE",
    r"no devices were found",
    r"no CUDA-capable device is detected",
    r"no GPUs? (?:found|detected|available)",
    r"cudaErrorNoDevice",
    r"torch\.cuda\.is_available\(\) is false",
    r"ProcessGroupNCCL is only supported with GPUs",
    r"(?:gpu|cuda) (?:is )?(?:available|found)\W{1,4}false",
    r"is_available\(\)\W{0,6}false",
    r"no GPU/TPU found",
    r"(?:using|found|detected|with) 0 (?:CUDA |NVIDIA )?(?:GPUs?|devices)\b",
    r"无卡模式",
    r"failed to infer device type",
    r"\b0 active drivers?(?:\(s\))?",
    r"(?:GPU|CUDA|device) count\W{1,4}0\b",
    r"torch\.cuda\.device_count\(\)\W{1,6}0\b",
    r"(?:unable|failed) to detect (?:any )?(?:a )?(?:CUDA|NVIDIA|GPU)",
    r"requires? (?:a |an )?(?:CUDA|NVIDIA|GPU)[\w -]{0,30}(?:but )?(?:none|no GPU)",
    r"you do not have a (?:CUDA|NVIDIA|GPU)",
    r"no (?:supported |NVIDIA )?gpu (?:backend|detected|device)",
)
ENTRIES = (
    Entry(
        id="no-driver-on-machine",
        title="This machine has no NVIDIA driver",
        layer="launch",
        rank=40,
        cause="Neither this container nor its host shows an NVIDIA driver: the kernel module is not loaded, or "
        "there is no GPU.",
        fix="Run the container on a machine with an NVIDIA GPU whose `nvidia-smi` works, with --gpus all; to work "
        "without a GPU on purpose set VERIFY_REQUIRE=none.",
        command="docker run --rm --gpus all --shm-size 8g -it pytorch-workspace:2.8.0",
        weak=(*NO_LIBRARY, *NO_DEVICE),
        facts=facts.no_driver,
        hides=("driver-not-in-container", "no-gpu-visible"),
    ),
    Entry(
        id="driver-not-in-container",
        title="The container was started without the GPU",
        layer="launch",
        rank=41,
        cause="The driver's library libcuda.so.1 is not in this container: it was started without the GPU, and "
        "variables such as NVIDIA_VISIBLE_DEVICES alone mount nothing.",
        fix="Start the container with `--gpus all` (or `--runtime=nvidia`, or with CDI `--device "
        "nvidia.com/gpu=all`) on a host whose own `nvidia-smi` works; in compose ask for the GPU under "
        "deploy.resources.",
        command="docker run --rm --gpus all --shm-size 8g -it pytorch-workspace:2.8.0",
        text=NO_LIBRARY,
        weak=NO_DEVICE,
        facts=facts.because("not given", "not asked for", "no device file"),
        hides=("no-gpu-visible", "triton-libcuda-not-found"),
        source=("NVIDIA/nvidia-docker#1113",),
    ),
    Entry(
        id="driver-capability-missing",
        title="Only half of the driver was mounted",
        layer="access",
        rank=1,
        cause="The devices are in the container, but only half of the driver's libraries: "
        "NVIDIA_DRIVER_CAPABILITIES does not name all that is needed (compute brings libcuda, utility brings NVML "
        "and nvidia-smi, video the codecs, graphics OpenGL and Vulkan).",
        fix="Set NVIDIA_DRIVER_CAPABILITIES=compute,utility (add video or graphics where they are used) and create the "
        "container anew.",
        command="docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility …",
        text=(
            r"couldn't find libnvidia-ml\.so",
            r"lib(?:nvcuvid|nvidia-encode)\.so(?:\.1)?",
            r"NVIDIA_DRIVER_CAPABILITIES ?[=:] ?\"?(?:utility|compute|graphics|video|display)\"?\s*$",
            r"libnvidia-ml\.so\.1: cannot open shared object",
            r"libnvoptix\.so\.1",
            r"libGLX_nvidia\.so\.0",
        ),
        weak=NO_LIBRARY,
        beside=(
            r"driver version: \d{3}\.",
            r"NVIDIA_DRIVER_CAPABILITIES",
            r"NVIDIA-SMI \d{3}\.",
            r"crw\S{0,20} .{0,60}/dev/nvidia",
        ),
        facts=facts.capability_missing,
        hides=("driver-not-in-container", "no-gpu-visible"),
        source=("pytorch/pytorch#5070",),
    ),
    Entry(
        id="visible-devices-select-nothing",
        title="CUDA_VISIBLE_DEVICES selects a GPU that is not in this container",
        layer="access",
        rank=2,
        cause="CUDA_VISIBLE_DEVICES={value|…} selects none of the GPUs in this container, where they are numbered "
        "from 0 whatever the host calls them.",
        fix="Unset CUDA_VISIBLE_DEVICES in the container (or give GPU UUIDs), and choose the GPU with `--gpus "
        "device=N` only.",
        command="unset CUDA_VISIBLE_DEVICES",
        weak=(*NO_DEVICE, r"invalid device ordinal", r"CUDA unknown error"),
        beside=(
            r"CUDA_VISIBLE_DEVICES['\"\]]{0,3} ?[=:] ?['\"]?(?P<value>[1-9]\d?|-1|GPU-\S{4,40})",
            r"CUDA_VISIBLE_DEVICES['\"\]]{0,3} ?[=:] ?(?:''|\"\"|\s*$)",
        ),
        facts=facts.because("CUDA_VISIBLE_DEVICES"),
        hides=("no-gpu-visible", "device-number-too-high", "cuda-unknown-error"),
        source=("devitocodes/devito#2710", "vllm-project/vllm#2013"),
    ),
    Entry(
        id="no-gpu-visible",
        title="CUDA is there and shows no GPU",
        layer="driver",
        rank=50,
        cause="The driver's library answers but shows no GPU: CUDA_VISIBLE_DEVICES is empty or names one that is "
        "not here, the container has no device, or its right to use it was taken away.",
        fix="Check `echo $CUDA_VISIBLE_DEVICES` (unset it), `ls -l /dev/nvidia*` and `nvidia-smi` in the container; "
        "then start it anew with --gpus all.",
        command="nvidia-smi -L; echo $CUDA_VISIBLE_DEVICES; ls -l /dev/nvidia*",
        text=NO_DEVICE,
        facts=facts.because("no device"),
        hides=("triton-libcuda-not-found",),
    ),
    Entry(
        id="libcuda-empty",
        title="The driver's library in the container is an empty file",
        layer="launch",
        rank=42,
        cause="libcuda.so.1 in the container is an empty placeholder: the image was committed from a running GPU "
        "container and is now started without the GPU, or the driver changed under a container that is still there.",
        fix="Create the container anew with --gpus all; build the image from its Dockerfile instead of `docker "
        "commit`.",
        command="ls -lL $(ldconfig -p | awk '/libcuda.so.1/{print $NF}')",
        text=(r"lib(?:cuda|nvidia-ml)\.so\S{0,12}: file too short",),
        hides=("library-file-broken", "no-gpu-visible", "driver-not-in-container"),
    ),
    Entry(
        id="nvidia-smi-missing",
        title="nvidia-smi is not in the container",
        layer="resources",
        rank=60,
        cause="nvidia-smi comes with the driver, not with the image: the container was started without the GPU, or "
        "with NVIDIA_DRIVER_CAPABILITIES=compute only. CUDA itself does not need it.",
        fix="Start the container with --gpus all and NVIDIA_DRIVER_CAPABILITIES=compute,utility on a host whose own "
        "nvidia-smi works.",
        command="docker run --rm --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility …",
        text=(
            r"nvidia-smi['\"]?: (?:command )?not found",
            r"no such file or directory: '?nvidia-smi",
            r"executable file not found.{0,40}nvidia-smi",
            r"exec: \"nvidia-smi\": (?:executable file not found|stat)",
            r"nvidia-smi.{0,20}no such file",
        ),
        unless=(r"DRIVER_CAPABILITIES ?= ?compute\s*$", r"cuda\S{0,20} {0,4}:? ?True"),
    ),
    Entry(
        id="device-number-too-high",
        title="The program asks for a GPU that is not visible",
        layer="access",
        rank=10,
        cause="The program asks for a GPU number that does not exist here: fewer GPUs are visible than it expects.",
        fix="Use cuda:0, start as many processes as there are GPUs (--nproc-per-node), or give the container more "
        "of them.",
        command="nvidia-smi -L",
        text=(
            r"invalid device ordinal",
            r"CUDA_ERROR_INVALID_DEVICE",
            r"invalid device id",
            r"cudaErrorInvalidDevice\b",
        ),
        fault="program",
    ),
)
