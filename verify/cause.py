"""Why no GPU works here: one cause and one remedy from the facts of a Machine, lowest layer first. Reads nothing:
no driver, not given to the container, a device file that cannot be opened, no libcuda, the wrong one, cuInit's code.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from verify.machine import Machine

NOTHING = frozenset({"", "void", "none"})


@dataclass(frozen=True)
class Cause:
    """A sentence and its remedy; `absent`: nothing here was ever meant to have a GPU."""

    name: str
    message: str
    hint: str
    absent: bool = False


def cause(m: Machine) -> Cause | None:
    """The cause, None when CUDA shows at least one GPU."""
    d = m.driver
    if d.cuinit == 0 and d.devices:
        return None
    return _not_given(m) or _blocked(m) or _library(m) or answer(m)


def answer(m: Machine) -> Cause | None:
    """What the driver's own answer tells, whatever lies below it; None when it gave none or all is well."""
    d = m.driver
    if d.cuinit is None or (d.cuinit == 0 and d.devices):
        return None
    return _wrong_library(m) or _code(m)


# cuInit's code → (name, sentence, remedy); CUDA driver API, CUresult.
CODES = {
    2: (
        "memory",
        "The GPU has no memory left for another process",
        "Stop what else runs on it; nvidia-smi on the host shows who.",
    ),
    3: (
        "initialisation",
        "The driver could not be initialised",
        "Recreate the container, or reload the host's driver.",
    ),
    46: (
        "busy",
        "The GPU is held by another process, or in exclusive mode",
        "End the other process, or on the host: nvidia-smi -c DEFAULT.",
    ),
    304: (
        "system call",
        "A system call the driver needs is refused",
        "Start the container without a stricter seccomp or AppArmor profile, and not in a sandbox such as gVisor.",
    ),
    802: (
        "fabric",
        "The NVSwitch fabric is not ready",
        "Start nvidia-fabricmanager, of the driver's very version, on the host.",
    ),
}


def _cards(m: Machine) -> list[str]:
    """The device files of cards, /dev/nvidia0 and so on."""
    return [n.path for n in m.driver.nodes if re.fullmatch(r"/dev/nvidia\d+", n.path)]


def _not_given(m: Machine) -> Cause | None:
    d = m.driver
    gpus = _cards(m)
    asked = m.env.get("NVIDIA_VISIBLE_DEVICES")
    if not d.kernel_module and not d.nodes:
        where = "Run this where an NVIDIA GPU and its driver are (525 or newer)."
        return Cause("no driver", "This machine has no NVIDIA driver.", where, absent=True)
    if gpus:
        return None
    if asked is not None and asked in NOTHING:
        said = f"NVIDIA_VISIBLE_DEVICES={asked or '(empty)'} keeps every GPU out of this container."
        return Cause("not asked for", said, "Start it with --gpus all and NVIDIA_VISIBLE_DEVICES=all.")
    if d.nodes:
        return Cause(
            "no device file",
            f"There is {d.nodes[0].path} and no /dev/nvidia0, so this container was given no card.",
            "Start the container with --gpus all; with --device options name /dev/nvidia0 too.",
        )
    where = "this container was not given it" if m.container.engine else "it made no device files"
    return Cause(
        "not given",
        f"The host has driver {d.kernel_module}, and {where}.",
        "Start the container with --gpus all (compose: gpus: all); NVIDIA_VISIBLE_DEVICES alone does nothing without "
        "NVIDIA's runtime. On a bare host: nvidia-modprobe -c 0 -u.",
    )


def _blocked(m: Machine) -> Cause | None:
    """A device file that cannot be opened; a missing nvidia-uvm is left to cuInit's code."""
    for node in m.driver.nodes:
        if node.access == "EPERM":
            return Cause(
                "cgroup",
                f"{node.path} is there and may not be opened (EPERM): the container's device rules exclude it.",
                "Recreate the container. If it worked before, systemd reloaded its rules (nvidia-ctk system "
                "create-dev-char-symlinks --create-all helps for good); if it never did, set no-cgroups = false in "
                "nvidia-container-runtime/config.toml and restart Docker.",
            )
        if node.access == "EACCES":
            return Cause(
                "permission",
                f"{node.path} is there and this user may not open it (EACCES).",
                "Give the file mode 0666 on the host (NVreg_DeviceFileMode), or with SELinux: setsebool -P "
                "container_use_devices 1.",
            )
        if node.access not in ("ok", "") and "uvm" not in node.path:
            return Cause(
                "dead device",
                f"{node.path} is there and opening it gives {node.access}: the card is gone or the file is stale.",
                "Look for Xid 79 in dmesg on the host; reboot it, then recreate the container.",
            )
    return None


def _library(m: Machine) -> Cause | None:
    d = m.driver
    if d.libcuda and d.cuinit is not None:
        return None
    if not d.libcuda:
        given = m.env.get("NVIDIA_DRIVER_CAPABILITIES", "")
        said = f" (NVIDIA_DRIVER_CAPABILITIES={given})" if given else ""
        why = ", NVML is: the capability compute is missing" if d.nvml_library else ""
        return Cause(
            "capability",
            f"The device files are here and libcuda.so.1 is not{why}{said}.",
            "Start the container with NVIDIA_DRIVER_CAPABILITIES=compute,utility; with --device options alone the "
            "driver's libraries are not brought in: use --gpus all.",
        )
    told = m.problems.get("driver.cuda", "it gave no answer")
    return Cause(
        "driver died",
        f"Asking {d.libcuda} for its GPUs failed: {told}.",
        "A wedged driver or a foreign library: reboot the host, and clear LD_PRELOAD and LD_LIBRARY_PATH.",
    )


def _wrong_library(m: Machine) -> Cause | None:
    """A stub, cuda-compat, or a libcuda of another version than the kernel module. Only where cuInit fails too."""
    d = m.driver
    if d.cuinit == 0:
        return None
    if d.cuinit == 34 or "/stubs/" in d.libcuda:
        return Cause(
            "stub",
            f"{d.libcuda} is a stub for linking, not the driver (cuInit says {d.cuinit}).",
            "Take the stubs folder out of LD_LIBRARY_PATH and /etc/ld.so.conf.d and run ldconfig; for linking use "
            "LIBRARY_PATH.",
        )
    if "/compat" in d.libcuda or d.cuinit == 804:
        why = "which GeForce cards do not support" if d.cuinit == 804 else "which does not fit this host's driver"
        return Cause(
            "cuda-compat",
            f"{d.libcuda} is NVIDIA's forward compatibility library, {why} (cuInit says {d.cuinit}).",
            "Remove cuda-compat: delete its folder and its file in /etc/ld.so.conf.d, drop it from LD_LIBRARY_PATH, "
            "run ldconfig.",
        )
    named = re.search(r"libcuda\.so\.(\d+\.\d[\d.]*)$", d.libcuda)
    version = named[1] if named else ""
    differs = bool(version and d.kernel_module and version != d.kernel_module)
    if d.nvml_code == 18 or d.cuinit == 803 or differs:
        have = f"libcuda {version or 'of another version'}, kernel module {d.kernel_module or 'of another version'}"
        if d.libcuda_mounted is False and m.container.engine:
            return Cause(
                "baked-in driver",
                f"The image brings its own driver library, which does not fit the host's ({have}).",
                "Remove libcuda and libnvidia-* packages from the image; the container runtime brings the host's.",
            )
        return Cause(
            "driver mismatch",
            f"The driver's library and the kernel module do not match ({have}).",
            "The driver was updated while running: reboot the host (or reload the nvidia modules), then recreate the "
            "container.",
        )
    return None


def hidden(m: Machine) -> str:
    """What CUDA_VISIBLE_DEVICES hides: a sentence when it leaves no GPU, "" otherwise."""
    value = m.env.get("CUDA_VISIBLE_DEVICES")
    if value is None:
        return ""
    first = value.split(",")[0].strip()
    if first in ("", "-1", "NoDevFiles"):
        return f"CUDA_VISIBLE_DEVICES={value or '(empty)'} hides every GPU"
    there = len(m.gpus) or len(_cards(m))
    if first.isdigit() and there and int(first) >= there:
        return f"CUDA_VISIBLE_DEVICES={value} asks for number {first}, and there are {there} (numbered from 0)"
    if not first.isdigit() and not m.driver.devices:
        return f"CUDA_VISIBLE_DEVICES={value} names no GPU of this container"
    return ""


def _code(m: Machine) -> Cause:
    d = m.driver
    uvm = any(n.path == "/dev/nvidia-uvm" and n.access == "ok" for n in d.nodes)
    if d.cuinit in (0, 100):
        return _no_device(m)
    if d.cuinit == 999 and not uvm:
        return Cause(
            "nvidia-uvm",
            "CUDA fails with its unknown error (999), since /dev/nvidia-uvm is missing or cannot be opened.",
            "On the host: nvidia-modprobe -c 0 -u, then recreate the container; name the uvm files with --device.",
        )
    if d.cuinit == 999:
        return Cause(
            "wedged driver",
            "CUDA fails with its unknown error (999) though every device file opens: the driver is wedged.",
            "After suspend: reload nvidia_uvm on the host (rmmod, modprobe); else reboot it. dmesg shows Xid errors.",
        )
    if d.cuinit in CODES:
        name, text, hint = CODES[d.cuinit]
        return Cause(name, f"{text} (cuInit says {d.cuinit}).", hint)
    return Cause(
        "unknown code",
        f"CUDA cannot be initialised: cuInit says {d.cuinit}.",
        "Look the code up in the CUDA driver API, and at dmesg on the host.",
    )


def _no_device(m: Machine) -> Cause:
    d = m.driver
    if why := hidden(m):
        return Cause("CUDA_VISIBLE_DEVICES", f"{why}.", "Unset CUDA_VISIBLE_DEVICES; a container counts from 0.")
    if any(g.mig for g in m.gpus):
        return Cause(
            "MIG",
            f"{m.gpus[0].name} is in MIG mode and this container was given no instance of it.",
            "On the host make one (nvidia-smi mig -cgi … -C), or hand one over: --gpus device=MIG-….",
        )
    if any(g.compute_mode == "prohibited" for g in m.gpus):
        return Cause("prohibited", "The GPU's compute mode prohibits CUDA.", "On the host: nvidia-smi -c DEFAULT.")
    if d.nvml_code == 999:
        return Cause(
            "cgroup",
            "The device files are here and the driver shows no GPU (NVML's unknown error 999): access was taken away.",
            "Recreate the container; a systemd reload on the host drops its device rules.",
        )
    if d.nvml_code == 9:
        return Cause(
            "driver not loaded",
            "The driver's libraries are here and its kernel module is not loaded (NVML 9).",
            "On the host: modprobe nvidia; after a kernel update install the driver again (dkms).",
        )
    return Cause(
        "no device",
        f"The driver {d.version or d.kernel_module} is here and shows no GPU.",
        "Recreate the container with --gpus all; on the host nvidia-smi -L must list the card.",
    )
