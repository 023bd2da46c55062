"""Paired timing on the GPU. Runs in a child process.

Every call starts from an idle GPU behind a write that is larger than the L2 cache, and lies between two CUDA events.
The calls of a pair alternate (AB, BA, AB …), so that a drift of clock or temperature meets both alike.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Call = Callable[[], Any]
Clock = Callable[[Call], float]
L2_BYTES = 64 << 20  # where torch does not tell; flush with at least FLUSH bytes
FLUSH = 256 << 20
CONVERGED = 0.01  # medians of three calls that differ by less are the same
WINDOW = 3


@dataclass(frozen=True)
class Warmth:
    """How the warm-up ended: calls of each closure, seconds, and whether the times had settled."""

    calls: int
    seconds: float
    converged: bool
    medians: Mapping[str, float]


def events_clock() -> Clock:
    """Milliseconds of a call by CUDA events, behind a flush of the L2 cache."""
    import torch

    l2 = getattr(torch.cuda.get_device_properties(torch.cuda.current_device()), "L2_cache_size", 0) or L2_BYTES
    buffer = torch.empty(max(FLUSH, 2 * l2) // 4, dtype=torch.int32, device="cuda")
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def once(call: Call) -> float:
        torch.cuda.synchronize()
        # While the GPU writes this, the host already queues the call: the first launch costs no idle time.
        buffer.zero_()
        start.record()
        call()
        end.record()
        end.synchronize()
        took: float = start.elapsed_time(end)
        return took

    return once


def wall_clock(synchronize: Callable[[], Any] = lambda: None) -> Clock:
    """Milliseconds of a call by the host's clock."""

    def once(call: Call) -> float:
        synchronize()
        started = time.perf_counter()
        call()
        synchronize()
        return 1000 * (time.perf_counter() - started)

    return once


def settled(times: list[float], window: int = WINDOW) -> bool:
    """The median of the last `window` values is that of the `window` before them, within CONVERGED."""
    if len(times) < 2 * window:
        return False
    last, before = statistics.median(times[-window:]), statistics.median(times[-2 * window : -window])
    return abs(last - before) <= CONVERGED * before


def warm_up(calls: Mapping[str, Call], clock: Clock, *, least_s: float = 0.3, most_s: float = 4.0) -> Warmth:
    """Call until the times have settled, for `least_s` at least (clocks ramp up) and for about `most_s` at most."""
    history: dict[str, list[float]] = {name: [] for name in calls}
    started = time.monotonic()
    while True:
        for name, call in calls.items():
            history[name].append(clock(call))
        took = time.monotonic() - started
        done = all(settled(times) for times in history.values())
        if (done and took >= least_s) or took >= most_s:
            count = len(next(iter(history.values())))
            medians = {name: statistics.median(times[-WINDOW:]) for name, times in history.items()}
            return Warmth(count, round(took, 3), done, medians)


def repeats(warmth: Warmth, seconds: float, least: int, most: int) -> int:
    """How many pairs fit into `seconds`, between `least` and `most`."""
    pair = sum(warmth.medians.values()) / 1000
    return max(least, min(most, int(seconds / pair) if pair > 0 else most))


def timed(calls: Mapping[str, Call], clock: Clock, count: int) -> dict[str, list[float]]:
    """`count` times of each call in milliseconds, the order within a pair turned round each time."""
    names = list(calls)
    found: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(count):
        for name in names if turn % 2 == 0 else reversed(names):
            found[name].append(clock(calls[name]))
    return found
