"""Comparisons of two runs; every seed is fixed."""

import random

import pytest

from verify import regression
from verify.core import Sample
from verify.regression import Series, Verdict, alarm, compare, series


def timed(factor: float = 1.0, *, clock: float | None = 1980.0, processes: int = 5, seed: int = 1) -> Series:
    """Times around 20 ms x factor: 0.2 % between processes, 0.5 % inside one."""
    made = random.Random(seed)
    centres = [20 * factor * made.gauss(1, 0.002) for _ in range(processes)]
    groups = tuple(tuple(c * made.gauss(1, 0.005) for _ in range(40)) for c in centres)
    return Series(groups, "time", "lower", (clock,) * processes)


def rated(factor: float = 1.0, *, clock: float = 2520.0, seed: int = 1) -> Series:
    made = random.Random(seed)
    return Series(tuple((150 * factor * made.gauss(1, 0.002),) for _ in range(5)), "rate", "higher", (clock,) * 5)


def test_the_same_program_is_the_same() -> None:
    found = compare(timed(), timed(seed=2))
    assert found.verdict is Verdict.SAME, found.reason
    assert found.change is not None
    assert found.change.low < 0 < found.change.high


@pytest.mark.parametrize(("factor", "verdict"), [(1.03, Verdict.SLOW), (0.97, Verdict.FAST)])
def test_three_per_cent_are_seen_in_a_time(factor: float, verdict: Verdict) -> None:
    found = compare(timed(), timed(factor, seed=2))
    assert found.verdict is verdict, found.reason
    assert found.change is not None
    assert found.change.value == pytest.approx(factor - 1, abs=0.006)


@pytest.mark.parametrize(("factor", "verdict"), [(0.95, Verdict.SLOW), (1.05, Verdict.FAST)])
def test_a_rate_is_slow_when_it_falls(factor: float, verdict: Verdict) -> None:
    assert compare(rated(), rated(factor, seed=2)).verdict is verdict


def test_a_card_with_a_lower_clock_is_not_blamed_on_the_image() -> None:
    found = compare(timed(clock=1980), timed(1.05, clock=1980 / 1.05, seed=2))
    assert found.verdict is Verdict.AMBIGUOUS
    assert "in SM cycles: the clock changed" in found.reason
    assert compare(rated(), rated(0.9, clock=2520 * 0.9, seed=2)).verdict is Verdict.AMBIGUOUS


def test_a_slowdown_that_a_higher_clock_does_not_hide_needs_both() -> None:
    # 3 % more time at a 3 % higher clock is 6 % more cycles: slow. At a lower clock by as much: the clock alone.
    assert compare(timed(clock=1900), timed(1.03, clock=1957, seed=2)).verdict is Verdict.SLOW


def test_without_a_clock_nothing_is_blamed() -> None:
    found = compare(timed(), timed(1.05, clock=None, seed=2))
    assert (found.verdict, "no SM clock" in found.reason) == (Verdict.AMBIGUOUS, True)


def test_a_ratio_has_no_clock_in_it() -> None:
    made = random.Random(3)
    old = Series(tuple((made.gauss(1.6, 0.001),) for _ in range(5)), "ratio", "higher")
    new = Series(tuple((made.gauss(1.55, 0.001),) for _ in range(5)), "ratio", "higher")
    assert compare(old, new).verdict is Verdict.SLOW


def test_a_change_too_small_to_matter_is_the_same_however_clear() -> None:
    made = random.Random(4)
    old = Series(tuple((made.gauss(1.0, 0.0001),) for _ in range(5)), "ratio", "higher")
    new = Series(tuple((made.gauss(0.996, 0.0001),) for _ in range(5)), "ratio", "higher")
    assert compare(old, new).verdict is Verdict.SAME


def test_noise_wider_than_the_margin_is_ambiguous() -> None:
    made = random.Random(5)
    noisy = [Series(tuple((made.gauss(1.0, 0.03),) for _ in range(5)), "ratio", "higher") for _ in range(2)]
    assert compare(*noisy).verdict is Verdict.AMBIGUOUS


def test_two_processes_are_not_enough() -> None:
    found = compare(timed(processes=2), timed())
    assert (found.verdict, found.change) == (Verdict.INSUFFICIENT, None)
    assert "2 processes" in found.reason


@pytest.mark.parametrize("bad", [0.0, float("nan"), -1.0])
def test_a_value_that_is_no_time_is_insufficient(bad: float) -> None:
    odd = Series(((1.0,), (bad,), (1.0,)), "time", "lower", (1.0,) * 3)
    found = compare(timed(), odd)
    assert (found.verdict, "not a positive number" in found.reason) == (Verdict.INSUFFICIENT, True)


def test_false_alarms_are_rare_though_processes_have_two_speeds() -> None:
    made, wrong = random.Random(6), 0

    def night() -> Series:
        speeds = [made.gauss(20, 0.04) * (1.01 if made.random() < 0.25 else 1) for _ in range(5)]
        return Series(tuple((s,) for s in speeds), "time", "lower", (1980.0,) * 5)

    for trial in range(200):
        verdict = compare(night(), night(), resamples=300, seed=trial).verdict
        wrong += verdict in {Verdict.SLOW, Verdict.FAST}
    assert wrong <= 2


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ([], False),
        (["SLOW"], False),
        (["SLOW", "SLOW"], True),
        (["SLOW", "SAME", "SLOW"], False),
        (["SLOW", "INSUFFICIENT", "SLOW"], True),
        (["SLOW", "AMBIGUOUS", "SLOW"], False),
        (["SLOW", "SLOW", "SAME"], False),
        (["SAME", Verdict.SLOW, Verdict.SLOW], True),
        (["FAST", "FAST"], False),
    ],
)
def test_the_alarm_is_raised_at_the_second_bad_night(verdicts: list, expected: bool) -> None:
    assert alarm(verdicts) is expected


def test_a_sample_is_cut_into_its_processes() -> None:
    found = series(Sample("a:time", "ms", "lower", (1.0, 2.0, 3.0), {"processes": [2, 1], "clocks_mhz": [5, 6]}))
    assert found == Series(((1.5,), (3.0,)), "time", "lower", (5, 6))
    one = series(Sample("a", "TFLOP/s", "higher", (1.0, 2.0), {"clock_mhz": 7}))
    assert one == Series(((1.0,), (2.0,)), "rate", "higher", (7, 7))
    assert series(Sample("a", "x", "higher", (1.0,), {})).kind == "ratio"
    assert regression.percent(0.0123) == "+1.23 %"
