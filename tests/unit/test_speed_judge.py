from typing import Any

import pytest

from tests.unit import speeds
from tests.unit.speeds import bench, kernels, ratios
from verify import core, limits
from verify.core import Outcome, Status
from verify.speed import judge as j

core.discover()
TABLE = limits.load(core.BENCHES)
RESNET = "resnet.tf32_nchw"


def verdict(ident: str, processes: list[dict[str, Any]]) -> Outcome:
    return j.judge(bench(ident), processes, TABLE)


@pytest.mark.parametrize(
    ("speedup", "status"), [(1.36, Status.PASS), (1.02, Status.FAIL), (1.0985, Status.INCONCLUSIVE)]
)
def test_a_speed_up_is_held_against_its_floor(speedup: float, status: Status) -> None:
    found = verdict(RESNET, ratios(speedup))
    assert found.status is status
    assert "at least 1.1 is asked" in found.message
    assert found.hint or status is Status.PASS
    assert found.data["limit"] == 1.10
    assert found.data["published"] == 1.36
    assert found.data["low"] <= found.data["value"] <= found.data["high"]


@pytest.mark.parametrize(("ms", "status"), [(8.0, Status.PASS), (12.0, Status.FAIL)])
def test_a_rate_shows_its_share_of_the_ceiling_at_the_measured_clock(ms: float, status: Status) -> None:
    found = verdict("gemm.bf16", kernels(ms))
    assert found.status is status
    assert found.data["ceiling"] == pytest.approx(114 * 2520e6 * 512 / 1e12)
    assert "2520 MHz measured" in found.data["ceiling_source"]
    assert "% of the ceiling 147.1" in found.message


def test_lower_is_better_for_a_time() -> None:
    assert verdict("gemm.square_15000", kernels(135.0)).status is Status.PASS
    slow = verdict("gemm.square_15000", kernels(500.0))
    assert (slow.status, "at most 0.38 is asked" in slow.message) == (Status.FAIL, True)


def test_an_unknown_card_is_measured_and_unrated_never_passed() -> None:
    found = verdict(RESNET, ratios(1.5, device={"name": "NVIDIA GeForce RTX 5090"}))
    assert found.status is Status.UNRATED
    assert "no limits are known for NVIDIA GeForce RTX 5090" in found.message
    assert found.data["value"] == pytest.approx(1.5, rel=0.01)


def test_another_torch_is_unrated_where_the_limit_depends_on_it() -> None:
    device = {"torch": "2.11.0+cu130"}
    assert "is for torch 2.8" in verdict(RESNET, ratios(1.02, device=device)).message
    assert verdict(RESNET, ratios(1.02, device=device)).status is Status.UNRATED
    assert verdict("gemm.bf16", kernels(12.0, device=device)).status is Status.FAIL


@pytest.mark.parametrize("speedup", [1.02, 1.5])
@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"card": {"others": ["pid 41 (900 MiB)"]}}, "Not alone on the card: pid 41"),
        ({"others": ["somebody who cannot be seen from here (97 % use)"]}, "Not alone on the card"),
        ({"card": {"throttled": ["hardware thermal slowdown"], "temperature_c": 91}}, "The card slowed itself down"),
        (
            {
                "card": {"throttle": {"software power cap": 0.9}},
                "fixed": {"power_limit_w": 200.0, "power_default_w": 425.0},
            },
            "power limit is set to 200 W of 425 W",
        ),
    ],
)
def test_a_disturbed_card_gives_no_verdict_and_is_named(speedup: float, facts: dict[str, Any], words: str) -> None:
    processes = [*ratios(speedup, 2), *ratios(speedup, 1, **facts)]
    if "fixed" in facts:
        processes = ratios(speedup, 3, **facts)
    found = verdict(RESNET, processes)
    assert found.status is Status.INCONCLUSIVE
    assert words in found.message
    assert found.hint
    if "Not alone" not in words:
        assert "nothing about the image" in found.message


def test_the_power_cap_alone_is_how_a_card_works() -> None:
    assert verdict(RESNET, ratios(1.5, card={"throttle": {"software power cap": 1.0}})).status is Status.PASS


@pytest.mark.parametrize("error", [0.5, float("nan")])
def test_a_wrong_output_fails_however_fast_it_is(error: float) -> None:
    found = verdict(RESNET, [*ratios(3.0, 2), *ratios(3.0, 1, errors={"gradient": [error, 0.02]})])
    assert found.status is Status.FAIL
    assert "The output is wrong" in found.message
    assert "gradient" in found.message


def test_one_process_cannot_tell_its_own_noise() -> None:
    found = verdict(RESNET, ratios(1.5, 1))
    assert (found.status, "own noise" in found.message) == (Status.INCONCLUSIVE, True)


def test_nothing_measured_is_no_pass() -> None:
    assert verdict(RESNET, []).status is Status.INCONCLUSIVE


def test_a_slow_run_that_had_not_settled_is_no_failure() -> None:
    found = verdict(RESNET, ratios(1.02, warm_up={"calls": 60, "seconds": 4.0, "converged": False}))
    assert (found.status, "not settled" in found.message) == (Status.INCONCLUSIVE, True)


def test_a_process_that_stopped_is_an_error_with_its_words() -> None:
    found = verdict(RESNET, [*ratios(1.5, 2), {"raised": "KeyError", "message": "'x'", "trace": "…"}])
    assert (found.status, "KeyError" in found.message) == (Status.ERROR, True)


def test_too_little_memory_is_named() -> None:
    found = verdict(RESNET, [{"raised": "OutOfMemoryError", "message": "CUDA out of memory. Tried", "trace": ""}])
    assert (found.status, "too little free memory" in found.message) == (Status.FAIL, True)


def test_what_cannot_run_here_is_skipped_with_the_reason() -> None:
    assert verdict("gemm.fp8", [{"not_here": "No fp8."}]) == Outcome(Status.SKIP, "No fp8.")


def test_samples_hold_one_value_a_process_and_all_raw_times() -> None:
    first, *raw = j.samples(bench(RESNET), ratios(1.5))
    assert (first.id, first.unit, len(first.values)) == (RESNET, "x", 3)
    assert first.values[0] == pytest.approx(1.5, rel=1e-3)
    assert {s.id: (s.unit, len(s.values)) for s in raw} == {
        f"{RESNET}:eager": ("ms", 33),
        f"{RESNET}:compiled": ("ms", 33),
    }
    assert raw[0].conditions["processes"] == [11, 11, 11]
    assert first.conditions["clock_mhz"] == 2520
    assert first.conditions["others"] == []
    assert first.conditions["tf32"] == "on"


@pytest.mark.parametrize(
    ("ident", "ms", "value"),
    [
        ("gemm.bf16", 10.0, 2 * 8192**3 / 0.01 / 1e12),
        ("memory.dram_copy", 2.0, 2 * (1 << 30) / 0.002 / 1e9),
        ("gemm.square_15000", 135.0, 0.135),
        ("launch.kernel", 0.004, 4.0),
        ("feed.loader", 10.0, 6400.0),
    ],
)
def test_units(ident: str, ms: float, value: float) -> None:
    assert j.figure(bench(ident), speeds.measured({"time": [ms]})) == pytest.approx(value)


def test_an_unwatched_card_has_no_clock_and_no_ceiling() -> None:
    bare = {"looks": 0, "clock_mhz": None}
    found = verdict("gemm.bf16", kernels(8.0, card=bare))
    assert found.status is Status.PASS
    assert found.data["ceiling"] is None


def test_a_slow_host_is_told_and_changes_no_verdict() -> None:
    processes = [{**p, "host_ms": {"eager": 90.0, "compiled": 1.0}} for p in speeds.ratios(1.4, 3)]
    plain, found = verdict("resnet.tf32_nchw", speeds.ratios(1.4, 3)), verdict("resnet.tf32_nchw", processes)
    assert (found.status, plain.status) == (Status.PASS, Status.PASS)
    assert "host-bound here: the host needs 90 ms to queue the eager call of 70.12 ms" in found.message
    assert "compiled call" not in found.message
    assert "host-bound" not in plain.message
    assert found.data["host_ms"] == {"eager": 90.0, "compiled": 1.0}
    assert found.data["value"] == plain.data["value"]
    assert j.samples(bench(RESNET), processes)[0].conditions["host_bound"].startswith("host-bound here")
