"""Statistics against simulated processes; every seed is fixed, so nothing here is a matter of luck."""

import math
import random
import statistics
from collections.abc import Callable

import pytest

from verify import stats
from verify.core import Status
from verify.stats import Interval

Draw = Callable[[random.Random], float]


def normal(made: random.Random) -> float:
    return made.gauss(1.0, 0.001)


def two_valued(made: random.Random) -> float:
    """One process in four lands 1 % higher, each tight in itself."""
    return made.gauss(1.0, 0.001) + (0.01 if made.random() < 0.25 else 0.0)


def heavy(made: random.Random) -> float:
    """Student's t with 2 degrees of freedom."""
    return 1 + 0.001 * made.gauss(0, 1) / math.sqrt(made.expovariate(1.0))


def coverage(draw: Draw, processes: int, truth: float, trials: int = 300) -> float:
    made, hits = random.Random(5), 0
    for trial in range(trials):
        groups = [[draw(made)] for _ in range(processes)]
        found = stats.median(groups, resamples=300, seed=trial)
        hits += found.low <= truth <= found.high
    return hits / trials


@pytest.mark.parametrize("processes", [3, 5, 7])
@pytest.mark.parametrize("draw", [normal, two_valued, heavy])
def test_95_per_cent_means_it(draw: Draw, processes: int) -> None:
    made = random.Random(1)
    # What the median of so many processes tends to: for two values that is not the mean.
    truth = statistics.median(statistics.median(draw(made) for _ in range(processes)) for _ in range(4001))
    assert coverage(draw, processes, truth) >= 0.90


def test_the_plain_percentile_interval_would_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stats, "widening", lambda *_: 1.0)
    assert coverage(normal, 3, 1.0) < 0.82


def pairs(made: random.Random, true: float, processes: int = 7, noise: float = 0.05) -> tuple[list, list]:
    """Eager and compiled times whose noise is shared by a pair, and whose process drifts as a whole."""
    eager, compiled = [], []
    for _ in range(processes):
        drift = made.gauss(1.0, 0.004)
        shared = [drift * (1 + abs(made.gauss(0, noise))) for _ in range(40)]
        eager.append([20 * s for s in shared])
        compiled.append([20 * s / true * made.gauss(1, 0.001) for s in shared])
    return eager, compiled


def test_a_paired_ratio_is_tighter_than_its_sides() -> None:
    eager, compiled = pairs(random.Random(2), 1.6)
    found, side = stats.ratio(eager, compiled), stats.median(compiled)
    assert found.low < 1.6 < found.high
    assert found.half_width < 0.005 < 3 * side.half_width
    assert found.half_width < side.half_width / 2


def test_pairs_stay_together_when_they_are_drawn() -> None:
    eager, compiled = pairs(random.Random(3), 1.2, processes=2, noise=0.3)
    made = random.Random(4)
    apart = [made.sample(group, len(group)) for group in compiled]
    assert stats.ratio(eager, compiled).half_width < stats.ratio(eager, apart).half_width / 3


def test_one_wild_process_does_not_move_the_figure() -> None:
    groups = [[1.0, 1.001, 0.999]] * 6
    assert stats.median([*groups, [9.0, 9.0, 9.0]]).value == pytest.approx(1.0, abs=0.002)


def test_the_same_seed_gives_the_same_interval() -> None:
    eager, compiled = pairs(random.Random(6), 1.4)
    assert stats.ratio(eager, compiled, seed=3) == stats.ratio(eager, compiled, seed=3)
    assert stats.ratio(eager, compiled, seed=3) != stats.ratio(eager, compiled, seed=4)


def test_values_without_spread_have_an_interval_without_width() -> None:
    assert stats.median([[2.0], [2.0], [2.0]]) == Interval(2.0, 2.0, 2.0)


def test_bounds_stay_positive_with_two_processes() -> None:
    found = stats.median([[1.0], [3.0]])
    assert 0 < found.low < 1 < 3 < found.high


@pytest.mark.parametrize(
    ("top", "bottom", "words"),
    [
        ([], [], "no process"),
        ([[1.0]], [[1.0], [1.0]], "1 processes on one side"),
        ([[]], [[1.0]], "without a value"),
        ([[0.0]], [[1.0]], "not a positive number"),
        ([[1.0]], [[float("nan")]], "not a positive number"),
        ([[float("inf")]], [[1.0]], "not a positive number"),
    ],
)
def test_what_is_no_measurement_is_refused(top: list, bottom: list, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        stats.ratio(top, bottom)


@pytest.mark.parametrize(
    ("low", "high", "better", "expected"),
    [
        (1.10, 1.20, "higher", Status.PASS),
        (1.11, 1.20, "higher", Status.PASS),
        (1.00, 1.09, "higher", Status.FAIL),
        (1.00, 1.20, "higher", Status.INCONCLUSIVE),
        (1.00, 1.10, "lower", Status.PASS),
        (1.11, 1.20, "lower", Status.FAIL),
        (1.00, 1.20, "lower", Status.INCONCLUSIVE),
        (float("nan"), 1.20, "higher", Status.INCONCLUSIVE),
    ],
)
def test_the_verdict_is_on_the_whole_interval(low: float, high: float, better: str, expected: Status) -> None:
    assert stats.judge(Interval((low + high) / 2, low, high), 1.10, better) is expected


@pytest.mark.parametrize(
    ("freedom", "expected"), [(1, 12.706), (2, 4.3027), (3, 3.1824), (4, 2.7764), (6, 2.4469), (30, 2.0423)]
)
def test_students_t_as_in_the_tables(freedom: int, expected: float) -> None:
    assert stats.students_t(0.975, freedom) == pytest.approx(expected, rel=0.002)


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"), [(0, 500, 0.0, 0.00763), (5, 10, 0.2366, 0.7634), (500, 500, 0.99237, 1.0)]
)
def test_wilson_as_in_the_tables(successes: int, trials: int, low: float, high: float) -> None:
    found = stats.share(successes, trials)
    assert (found.low, found.high) == (pytest.approx(low, abs=1e-4), pytest.approx(high, abs=1e-4))


def test_a_share_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="no trials"):
        stats.share(0, 0)
