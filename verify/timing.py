"""Paired timing on the GPU. Runs in a child process.

Every call starts behind a write that is larger than the L2 cache, and lies between two CUDA events. A spinning kernel
holds the GPU until the host has queued the call (the blocking kernel of NVBench): what is measured is the GPU's own
time. On an H200 without it the ratio of GPT-2's eager and compiled step spread by 9.5 % between processes, because the
host's speed was in it; with it by 0.37 %. What the host takes to queue a call is told beside it.
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
UNHELD = 3  # first calls that the GPU is not held for: they tell how long the host takes
MARGIN = 1.25  # the GPU is held that much longer than the host took
LONGEST_MS = 150.0  # it is never held longer


@dataclass(frozen=True)
class Warmth:
    """How the warm-up ended: calls of each closure, seconds, and whether the times had settled."""

    calls: int
    seconds: float
    converged: bool
    medians: Mapping[str, float]


def events_clock(host: dict[Call, list[float]] | None = None) -> Clock:
    """Milliseconds of GPU time of a call by CUDA events, behind a flush of the L2 cache.

    `host` is filled with the milliseconds that the host took to queue the first calls of each closure.
    """
    import torch

    l2 = getattr(torch.cuda.get_device_properties(torch.cuda.current_device()), "L2_cache_size", 0) or L2_BYTES
    buffer = torch.empty(max(FLUSH, 2 * l2) // 4, dtype=torch.int32, device="cuda")
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    queued = {} if host is None else host
    cycles = 0.0
    for _ in range(2):  # the first one loads the kernel
        start.record()
        torch.cuda._sleep(4_000_000)
        end.record()
        end.synchronize()
        cycles = 4_000_000 / start.elapsed_time(end)

    def once(call: Call) -> float:
        known = queued.setdefault(call, [])
        torch.cuda.synchronize()
        buffer.zero_()
        if len(known) >= UNHELD:
            torch.cuda._sleep(int(cycles * min(LONGEST_MS, 0.05 + MARGIN * min(known))))
        start.record()
        began = time.perf_counter()
        call()
        took_host = 1000 * (time.perf_counter() - began)
        end.record()
        end.synchronize()
        if len(known) < UNHELD:
            known.append(took_host)
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
