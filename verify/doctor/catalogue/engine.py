"""The Docker engine does not answer, or refuses the container. `verify image` makes its sentences of these entries.

The order counts there: the first entry that fits is told.
"""

from __future__ import annotations

from verify.doctor import facts
from verify.doctor.entry import Entry

ENTRIES = (
    Entry(
        id="engine-permission",
        title="This user may not talk to the Docker engine",
        layer="launch",
        rank=1,
        cause="The Docker engine is there, but this user may not talk to it.",
        fix="Use sudo, or add the user to the group docker (`sudo usermod -aG docker $USER`) and log in again.",
        command="sudo usermod -aG docker $USER",
        text=(
            r"permission denied while trying to connect to the docker",
            r"docker\.sock.{0,80}permission denied",
            r"connection aborted.{0,40}permissionerror",
        ),
        engine=(r"permission ?(?:error|denied)(?!.*(?:OCI|exec))",),
    ),
    Entry(
        id="engine-not-running",
        title="No Docker engine answers",
        layer="launch",
        rank=2,
        cause="No Docker engine answers at {socket|its socket}, so no container can be started.",
        fix="Start it (`sudo systemctl start docker`), run `bash docker/engine.sh` on a bare Debian or Ubuntu "
        "machine, or set DOCKER_HOST.",
        command="sudo systemctl start docker",
        text=(
            r"cannot connect to the docker daemon",
            r"is the docker daemon running",
            r"error during connect:.{0,200}docker",
            r"error while fetching server api version",
            r"failed to connect to the docker api",
            r"connection aborted.{0,40}filenotfounderror",
        ),
        engine=(r"filenotfounderror", r"connection ?refused"),
        hides=("disk-full",),
    ),
    Entry(
        id="image-missing",
        title="There is no such image",
        layer="launch",
        rank=5,
        cause="There is no image {image|of this name} on this machine, and no registry gives it.",
        fix="Build it with `make image`, or name another with --image; check the spelling and the tag, and `docker "
        "login` for a private one.",
        command="make image",
        text=(
            r"unable to find image '(?P<image>[^']{1,200})' locally",
            r"no such image: (?P<image>[^\s\"]{1,200})",
            r"pull access denied for (?P<image>[^\s,]{1,200})",
            r"manifest for (?P<image>\S{1,200}) not found",
            r"manifest unknown",
            r"repository does not exist or may require",
            r"ErrImagePull",
            r"ImagePullBackOff",
        ),
        engine=(r"imagenotfound", r"no such image"),
        unless=(
            r"status: downloaded newer image",
            r"could not select device driver",
            r"OCI runtime create failed",
            r"nvidia-container-cli",
        ),
    ),
    Entry(
        id="cdi-off",
        title="Docker's support for CDI is switched off",
        layer="launch",
        rank=10,
        cause="Docker's support for CDI is switched off, so it cannot hand over the GPUs.",
        fix='Set "features": {"cdi": true} in /etc/docker/daemon.json and restart Docker.',
        command="sudo nvidia-ctk config --set nvidia-container-runtime.mode=cdi; sudo systemctl restart docker",
        text=(
            r"could not select device driver \"?cdi\b",
            r"\bCDI\b`?(?: support| devices?)? (?:is|are) not (?:enabled|supported)",
        ),
        hides=("toolkit-missing",),
        source=("moby/moby#47633",),
    ),
    Entry(
        id="toolkit-missing",
        title="Docker has no NVIDIA Container Toolkit",
        layer="launch",
        rank=11,
        cause="Docker cannot hand over the GPUs of this host, because the NVIDIA Container Toolkit is missing or "
        "Docker was not restarted after its installation.",
        fix="Install nvidia-container-toolkit, run `sudo nvidia-ctk runtime configure --runtime=docker` and restart "
        "Docker, or check without the GPU with --gpus none.",
        command="sudo apt-get install -y nvidia-container-toolkit && sudo nvidia-ctk runtime configure "
        "--runtime=docker && sudo systemctl restart docker",
        text=(
            r"could not select device driver",
            r"linux runtime spec devices: could not select",
            r"nvidia-container-(?:runtime|cli|toolkit)[\w-]{0,20}\"?:? (?:executable file|command)? ?not found",
            r"executable file not found in \$PATH.{0,80}nvidia-container",
            r"exec: \"nvidia-container-[\w-]{1,20}\": executable file not found",
            r"nvidia-container-(?:runtime|cli|toolkit)[\w.-]{0,20}\"?: no such file",
            r"nvidia-docker: command not found",
            r"nvidia-ctk: command not found",
        ),
        unless=(r"could not select device driver \"?cdi\b",),
        hides=("runtime-unknown", "driver-not-in-container"),
        source=("OpenBMB/XAgent#273", "NVlabs/BundleSDF#184"),
    ),
    Entry(
        id="runtime-unknown",
        title="This Docker engine knows no NVIDIA runtime",
        layer="launch",
        rank=12,
        cause="This Docker engine knows no runtime {name|nvidia}, because its daemon.json has no entry for it or "
        "Docker was not restarted; a second engine (rootless, Docker Desktop) has a daemon.json of its own.",
        fix="Run `sudo nvidia-ctk runtime configure --runtime=docker` and restart Docker; `docker context ls` shows "
        "which engine is asked.",
        command="sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker",
        text=(
            r"unknown (?:or invalid )?runtime(?: name| specified)?:? ?\"?(?P<name>nvidia[\w-]{0,20})",
            r"no runtime for \"?(?P<name>nvidia)\"? is configured",
            r"runtime \"?(?P<name>nvidia)\"? (?:is )?not found",
        ),
        engine=(r"unknown or invalid runtime name:? ?\"?(?P<name>\w{1,40})",),
        source=("NVIDIA/nvidia-container-toolkit#150",),
    ),
    Entry(
        id="cdi-device-unknown",
        title="The CDI description of the GPUs is missing or stale",
        layer="launch",
        rank=13,
        cause="Docker cannot resolve the CDI device {name|of the GPU}, because the CDI description of the GPUs is "
        "missing or older than the driver.",
        fix="Run `sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`, again after each driver update; "
        "`nvidia-ctk cdi list` shows the names there are.",
        command="sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
        text=(
            r"unresolvable CDI devices? (?P<name>[^\s:,]{1,100})",
            r"inject.{0,20}CDI",
            r"CDI.{0,40}inject",
            r"CDI device.{0,60}not found",
            r"error executing hook.{0,40}nvidia-c",
            r"stat CDI host device",
            r"(?:stat|setting up CDI devices|no such device:?).{0,20}nvidia\.com/gpu",
            r"failed to (?:load|parse|read).{0,40}CDI spec",
        ),
        source=("NVIDIA/nvidia-container-toolkit#434", "moby/moby#47633"),
    ),
    Entry(
        id="image-needs-newer-driver",
        title="The image asks for a newer driver than this host has",
        layer="launch",
        rank=14,
        cause="The driver of this host does not meet the image's condition {condition|on CUDA}, which its variable "
        "NVIDIA_REQUIRE_CUDA sets.",
        fix="Update the NVIDIA driver (550 or newer), or take an image for an older CUDA (this one asks for "
        "cuda>=12.4); NVIDIA_DISABLE_REQUIRE=1 skips the question only, newer PTX still fails.",
        command="docker inspect -f '{{.Config.Env}}' IMAGE",
        text=(
            r"unsatisfied condition:? ?(?P<condition>[^\s,]{1,60})",
            r"requirement error:.{0,40}(?P<condition>(?:cuda|driver|brand|arch) ?[<>=]{1,2} ?[\d.]{1,12})",
        ),
        source=("theroyallab/tabbyAPI#324", "NVIDIA/nvidia-container-toolkit#152"),
    ),
    Entry(
        id="kernel-module-not-loaded",
        title="The NVIDIA kernel module is not loaded on the host",
        layer="launch",
        rank=15,
        cause="NVIDIA's tools cannot reach the driver of this host (driver not loaded): there is no nvidia module "
        "for the running kernel, after a kernel update, with Secure Boot, or because nouveau took the card.",
        fix="On the host reinstall the driver, or build its module for the running kernel (DKMS), load it, and "
        "reboot; then start the container again.",
        command="sudo dkms autoinstall && sudo modprobe nvidia && nvidia-smi",
        text=(
            r"nvml error: driver not loaded",
            r"NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver",
            r"failed to initialize NVML: driver not loaded",
            r"NVMLError_DriverNotLoaded",
            r"modprobe: (?:FATAL|ERROR):.{0,40}nvidia",
            r"make sure that the latest NVIDIA driver is installed and running",
            r"NVML.{0,30}Driver Not Loaded",
            r"NVRM: No NVIDIA (?:GPU|graphics adapter|devices) (?:found|probed)",
            r"Key was rejected by service",
            r"NVRM: The NVIDIA probe routine was not called",
        ),
        hides=("driver-not-in-container",),
        facts=facts.module_gone,
        source=("NVIDIA/nvidia-container-toolkit#260", "GoogleCloudPlatform/compute-gpu-installation#18"),
    ),
    Entry(
        id="driver-version-mismatch",
        title="The driver was updated while its old kernel module is still loaded",
        layer="launch",
        rank=16,
        cause="The user-space libraries of the NVIDIA driver and its loaded kernel module are of different versions (a "
        "version mismatch), as after an automatic update without a reboot, or with libraries baked into the image.",
        fix="Reboot the host, or unload and load the nvidia modules, then create the container anew; hold the driver's "
        "packages back from automatic updates.",
        command="sudo reboot",
        text=(
            r"driver/library version mismatch",
            r"NVML/RM version mismatch",
            r"API mismatch: (?:the|this) (?:NVIDIA kernel module|client)",
            r"NVRM: API mismatch",
            r"LibRmVersionMismatch",
        ),
        facts=facts.mismatch,
        source=("NVIDIA/nvidia-container-toolkit#394",),
    ),
)
