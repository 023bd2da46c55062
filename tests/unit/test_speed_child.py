"""The child's half without torch: warm-up, pairs, and what NVML's looks come to."""

import itertools
import sys
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


class Card:
    """A pretended torch: every `_sleep` of 1000 cycles takes 1 ms on the GPU; events tell the GPU's time."""

    def __init__(self) -> None:
        self.now, self.held = 0.0, list[int]()
        card = self

        class Event:
            def __init__(self, enable_timing: bool = False) -> None:
                assert enable_timing
                self.at = 0.0

            def record(self) -> None:
                self.at = card.now

            def synchronize(self) -> None:
                pass

            def elapsed_time(self, other: "Event") -> float:
                return other.at - self.at

        self.cuda = SimpleNamespace(
            get_device_properties=lambda index: SimpleNamespace(L2_cache_size=50 << 20),
            current_device=lambda: 0,
            Event=Event,
            _sleep=self.sleep,
            synchronize=lambda: None,
        )
        self.int32 = "int32"

    def sleep(self, cycles: int) -> None:
        self.held.append(cycles)
        self.now += cycles / 1000

    def empty(self, size: int, dtype: str, device: str) -> SimpleNamespace:
        assert (4 * size, device) == (timing.FLUSH, "cuda")
        return SimpleNamespace(zero_=lambda: None)


def test_the_gpu_is_held_once_the_host_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    card, ticks = Card(), iter([0.0, 0.004, 0.0, 0.002, 0.0, 0.003, *([0.0] * 8)])
    monkeypatch.setitem(sys.modules, "torch", card)
    monkeypatch.setattr(timing.time, "perf_counter", lambda: next(ticks))
    host: dict = {}
    clock = timing.events_clock(host)
    card.held.clear()

    def call() -> None:
        card.now += 7.0

    assert [clock(call) for _ in range(timing.UNHELD)] == [7.0] * timing.UNHELD
    assert (card.held, host[call]) == ([], [4.0, 2.0, 3.0])
    assert clock(call) == 7.0  # without the time the GPU was held
    assert card.held == [int(1000 * (0.05 + timing.MARGIN * 2.0))]
    assert len(host[call]) == timing.UNHELD


def test_the_gpu_is_never_held_longer_than_the_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    card = Card()
    monkeypatch.setitem(sys.modules, "torch", card)
    call = lambda: None  # noqa: E731
    clock = timing.events_clock({call: [60_000.0] * timing.UNHELD})
    card.held.clear()
    clock(call)
    assert card.held == [int(1000 * timing.LONGEST_MS)]


def test_the_card_is_looked_at_even_when_it_is_over_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = {"clock": 1980, "power": 300.0, "temperature": 40, "throttle": []}
    monkeypatch.setattr(watch.load, "sample", lambda nv, card: looked)
    card = watch.Watch.__new__(watch.Watch)
    card.nv, card.card = None, "card"
    monkeypatch.setattr(watch.Watch, "others", lambda self: ["pid 7 (1 MiB)"])
    for _ in range(20):
        with card.during() as looks:
            pass
        found = looks.summary()
        assert found["looks"] >= 1
        assert (found["clock_mhz"], found["others"]) == (1980, ["pid 7 (1 MiB)"])
