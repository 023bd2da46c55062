"""What NVML says of each card while it works: an idle card hides a narrow link, a hot chip and a low power limit."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from verify.core import Outcome, pass_, skip
from verify.gpu.probes import Context, probe
from verify.probe.nvml import THROTTLE

SECONDS = 2.5
SAMPLES_EVERY = 0.1


def handle(nv: Any, index: int) -> Any:
    """NVML's handle of torch's device `index`: by UUID, since CUDA_VISIBLE_DEVICES renumbers; None for a MIG slice."""
    import torch

    uuid = str(getattr(torch.cuda.get_device_properties(index), "uuid", ""))
    try:
        if not uuid:
            return nv.nvmlDeviceGetHandleByIndex(index)
        return nv.nvmlDeviceGetHandleByUUID(uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}")
    except nv.NVMLError:
        return None


def asker(nv: Any) -> Callable[..., Any]:
    """Calls an NVML function by name; None where the card, the driver or the binding does not answer."""

    def ask(name: str, *given: Any) -> Any:
        try:
            return getattr(nv, name)(*given)
        except Exception:  # NVMLLibraryMismatchError, of a binding newer than the driver, is no NVMLError
            return None

    return ask


def sample(nv: Any, card: Any) -> dict[str, Any]:
    """One look at a working card. Clocks MHz, power W, temperature °C."""
    ask = asker(nv)
    reasons, power = ask("nvmlDeviceGetCurrentClocksThrottleReasons", card), ask("nvmlDeviceGetPowerUsage", card)
    return {
        "throttle": None if reasons is None else [text for bit, text in THROTTLE.items() if reasons & bit],
        "pcie_gen": ask("nvmlDeviceGetCurrPcieLinkGeneration", card),
        "pcie_width": ask("nvmlDeviceGetCurrPcieLinkWidth", card),
        "clock": ask("nvmlDeviceGetClockInfo", card, 1),  # 1: the SM domain
        "temperature": ask("nvmlDeviceGetTemperature", card, 0),
        "power": None if power is None else power / 1000,
    }


def fixed(nv: Any, card: Any) -> dict[str, Any]:
    """What does not change while the card works."""
    ask = asker(nv)
    rows = ask("nvmlDeviceGetRemappedRows", card)
    return {
        "pcie_gen_max": ask("nvmlDeviceGetMaxPcieLinkGeneration", card),
        "pcie_width_max": ask("nvmlDeviceGetMaxPcieLinkWidth", card),
        "slowdown_temperature": ask("nvmlDeviceGetTemperatureThreshold", card, 1),  # 1: hardware slows down here
        "persistence": ask("nvmlDeviceGetPersistenceMode", card),
        "virtualization": ask("nvmlDeviceGetVirtualizationMode", card),
        "rows": None if rows is None else [int(n) for n in rows],  # correctable, uncorrectable, pending, failed
    }


def work(index: int, look: Callable[[], dict[str, Any]]) -> list[dict[str, Any]]:
    """Matrix products and copies from pinned memory for SECONDS, with a look every SAMPLES_EVERY."""
    import torch

    seen = []
    with torch.cuda.device(index):
        a = torch.randn(4096, 4096, device="cuda", dtype=torch.float16)
        host, there = (
            torch.zeros(64 << 20, dtype=torch.uint8).pin_memory(),
            torch.empty(64 << 20, dtype=torch.uint8, device="cuda"),
        )
        copying, started = torch.cuda.Stream(), time.monotonic()
        while time.monotonic() - started < SECONDS:
            turn = time.monotonic()
            while time.monotonic() - turn < SAMPLES_EVERY:
                a @ a
                with torch.cuda.stream(copying):
                    there.copy_(host, non_blocking=True)
                if time.monotonic() - turn < SAMPLES_EVERY / 2:
                    continue
                torch.cuda.synchronize()
            seen.append(look())
        torch.cuda.synchronize()
    return seen


@probe
def cards(context: Context) -> Outcome:
    """data["cards"]: for each GPU what is fixed, and samples under load."""
    try:
        import pynvml as nv
    except ImportError:
        return skip("nvidia-ml-py is not installed for this Python, so the card cannot be watched.")
    try:
        nv.nvmlInit()
    except nv.NVMLError as error:
        return skip(f"NVML does not answer ({error}), so the card cannot be watched.")
    found = []
    for index in range(context.gpus):
        card = handle(nv, index)
        if card is None:
            found.append({"index": index, "samples": []})
            continue
        facts = fixed(nv, card)
        facts["samples"] = work(index, partial(sample, nv, card))
        found.append({"index": index, **facts})
    return pass_("Watched.", data={"cards": found})
