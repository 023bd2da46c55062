"""Time and memory of a piece of work, on the GPU or, in a test, on the CPU. Child side."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

from verify import child

MISSING = "not installed here"


class NotHere(Exception):
    """The work cannot be done on this machine; the text says why."""


def sync(device: str) -> None:
    """Wait for what was launched."""
    if device == "cuda":
        import torch

        torch.cuda.synchronize()


def seconds(call: Callable[[], Any], repeats: int, device: str) -> float:
    """Wall time of one of `repeats` calls in a row, as a person with a watch sees it."""
    sync(device)
    started = time.perf_counter()
    for _ in range(repeats):
        call()
    sync(device)
    return (time.perf_counter() - started) / repeats


def fresh(device: str) -> None:
    """Give back what is not used and forget the peak so far."""
    gc.collect()
    if device == "cuda":
        import torch

        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def peak(device: str) -> tuple[float, float]:
    """(GB of tensors at most, GB taken from the driver at most) since `fresh`, 10^9 bytes; zeros on the CPU."""
    if device != "cuda":
        return 0.0, 0.0
    import torch

    return torch.cuda.max_memory_allocated() / 1e9, torch.cuda.max_memory_reserved() / 1e9


def out_of_memory(error: BaseException) -> bool:
    """Whether the GPU's memory was too small."""
    return type(error).__name__ == "OutOfMemoryError"


Found = dict[str, tuple[float | None, str, str]]


class Notes:
    """Collects the facts of one work and hands them up after each, so that a crash later loses none."""

    def __init__(self) -> None:
        self.facts: Found = {}

    def add(self, name: str, value: float | None, unit: str, note: str = "") -> None:
        """One fact."""
        self.facts[name] = (value, unit, note)
        child.answer({"facts": self.facts})
