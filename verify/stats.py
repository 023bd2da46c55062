"""Placeholder with the final signatures; the real statistics replace this file."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from verify.core import Status


@dataclass(frozen=True)
class Interval:
    """A value with its bounds."""

    value: float
    low: float
    high: float


Groups = Sequence[Sequence[float]]


def ratio(a: Groups, b: Groups, *, confidence: float = 0.95, resamples: int = 2000, seed: int = 0) -> Interval:
    """Ratio of medians, processes resampled."""
    made = random.Random(seed)
    each = [statistics.median(x) / statistics.median(y) for x, y in zip(a, b, strict=True)]
    drawn = sorted(statistics.median(made.choices(each, k=len(each))) for _ in range(resamples))
    cut = int((1 - confidence) / 2 * resamples)
    return Interval(statistics.median(each), drawn[cut], drawn[-1 - cut])


def median(groups: Groups, *, confidence: float = 0.95, resamples: int = 2000, seed: int = 0) -> Interval:
    """Median of process medians."""
    return ratio(groups, [[1.0]] * len(groups), confidence=confidence, resamples=resamples, seed=seed)


def judge(interval: Interval, limit: float, better: str) -> Status:
    """PASS or FAIL when the whole interval is on one side of the limit."""
    good, bad = (interval.low, interval.high) if better == "higher" else (-interval.high, -interval.low)
    bound = limit if better == "higher" else -limit
    return Status.PASS if good >= bound else Status.FAIL if bad < bound else Status.INCONCLUSIVE
