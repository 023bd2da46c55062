"""What a Machine shows of a failure of the driver, its delivery or the card: one sentence, "" for nothing."""

from __future__ import annotations

import re
from collections.abc import Callable

from verify.cause import answer, cause
from verify.machine import Machine

GIB = 1 << 30


def because(*names: str) -> Callable[[Machine], str]:
    """A judge that holds when `verify.cause`, which decides why no GPU works, finds one of these causes."""

    def judge(m: Machine) -> str:
        found = next((c for c in (cause(m), answer(m)) if c and c.name in names), None)
        return found.message.rstrip(".") if found else ""

    return judge


def _node(m: Machine, name: str) -> str:
    """How opening /dev/<name> ended; "" when there is no such file."""
    return next((n.access for n in m.driver.nodes if n.path.endswith(f"/{name}")), "")


def _wanted(m: Machine) -> bool:
    """Whether somebody expects a GPU here: not where the launcher said that there is none."""
    return m.env.get("VERIFY_REQUIRE") != "none"


def no_driver(m: Machine) -> str:
    """Neither module nor device files nor library: this machine has no NVIDIA driver."""
    d = m.driver
    if d.kernel_module or d.nodes or d.libcuda or m.gpus or not _wanted(m):
        return ""
    return "no NVIDIA kernel module, no /dev/nvidia*, no libcuda.so.1"


def module_gone(m: Machine) -> str:
    """Device files or libraries without a loaded kernel module."""
    d = m.driver
    if d.nvml_code == 9 or (d.nodes and not d.kernel_module and d.cuinit not in (None, 0)):
        return f"NVML says {d.nvml_code}, /proc/driver/nvidia/version is {d.kernel_module or 'not there'}"
    return ""


def capability_missing(m: Machine) -> str:
    """The device files are here and exactly one of libcuda and NVML is."""
    d = m.driver
    cuda, nvml = bool(d.libcuda), bool(d.nvml_library)
    if not d.nodes or cuda == nvml or _node(m, "nvidiactl") not in ("ok", ""):
        return ""
    if cuda and d.nvml_code is None:
        return ""  # nvidia-ml-py is not installed: nobody asked for the library
    missing = "compute (libcuda.so.1)" if not cuda else "utility (libnvidia-ml.so.1, nvidia-smi)"
    given = m.env.get("NVIDIA_DRIVER_CAPABILITIES", "unset")
    return f"the device files are here, {missing} is not; NVIDIA_DRIVER_CAPABILITIES is {given}"


def access_denied(m: Machine) -> str:
    """The device files exist and their mode or label forbids them."""
    denied = [n.path for n in m.driver.nodes if n.access == "EACCES"]
    code = f"; NVML says {m.driver.nvml_code}" if m.driver.nvml_code else ""
    if denied:
        return f"opening {denied[0]} as uid {m.container.uid} gives EACCES{code}"
    return "NVML says 4, insufficient permissions" if m.driver.nvml_code == 4 else ""


def uvm_missing(m: Machine) -> str:
    """CUDA fails with 999, or has no chance, because /dev/nvidia-uvm is not there."""
    d = m.driver
    if d.nodes and any(re.search(r"/nvidia\d+$", n.path) for n in d.nodes) and not _node(m, "nvidia-uvm"):
        return f"there is no /dev/nvidia-uvm; cuInit says {d.cuinit}"
    if d.cuinit == 999 and _node(m, "nvidia-uvm") not in ("ok", ""):
        return f"/dev/nvidia-uvm is stale: opening it gives {_node(m, 'nvidia-uvm')}; cuInit says 999"
    return ""


def library_of_another_driver(m: Machine) -> str:
    """The libcuda that answers is of another version than the kernel module."""
    d = m.driver
    if d.cuinit != 803 or "/compat" in d.libcuda:
        return ""
    baked = "; it lies in the image, the driver's would be mounted" if d.libcuda_mounted is False else ""
    return f"cuInit says 803: {d.libcuda or 'libcuda'} against kernel module {d.kernel_module or '?'}{baked}"


def too_old(m: Machine) -> str:
    """The driver's CUDA major is below that of torch."""
    built = m.python.torch_cuda
    if m.driver.cuda and built and m.driver.cuda // 1000 < int(built.split(".")[0]):
        return f"the driver offers CUDA {m.driver.cuda // 1000}.{m.driver.cuda % 1000 // 10}, torch is of CUDA {built}"
    return ""


def mismatch(m: Machine) -> str:
    """NVML says that the kernel module is of another version."""
    d = m.driver
    if d.nvml_code != 18:
        return ""
    return (
        f"NVML says 18 (version mismatch): {d.nvml_library or 'libnvidia-ml'} against module {d.kernel_module or '?'}"
    )


def lost(m: Machine) -> str:
    """NVML lost a GPU."""
    said = m.problems.get("driver.nvml", "")
    gone = m.driver.nvml_code == 15 or "GPU is lost" in said or "NVML does not show GPU" in said
    return said or "NVML says 15, GPU is lost" if gone else ""


def memory_errors(m: Machine) -> str:
    """The card counted memory errors it could not correct."""
    bad = [g for g in m.gpus if g.ecc_errors]
    return f"GPU {bad[0].index} counted {bad[0].ecc_errors} uncorrectable memory errors" if bad else ""


def held_by_others(m: Machine) -> str:
    """Memory of a GPU is used and no process in sight uses it."""
    for g in m.gpus:
        held = (g.memory_used or 0) - (g.processes_memory or 0)
        if g.memory and held > max(2 * GIB, g.memory // 20):
            return (
                f"GPU {g.index}: {held / GIB:.1f} of {g.memory / GIB:.1f} GiB are used by no process of this container"
            )
    return ""


def exclusive(m: Machine) -> str:
    """The card takes one process only, or none."""
    bad = [g for g in m.gpus if g.compute_mode in ("exclusive process", "prohibited")]
    return f"the compute mode of GPU {bad[0].index} is {bad[0].compute_mode!r}" if bad else ""


def slowed(m: Machine) -> str:
    """A throttle reason or a lowered power limit that a person can act on; idle clocks and idle PCIe are no fault."""
    for g in m.gpus:
        hot = [t for t in g.throttle if "hardware" in t or "thermal" in t]
        if hot:
            return f"GPU {g.index} is throttled: {', '.join(hot)}"
        if g.power_limit and g.power_default and g.power_limit < 0.95 * g.power_default:
            return f"GPU {g.index} is limited to {g.power_limit:g} W of its {g.power_default:g} W"
        if g.pcie_width and g.pcie_width_max and g.pcie_width < g.pcie_width_max:
            return f"GPU {g.index} runs on {g.pcie_width} of {g.pcie_width_max} PCIe lanes"
    return ""


def slice_not_chosen(m: Machine) -> str:
    """MIG is on and no instance is named, or one is named where there is none."""
    value = m.env.get("CUDA_VISIBLE_DEVICES", "")
    on = [g for g in m.gpus if g.mig]
    if on and "MIG-" not in value and "MIG" not in on[0].name:
        return f"MIG is on for GPU {on[0].index} and CUDA_VISIBLE_DEVICES is {value or 'unset'}"
    if "MIG-" in value and m.gpus and not on:
        return f"CUDA_VISIBLE_DEVICES={value}, and no GPU here has MIG on"
    return ""


def virtual_gpu(m: Machine) -> str:
    """A virtual-GPU shim is preloaded."""
    shims = [p for p in m.driver.preload if "vgpu" in p.lower()]
    return f"{shims[0]} is preloaded" if shims else ""
