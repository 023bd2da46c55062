import io

import pytest

from tests.unit import speeds
from verify import core
from verify.core import Bench
from verify.speed import progress
from verify.speed.plan import COMPILED, START, Clock, clock_text, cost, grouped, plan

core.discover()
ALL = list(core.BENCHES.values())
QUICK = [b for b in ALL if b.quick]


def test_quick_and_full_fit_their_time() -> None:
    assert cost(QUICK, 3) <= 240
    assert cost(ALL, 7) <= 900


def test_without_a_budget_everything_is_run() -> None:
    assert plan(QUICK, full=False).processes == 3
    made = plan(ALL, full=True)
    assert (made.processes, made.left_out) == (7, ())
    assert sorted(i for ids in made.groups.values() for i in ids) == sorted(core.BENCHES)


def test_a_budget_takes_processes_first_and_then_what_is_not_quick() -> None:
    fewer = plan(ALL, full=True, budget_s=cost(ALL, 4) + 1)
    assert (fewer.processes, fewer.left_out) == (4, ())
    short = plan(ALL, full=True, budget_s=100)
    assert short.processes == 2
    kept = [core.BENCHES[i] for ids in short.groups.values() for i in ids]
    assert cost(kept, 2) <= 100
    assert sorted([*short.left_out, *(b.id for b in kept)]) == sorted(core.BENCHES)
    assert all(b.quick for b in kept)


def test_a_budget_too_small_for_anything_keeps_one() -> None:
    made = plan(QUICK, full=False, budget_s=1)
    assert sum(map(len, made.groups.values())) == 1


def test_benches_of_a_group_share_a_process() -> None:
    assert set(grouped(ALL)) == {"kernels", "diffusion", "resnet", "transformer"}


def test_the_remaining_time_learns_from_what_was_measured() -> None:
    name = "resnet.tf32_nchw"
    declared: Bench = core.BENCHES[name]
    clock = Clock()
    assert clock.process(core.BENCHES, [name]) == START + declared.seconds
    one = {"seconds": 2 * declared.seconds, "compile_s": 3.0, "cache": "warm"}
    learnt = clock.learn(core.BENCHES, {name: one})
    assert learnt.process(core.BENCHES, [name]) == START + 2 * declared.seconds
    other = core.BENCHES["transformer.gpt2_amp"]
    assert learnt.process(core.BENCHES, [other.id]) == START + 2 * other.seconds
    cold = clock.learn(core.BENCHES, {name: {"seconds": 60.0, "compile_s": 45.0, "cache": "cold"}})
    assert cold.process(core.BENCHES, [name]) == START + 15 + COMPILED
    assert clock.learn(core.BENCHES, {name: {"raised": "x"}}) == clock


@pytest.mark.parametrize(("seconds", "text"), [(125, "2:05"), (0.2, "0:00"), (-3, "0:00"), (3599.7, "60:00")])
def test_clock_text(seconds: float, text: str) -> None:
    assert clock_text(seconds) == text


def test_the_line_of_progress_fits_and_tells() -> None:
    text = progress.line("1/3 resnet", 50, 50, 70)
    assert " 50 %  about 0:50 left  1/3 resnet" in text
    assert len(progress.line("x" * 200, 1, 1, 60)) == 60
    assert " 0 %" in progress.line("x", 0, 0, 60)


def test_without_a_terminal_a_process_is_one_line() -> None:
    made = speeds.ratios(1.5, 1)[0]
    stream = io.StringIO()
    with progress.ticking(stream, "1/3 resnet", 0, 10, 10):
        pass
    assert stream.getvalue() == ""
    found = {"resnet.tf32_nchw": made, "gemm.fp8": {"not_here": "No."}, "gemm.fp16": {"raised": "KeyError"}}
    line = progress.finished("1/3 resnet", found, 12.0, 125)
    assert "tf32_nchw 9.0 (compile 3.1 warm)" in line
    assert "fp8 0.0 not here" in line
    assert "fp16 0.0 raised KeyError" in line
    assert line.endswith("about 2:05 left\n")
