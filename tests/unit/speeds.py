"""Measurements as verify.speed.worker gives them, without a GPU."""

from __future__ import annotations

from typing import Any

from verify import core

CARD = {
    "looks": 40,
    "clock_mhz": 2520.0,
    "clock_min_mhz": 2500,
    "power_w": 400.0,
    "temperature_c": 62,
    "throttle": {},
    "throttled": [],
    "pcie_gen": 4,
    "pcie_width": 16,
    "others": [],
}
DEVICE = {
    "name": "NVIDIA GeForce RTX 4090 D",
    "sm": "sm_89",
    "sm_count": 114,
    "memory_gib": 23.6,
    "torch": "2.8.0+cu128",
}


def bench(ident: str) -> core.Bench:
    core.discover()
    return core.BENCHES[ident]


def measured(times: dict[str, list[float]], **facts: Any) -> dict[str, Any]:
    """One process; `card` and `device` are laid over a healthy 4090 D."""
    card = {**CARD, **facts.pop("card", {})}
    device = {**DEVICE, **facts.pop("device", {})}
    return {
        "times": times,
        "errors": {"output": [1e-4, 1e-2]},
        "flops": 2.0 * 8192**3,
        "bytes": 2.0 * (1 << 30),
        "items": 64.0,
        "item": "images",
        "conditions": {"amp": "off", "tf32": "on"},
        "compile_s": 3.1,
        "cache": "warm",
        "warm_up": {"calls": 8, "seconds": 0.4, "converged": True},
        "card": card,
        "device": device,
        "fixed": {"power_limit_w": 425.0, "power_default_w": 425.0},
        "others": [],
        "peak_gib": {"eager": 5.0},
        "first_call_s": {},
        "seconds": 9.0,
        **facts,
    }


def ratios(speedup: float, count: int = 3, **facts: Any) -> list[dict[str, Any]]:
    """Processes of a ratio benchmark that differ by a tenth of a per cent."""
    made = []
    for n in range(count):
        eager = [50.0 * speedup * (1 + 0.001 * n) + 0.01 * i for i in range(11)]
        made.append(measured({"eager": eager, "compiled": [50.0 + 0.01 * i for i in range(11)]}, **facts))
    return made


def kernels(ms: float, count: int = 3, **facts: Any) -> list[dict[str, Any]]:
    """Processes of a benchmark with one closure."""
    return [measured({"time": [ms * (1 + 0.001 * n + 0.0001 * i) for i in range(11)]}, **facts) for n in range(count)]
