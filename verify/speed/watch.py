"""A thread that asks NVML, while something is timed, what the card does and who else is on it. Child side."""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from verify.gpu import load

EVERY = 0.05  # seconds between two looks
BUSY = 10  # per cent of use by others from which a card counts as shared
# What slows a card down against its own will or by somebody's setting. The software power cap is how a card is meant to
# work under full load: the ceiling is computed from the clock that was measured.
THROTTLED = (
    "hardware slowdown",
    "hardware thermal slowdown",
    "hardware power brake",
    "software thermal slowdown",
    "applications clocks setting",
    "display clock setting",
)
SHARE = 0.1  # of the looks


class Watch:
    """One card by NVML; every method gives empty answers where NVML or the card is not there."""

    def __init__(self, index: int = 0) -> None:
        self.nv: Any = None
        self.card: Any = None
        try:
            import pynvml as nv

            nv.nvmlInit()
            self.nv, self.card = nv, load.handle(nv, index)
        except Exception:  # no NVML: figures without conditions; the judge says that the card was not watched
            self.card = None

    def others(self) -> list[str]:
        """The other processes on the card, as "pid 123 (512 MiB)"; this process may be listed under a host's number."""
        if self.card is None:
            return []
        found = load.asker(self.nv)("nvmlDeviceGetComputeRunningProcesses", self.card) or []
        mine = [p for p in found if p.pid == os.getpid()]
        rest = [p for p in found if p.pid != os.getpid()]
        # In a container the numbers are the host's: one of them is this process, if it holds the card at all.
        if not mine and rest and holds_card():
            rest = sorted(rest, key=lambda p: p.pid)[:-1]
        return [f"pid {p.pid} ({(p.usedGpuMemory or 0) >> 20} MiB)" for p in rest]

    def quiet(self, patience: float = 3.0) -> list[str]:
        """Who is on the card before this process is; those that are just leaving are waited for."""
        until = time.monotonic() + patience
        while (seen := self.others()) and time.monotonic() < until:
            time.sleep(0.2)
        if seen or self.card is None:
            return seen
        least = 100
        for _turn in range(4):  # NVML's figure covers up to a second: what has just ended fades from it
            use = load.asker(self.nv)("nvmlDeviceGetUtilizationRates", self.card)
            least = min(least, use.gpu if use else 0)
            if least <= BUSY:
                return []
            time.sleep(0.4)
        return [f"somebody who cannot be seen from here ({least} % use)"]

    def during(self) -> Looks:
        """A context in which the card is looked at every EVERY seconds, and at least once."""
        return Looks(self)

    def fixed(self) -> dict[str, Any]:
        """Power limits in W, which a figure depends on."""
        if self.card is None:
            return {}
        ask = load.asker(self.nv)
        now, default = (
            ask(f"nvmlDevice{name}", self.card) for name in ("GetEnforcedPowerLimit", "GetPowerManagementDefaultLimit")
        )
        return {"power_limit_w": now / 1000 if now else None, "power_default_w": default / 1000 if default else None}


def holds_card() -> bool:
    """This process has opened a CUDA context."""
    import sys

    torch = sys.modules.get("torch")
    return bool(torch and torch.cuda.is_initialized())


class Looks:
    """Samples of a card, taken in a thread between entering and leaving."""

    def __init__(self, watch: Watch) -> None:
        self.watch, self.samples, self.company = watch, list[dict[str, Any]](), set[str]()
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._look, daemon=True)

    def _look(self) -> None:
        turn = 0
        while True:  # the first look at once: what is timed may be over before EVERY has passed
            self.samples.append(load.sample(self.watch.nv, self.watch.card))
            if turn % 10 == 0:
                self.company.update(self.watch.others())
            turn += 1
            if self.stop.wait(EVERY):
                return

    def __enter__(self) -> Looks:
        if self.watch.card is not None:
            self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        if self.thread.is_alive():
            self.thread.join(2)

    def summary(self) -> dict[str, Any]:
        """What a figure's conditions need; {} when the card was not watched."""
        return {**summarise(self.samples), "others": sorted(self.company)}


def summarise(samples: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Medians of clock (MHz) and power (W), the highest temperature (°C), the share of looks per throttle reason."""
    if not samples:
        return {"looks": 0}

    def seen(key: str) -> list[Any]:
        return [s[key] for s in samples if s.get(key) is not None]

    reasons = [reason for one in seen("throttle") for reason in one]
    shares = {reason: round(reasons.count(reason) / len(samples), 3) for reason in sorted(set(reasons))}
    clocks, power = seen("clock"), seen("power")
    return {
        "looks": len(samples),
        "clock_mhz": statistics.median(clocks) if clocks else None,
        "clock_min_mhz": min(clocks, default=None),
        "power_w": round(statistics.median(power), 1) if power else None,
        "temperature_c": max(seen("temperature"), default=None),
        "throttle": shares,
        "throttled": sorted(r for r, share in shares.items() if r in THROTTLED and share >= SHARE),
        "pcie_gen": max(seen("pcie_gen"), default=None),
        "pcie_width": max(seen("pcie_width"), default=None),
    }
