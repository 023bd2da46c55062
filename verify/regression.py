"""Slower than before? Two sets of fresh processes are compared, and one bad night alone raises no alarm.

A verdict SLOW or FAST needs three things: the two intervals leave a gap, the change is larger than a practical margin,
and the same holds in SM cycles (time times clock). A card that merely ran at a lower clock is AMBIGUOUS, so that the
image is not blamed for it.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from verify import stats
from verify.core import Sample
from verify.stats import Groups, Interval

MARGIN = 0.01  # a change smaller than this is of no practical meaning
PROCESSES = 3  # fewer on a side cannot tell their own noise
TIMES = ("s", "ms", "us", "µs", "ns")


class Verdict(str, Enum):
    """What a comparison says of the newer side."""

    SAME = "SAME"
    SLOW = "SLOW"
    FAST = "FAST"
    AMBIGUOUS = "AMBIGUOUS"
    INSUFFICIENT = "INSUFFICIENT"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Series:
    """One figure of one run: raw values by fresh process, and the SM clock (MHz) of each process, None if unknown.

    `kind` says how a value turns into cycles: "time" (times clock), "rate" (by clock), "ratio" (no clock in it).
    """

    groups: tuple[tuple[float, ...], ...]
    kind: str
    better: str
    clocks: tuple[float | None, ...] = ()

    def cycles(self) -> Groups | None:
        """The values with the clock taken out; None when a clock is not known."""
        if self.kind == "ratio":
            return self.groups
        if len(self.clocks) != len(self.groups) or not all(self.clocks):
            return None
        factors = [float(c or 0) if self.kind == "time" else 1 / float(c or 1) for c in self.clocks]
        return [[v * f for v in group] for group, f in zip(self.groups, factors, strict=True)]


@dataclass(frozen=True)
class Comparison:
    """`change` is relative: 0.02 is 2 % more of the figure than the baseline, whether that is better or worse."""

    verdict: Verdict
    change: Interval | None
    reason: str


@dataclass(frozen=True)
class Shift:
    """How two sets of processes differ: the change with its interval, and whether their own intervals leave a gap."""

    change: Interval
    gap: bool


def series(sample: Sample) -> Series:
    """A Sample as a Series, one value per process: where there are `conditions["processes"]` many, their median.

    What a median inside a process wavers by is part of how processes differ, so it is not counted twice.
    """
    counts = sample.conditions.get("processes")
    values, groups = list(sample.values), list[tuple[float, ...]]()
    for count in counts if isinstance(counts, (list, tuple)) else [1] * len(values):
        groups.append((statistics.median(values[:count]),) if values[:count] else ())
        values = values[count:]
    kind = "ratio" if sample.unit in {"x", "×", ""} else "time" if sample.unit in TIMES else "rate"
    clocks = sample.conditions.get("clocks_mhz")
    if not isinstance(clocks, (list, tuple)) or len(clocks) != len(groups):
        clocks = [sample.conditions.get("clock_mhz")] * len(groups)
    return Series(tuple(groups), kind, sample.better, tuple(clocks))


def shift(baseline: Groups, current: Groups, *, confidence: float, resamples: int, seed: int) -> Shift:
    """The relative change of `current` against `baseline` with its interval."""
    old, old_draws = stats.locations(baseline, resamples=resamples, seed=seed)
    new, new_draws = stats.locations(current, resamples=resamples, seed=seed + 1)
    sizes = len(baseline), len(current)
    ranges = [
        stats.expand(value, draws, stats.widening(size, confidence), confidence)
        for value, draws, size in ((old, old_draws, sizes[0]), (new, new_draws, sizes[1]))
    ]
    factor = stats.widening(min(sizes), confidence, sum(sizes) - 2)
    ratio = stats.expand(new / old, [b / a for a, b in zip(old_draws, new_draws, strict=True)], factor, confidence)
    gap = ranges[0].high < ranges[1].low or ranges[1].high < ranges[0].low
    return Shift(Interval(ratio.value - 1, ratio.low - 1, ratio.high - 1), gap)


def compare(
    baseline: Series,
    current: Series,
    *,
    margin: float = MARGIN,
    confidence: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Comparison:
    """What `current` is against `baseline`. Never raises on odd values: they are INSUFFICIENT with the reason."""
    fewest = min(len(baseline.groups), len(current.groups))
    if fewest < PROCESSES:
        return Comparison(Verdict.INSUFFICIENT, None, f"{fewest} processes on one side, {PROCESSES} are needed")
    try:
        found = shift(baseline.groups, current.groups, confidence=confidence, resamples=resamples, seed=seed)
    except ValueError as error:
        return Comparison(Verdict.INSUFFICIENT, None, f"not measured properly: {error}")
    change = found.change
    text = f"{percent(change.value)} ({percent(change.low)} to {percent(change.high)})"
    if not found.gap or abs(change.value) < margin:
        if -margin < change.low and change.high < margin:
            return Comparison(Verdict.SAME, change, f"{text}, within ±{100 * margin:g} %")
        why = "the intervals touch" if not found.gap else "the noise is wider than the margin"
        if abs(change.value) < margin:
            why = f"no change of {100 * margin:g} % is shown, and none is excluded"
        return Comparison(Verdict.AMBIGUOUS, change, f"{text}: {why}")
    ours, theirs = baseline.cycles(), current.cycles()
    if ours is None or theirs is None:
        return Comparison(Verdict.AMBIGUOUS, change, f"{text}, but no SM clock was recorded to rule out a slower card")
    counted = shift(ours, theirs, confidence=confidence, resamples=resamples, seed=seed)
    more = counted.change.value
    if not counted.gap or abs(more) < margin or (more > 0) != (change.value > 0):
        return Comparison(Verdict.AMBIGUOUS, change, f"{text}, but {percent(more)} in SM cycles: the clock changed")
    slower = (change.value > 0) == (current.better == "lower")
    return Comparison(Verdict.SLOW if slower else Verdict.FAST, change, f"{text}, in SM cycles too")


def percent(value: float) -> str:
    """0.0123 → "+1.23 %"."""
    return f"{100 * value:+.2f} %"


def alarm(verdicts: Iterable[Verdict | str]) -> bool:
    """True when the newest two nights that measured anything are both SLOW; oldest first, INSUFFICIENT is no night."""
    counted: Sequence[str] = [str(v) for v in verdicts if str(v) != Verdict.INSUFFICIENT.value]
    return len(counted) >= 2 and all(v == Verdict.SLOW.value for v in counted[-2:])
