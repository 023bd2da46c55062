"""The container did not start, or was started in a way that cannot work."""

from __future__ import annotations

from verify.doctor.entry import Entry

ENTRIES = (
    Entry(
        id="host-has-no-driver",
        title="The host has no NVIDIA driver that containers can use",
        layer="launch",
        rank=20,
        cause="NVIDIA's container tool finds no driver library on the host: no driver is installed there, or (WSL) "
        "Windows' driver does not serve this distribution.",
        fix="Install the NVIDIA driver on the host until `nvidia-smi` works there; on WSL install it in Windows "
        "only and run `wsl --update`.",
        command="nvidia-smi",
        text=(
            r"load library failed: libnvidia-ml",
            r"nvidia-container-cli: initialization error: (?:cannot open|load library)",
            r"WSL environment detected but no adapters were found",
            r"nvidia-container-cli: detection error: (?:open|nvml)",
            r"GPU access blocked by the operating system",
            r"failed to initialize NVML: (?:ERROR_LIBRARY_NOT_FOUND|could not load NVML library)",
        ),
        hides=("driver-not-in-container", "toolkit-failed"),
    ),
    Entry(
        id="gpu-asked-for-is-not-there",
        title="The GPU asked for does not exist on this host",
        layer="launch",
        rank=21,
        cause="The container asks for the GPU {name|given}, and the host has none of this number or UUID.",
        fix="`nvidia-smi -L` lists what there is; ask for one of these, or for `--gpus all`.",
        command="nvidia-smi -L",
        text=(r"device error: (?P<name>\S{1,80}): unknown device", r"invalid device ID:? ?\"?(?P<name>GPU-\S{1,60})"),
    ),
    Entry(
        id="toolkit-older-than-cgroup2",
        title="The NVIDIA Container Toolkit cannot set up the device cgroup",
        layer="launch",
        rank=22,
        cause="NVIDIA's container tool cannot allow the devices in this cgroup: it is too old for cgroup v2, or "
        "runs without the right to (rootless Docker, a container in a container).",
        fix="Update nvidia-container-toolkit (1.14 or newer). Rootless: set `no-cgroups = true` in "
        "/etc/nvidia-container-runtime/config.toml, and only there.",
        command="sudo nvidia-ctk config --set nvidia-container-cli.no-cgroups --in-place",
        text=(
            r"cgroup subsystem devices not found",
            r"failed to get device cgroup",
            r"bpf_prog_(?:query|load|attach)\S{0,40} failed",
            r"failed to add device rules",
            r"mount error:.{0,60}(?:bpf|device rules)",
        ),
    ),
    Entry(
        id="driver-files-moved",
        title="The driver's files changed under a stale description of them",
        layer="launch",
        rank=23,
        cause="The container should get the driver's file {file|it names}, which is not on the host any more: the "
        "driver was updated after the CDI description or the container was made.",
        fix="Run `sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml` and `sudo ldconfig`, then create the "
        "container anew instead of starting the old one.",
        command="sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
        text=(
            r"failed to fulfil mount request: open (?P<file>\S{0,200}(?:nvidia|cuda)\S{0,100}): no such file",
            r"error mounting \"?(?P<file>\S{0,200}(?:nvidia|libcuda)\S{0,100}?)\"? to rootfs",
            r"gathering device information.{0,80}(?P<file>/dev/nvidia\S{0,20}).{0,20}no such file",
            r"stat (?P<file>/\S{0,200}lib(?:nvidia|cuda)\S{0,100}): no such file",
        ),
    ),
    Entry(
        id="driver-library-in-image",
        title="The image carries files of a driver",
        layer="launch",
        rank=24,
        cause="The image itself holds {file|a driver library}, so the host's cannot be put there: the image was "
        "committed from a GPU container, or a driver package was installed in it.",
        fix="Build the image without nvidia-driver, libnvidia-* and libcuda packages, or remove these files in it.",
        command='docker run --rm --entrypoint sh IMAGE -c \'find / -name "libnvidia-ml.so*" -o -name "libcuda.so*"\'',
        text=(
            r"mount error: file creation failed: (?P<file>\S{1,200}): file exists",
            r"file creation failed:.{0,200}(?P<file>lib(?:nvidia|cuda)\S{1,60}): file exists",
        ),
    ),
    Entry(
        id="toolkit-failed",
        title="NVIDIA's container tool cannot reach the driver",
        layer="launch",
        rank=30,
        cause="NVIDIA's container tool cannot reach the driver of this host ({detail|it gives no reason}).",
        fix="Run `nvidia-smi` on the host: if it hangs or fails, reboot, or reload the nvidia kernel modules, so "
        "that the driver's libraries and its kernel module are of one version; else update nvidia-container-toolkit.",
        command="nvidia-smi && nvidia-container-cli -k -d /dev/tty info",
        text=(
            r"nvidia-container-cli: (?:(?:initialization|mount|container) error: )?(?P<detail>[^\n]{1,160}?)"
            r"(?:: unknown)?\.?$",
            r"nvidia-container-runtime.{0,60}(?P<detail>error[^\n]{1,120})",
        ),
        unless=(
            *(
                r"unsatisfied condition",
                r"driver not loaded",
                r"version mismatch",
                r"load library failed",
                r"unknown device",
            ),
            *(r"cgroup subsystem", r"device rules", r"file exists", r"no adapters were found", r"requirement error"),
            *(r"executable file not found", r"unresolvable CDI"),
        ),
    ),
    Entry(
        id="gpu-request-malformed",
        title="The GPU is asked for in a form the engine does not take",
        layer="launch",
        rank=31,
        cause="The request for GPUs has a form that this version of Compose or of the Docker SDK does not take.",
        fix="Compose: use `docker compose` 2, with devices: driver nvidia, count all, capabilities [gpu] (or `gpus: "
        'all` from 2.30). SDK: DeviceRequest(count=-1, capabilities=[["gpu"]]), a list of lists, and count or '
        "device_ids, not both.",
        command="docker compose version",
        text=(
            r"'devices' was unexpected",
            r"additional propert(?:y|ies).{0,40}(?:gpus|devices|runtime|device_requests)",
            r"'?(?:deploy|devices|gpus|runtime)'? (?:was|is) unexpected",
            r"DeviceRequest\.\w{1,20} must be",
            r"device_requests param is not supported",
            r"cannot set both Count and DeviceIDs",
            r"unexpected keyword argument '(?:gpus|device_requests|runtime)'",
            r"unsupported config option for services.{0,60}(?:runtime|deploy|gpus)",
            r"services\.\S{1,60}\.gpus.{0,60}must be",
            r"invalid value.{0,40}for flag --gpus",
            r"invalid argument.{0,40}for \"--gpus\" flag",
        ),
        source=("docker/docker-py#2471", "docker/compose#8142", "moby/moby#50717"),
    ),
    Entry(
        id="docker-too-old-for-gpus",
        title="This Docker is too old for --gpus",
        layer="launch",
        rank=32,
        cause="This docker command does not know --gpus, which came with Docker 19.03.",
        fix="Update Docker, or use `--runtime=nvidia -e NVIDIA_VISIBLE_DEVICES=all`.",
        command="docker version",
        text=(r"unknown flag: --gpus", r"flag provided but not defined: -gpus", r"unrecognized arguments?:? --gpus"),
    ),
)
