"""The child's half without torch: warm-up, pairs, and what NVML's looks come to."""

import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from verify import timing
from verify.speed import watch


def scripted(times: list[float]) -> Callable[[Any], float]:
    left = list(times)
    return lambda call: left.pop(0) if len(left) > 1 else left[0]


def test_the_warm_up_ends_when_the_times_have_settled() -> None:
    clock = scripted([50.0, 30.0, 20.0, 12.0, 10.0, 10.0, 10.0, 10.0, 10.0, 10.0])
    found = timing.warm_up({"time": lambda: None}, clock, least_s=0.0, most_s=30.0)
    assert found.converged
    assert found.calls == 9
    assert found.medians == {"time": 10.0}


def test_times_that_never_settle_are_told() -> None:
    values = itertools.accumulate(itertools.repeat(1.0), lambda t, _: 1e-9 if t > 1e9 else t * 1.05)
    found = timing.warm_up({"time": lambda: None}, lambda _: next(values), least_s=0.0, most_s=0.05)
    assert not found.converged


def test_pairs_are_turned_round() -> None:
    seen: list[str] = []

    def clock(call: Callable[[], Any]) -> float:
        call()
        return 1.0

    calls = {name: (lambda name=name: seen.append(name)) for name in ("a", "b")}
    found = timing.timed(calls, clock, 3)
    assert seen == ["a", "b", "b", "a", "a", "b"]
    assert found == {"a": [1.0] * 3, "b": [1.0] * 3}


@pytest.mark.parametrize(("median", "count"), [(50.0, 20), (500.0, 11), (1.0, 40)])
def test_repeats_fit_the_time_within_bounds(median: float, count: int) -> None:
    warmth = timing.Warmth(6, 0.5, True, {"a": median, "b": median})
    assert timing.repeats(warmth, 2.0, 11, 40) == count


def test_the_wall_clock_waits_before_and_after() -> None:
    seen: list[str] = []
    took = timing.wall_clock(lambda: seen.append("wait"))(lambda: seen.append("call"))
    assert seen == ["wait", "call", "wait"]
    assert took >= 0


def look(**facts: Any) -> dict[str, Any]:
    base = {"clock": 2500, "power": 400.0, "temperature": 60, "throttle": [], "pcie_gen": 4, "pcie_width": 16}
    return {**base, **facts}


def test_looks_come_to_conditions() -> None:
    found = watch.summarise([look(), look(clock=2400, temperature=64), look(clock=None)])
    assert (found["clock_mhz"], found["clock_min_mhz"], found["temperature_c"], found["looks"]) == (2450, 2400, 64, 3)
    assert found["throttled"] == []


def test_a_power_cap_is_no_throttling_and_one_short_slowdown_neither() -> None:
    looks = [look(throttle=["software power cap"])] * 19 + [look(throttle=["hardware slowdown"])]
    assert watch.summarise(looks)["throttled"] == []
    assert watch.summarise([*looks[:3], *looks[-1:]])["throttled"] == ["hardware slowdown"]


def test_without_a_look_nothing_is_claimed() -> None:
    assert watch.summarise([]) == {"looks": 0}


class Nvml:
    """Answers of a card; no answer for anything else."""

    NVMLError = RuntimeError

    def __init__(self, pids: list[int], use: int) -> None:
        self.pids, self.use = pids, use

    def nvmlDeviceGetComputeRunningProcesses(self, _: object) -> list[Any]:
        return [SimpleNamespace(pid=p, usedGpuMemory=512 << 20) for p in self.pids]

    def nvmlDeviceGetUtilizationRates(self, _: object) -> Any:
        return SimpleNamespace(gpu=self.use)


def watched(pids: list[int], use: int = 0) -> watch.Watch:
    made = watch.Watch.__new__(watch.Watch)
    made.nv, made.card = Nvml(pids, use), object()
    return made


def test_company_is_seen_before_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch.time, "sleep", lambda _: None)
    assert watched([]).quiet(patience=0) == []
    assert watched([4242]).quiet(patience=0) == ["pid 4242 (512 MiB)"]
    assert watched([], use=97).quiet(patience=0) == ["somebody who cannot be seen from here (97 % use)"]


def test_this_process_under_a_number_of_the_host_is_no_company(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "holds_card", lambda: True)
    assert watched([4242]).others() == []
    assert len(watched([4242, 4243]).others()) == 1
    assert watched([watch.os.getpid()]).others() == []
    assert watched([watch.os.getpid(), 4242]).others() == ["pid 4242 (512 MiB)"]


def test_without_nvml_nothing_is_seen() -> None:
    made = watched([1])
    made.card = None
    assert (made.others(), made.quiet(), made.fixed()) == ([], [], {})
    with made.during() as looks:
        pass
    assert looks.summary() == {"looks": 0, "others": []}
