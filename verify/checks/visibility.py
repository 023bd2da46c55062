"""Whether a GPU is there, and why not; whether the driver, NVML and torch see the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from verify.cause import cause
from verify.core import Outcome, Status, check, fail, pass_, skip
from verify.gpu.ask import TIMEOUT, ask
from verify.machine import Gpu, Machine
from verify.report.group import gib

GIB = 1 << 30
# NVML counts what the driver keeps for itself, CUDA does not: 0.4 % on an H200, 1.5 % on a 24 GB card.
MEMORY_TOLERANCE = 0.04
# Memory of the model as sold, GiB; twice that is a card whose memory was changed. Cards keep their name then.
CATALOGUE = {"RTX 4090 D": 24, "RTX 4090": 24, "RTX 3090": 24, "RTX 4080 SUPER": 16, "RTX 3080": 10}


@check(tier="gpu", about="machine")
def gpu(m: Machine) -> Outcome:
    """The driver shows a GPU to this container.

    When it does not, the message names the lowest layer that is wrong: the driver on the host, the way the container
    was started, a device file, the libraries, or CUDA_VISIBLE_DEVICES. Needs no torch.
    """
    if found := cause(m):
        data = {"cause": found.name, "cuinit": m.driver.cuinit, "nvml": m.driver.nvml_code}
        if found.absent:
            return skip(found.message, hint=found.hint, data=data)
        return fail(found.message, hint=found.hint, data=data)
    listed = ", ".join(describe(g) for g in m.gpus)
    return pass_(f"{listed}; driver {m.driver.version or m.driver.kernel_module}.")


def describe(g: Gpu) -> str:
    """Name, memory and sm; a memory twice that of the model as sold is said."""
    memory = g.memory or 0
    sold = next((size for name, size in CATALOGUE.items() if g.name.endswith(name)), 0)
    changed = f" (sold with {sold} GiB: its memory was enlarged)" if sold and memory > 1.5 * sold * GIB else ""
    return f"{g.name}, {gib(memory) if memory else 'memory unknown'}{changed}, {g.sm or 'sm unknown'}"


@check(needs="gpu")
def nvml(m: Machine) -> Outcome:
    """NVML answers, so that the card's condition can be read."""
    code = m.driver.nvml_code
    if code == 0:
        return pass_(f"NVML {m.driver.version} answers.")
    if code == 18:
        return fail(
            "NVML and the kernel module are of different versions (NVML 18): the driver was updated while running.",
            hint="Reboot the host, or reload the nvidia modules; new containers fail until then.",
        )
    given = m.env.get("NVIDIA_DRIVER_CAPABILITIES", "")
    if code in (None, 12):
        asked = {c.strip() for c in given.split(",")}
        why = m.problems.get("driver.nvml", "libnvidia-ml.so.1 is not here")
        if given and not asked & {"utility", "all"}:
            return pass_(f"CUDA works without NVML; the capability utility was not asked for ({given}).")
        return Outcome(
            Status.WARN,
            f"CUDA works and NVML cannot be asked, so nothing is known of the card's condition: {why}.",
            "Install nvidia-ml-py, or start the container with NVIDIA_DRIVER_CAPABILITIES=compute,utility.",
        )
    return Outcome(
        Status.WARN,
        f"CUDA works and NVML does not (NVML {code}: {m.problems.get('driver.nvml', 'no text')}).",
        "Recreate the container; a systemd reload on the host takes device access away from running ones.",
    )


@check(needs=("gpu", "torch"), timeout=2 * TIMEOUT)
def agreement(m: Machine) -> Outcome:
    """The driver, NVML and torch show the same GPUs."""
    found = ask(m, "devices", "seen")
    return compare(m, found.data["gpus"]) if found.status is Status.PASS else found


def compare(m: Machine, torch: Sequence[Mapping[str, Any]]) -> Outcome:
    """`torch`: name, sm and memory (bytes) of each device as torch gives them."""
    if len(torch) != len(m.gpus):
        return fail(
            f"The driver shows {len(m.gpus)} GPU(s), torch {len(torch)}.",
            hint="A card is lost or hidden: look at CUDA_VISIBLE_DEVICES, and at dmesg on the host for Xid 79.",
        )
    for index, (ours, theirs) in enumerate(zip(m.gpus, torch, strict=True)):
        differ = [key for key in ("name", "sm") if getattr(ours, key) and getattr(ours, key) != theirs[key]]
        memory = ours.memory
        # A MIG instance has a part of the card's memory, and NVML tells the card's.
        if memory and not ours.mig and abs(memory - theirs["memory"]) > MEMORY_TOLERANCE * memory:
            differ.append("memory")
        if differ:
            said = "; ".join(f"{k}: {getattr(ours, k)} and {theirs[k]}" for k in differ)
            return fail(
                f"The driver and torch disagree on GPU {index} ({said}).",
                hint="Two driver libraries are in play: `verify run driver` shows which libcuda is loaded.",
                data={"torch": list(torch)},
            )
    return pass_(f"{len(torch)} GPU(s), the same for driver, NVML and torch.", data={"torch": list(torch)})
