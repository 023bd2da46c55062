"""What a check may need of a machine: why it is not met, and what would meet it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from verify.machine import Machine

PACKAGES = {
    "torch": "torch",
    "xformers": "xformers",
    "flash_attn": "flash-attn",
    "bitsandbytes": "bitsandbytes",
}
CUINIT = {
    2: "out of memory",
    3: "initialization failed",
    34: "the library is a stub",
    46: "the device is busy or unavailable",
    100: "no device is visible",
    304: "an operating system call failed",
    802: "the system is not initialised yet",
    803: "driver library and kernel module do not match",
    804: "forward compatibility on hardware that does not support it",
    999: "unknown error",
}


def unmet(m: Machine, need: str) -> str:
    """Why `m` does not meet `need`, one sentence; "" when it does. KeyError for a need nobody declared."""
    if need == "gpu":
        return "" if m.gpus else no_gpu(m)
    if need == "multi_gpu":
        return "" if len(m.gpus) > 1 else (f"One GPU only: {m.gpus[0].name}." if m.gpus else no_gpu(m))
    if need == "nvcc":
        return "" if m.toolkit.nvcc else "nvcc is not on this machine."
    if need == "gcc":
        return "" if m.toolkit.gcc else "gcc is not on this machine."
    if need == "image":
        return "" if m.image else f"Not inside the built image: {m.problems.get('image', 'no image.json')}."
    if need == "docker":
        return "" if not m.container.engine else f"This is inside a container ({m.container.engine}), not on its host."
    name = PACKAGES[need]
    return "" if m.package(name) else f"{name} is not installed for {m.python.executable or 'this Python'}."


def no_gpu(m: Machine) -> str:
    """The reason there is no GPU, by the lowest layer that is missing."""
    d = m.driver
    if d.cuinit not in (None, 0):
        return f"No GPU: cuInit says {d.cuinit} ({CUINIT.get(d.cuinit or 0, 'see the CUDA driver API')})."
    if not d.kernel_module and not d.nodes:
        return "No GPU: this machine has no NVIDIA driver."
    if not d.nodes:
        return f"No GPU: the host has driver {d.kernel_module}, this container was not given it."
    if not d.libcuda:
        return "No GPU: the device files are here, libcuda.so.1 is not."
    return "No GPU: the driver is here and shows no device."


def remedy(m: Machine, need: str) -> str:
    """What to do so that `need` is met, "" when nothing can be done on this machine."""
    if need in {"gpu", "multi_gpu"}:
        if m.gpus:
            return "This needs a machine with two GPUs or more."
        if m.driver.nodes and not m.driver.libcuda:
            return "Set NVIDIA_DRIVER_CAPABILITIES=compute,utility and start the container again."
        if m.container.engine or m.image:
            return "Start the container with --gpus all, on a host with an NVIDIA driver."
        return "Run this where an NVIDIA GPU and its driver are."
    if need == "nvcc":
        return "Use the devel image, which has the CUDA 12.4 compiler."
    if need == "gcc":
        return "Install gcc and g++ (apt-get install gcc g++)."
    if need == "image":
        return "Run `verify` inside the image."
    if need == "docker":
        return "Run this on the host."
    return f"Use the Python the stack is installed for (/opt/venv/bin/python in the image), which has {PACKAGES[need]}."
