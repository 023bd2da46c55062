import dataclasses
import os

import pytest

from tests.unit import crashing_checks, helpers
from verify import child, runner
from verify.core import Check, Outcome, Status, fail, pass_, skip
from verify.machine import Machine


def made(name: str, **facts: object) -> Check:
    function = getattr(crashing_checks, name)
    base = Check(f"crash.{name}", "Title.", "Title.", function, (), "static", "image", True, 20.0)
    return dataclasses.replace(base, **facts)  # type: ignore[arg-type]


def calling(function: object, **facts: object) -> Check:
    return made("well", function=function, isolate=False, **facts)


@pytest.mark.parametrize(
    ("name", "ending", "words"),
    [
        ("segfault", "segfault", "segmentation fault"),
        ("abort", "abort", "134"),
        ("sticky", "sticky CUDA error", "an illegal memory access was encountered"),
        ("raises", "exception", "KeyError: 'clock'"),
        ("leaves", "exception", "SystemExit"),
        ("vanishes", "", "without an answer"),
        ("nothing", "exception", "AttributeError"),
    ],
)
def test_a_child_that_ends_badly_is_an_error_with_its_name(
    healthy: Machine, name: str, ending: str, words: str
) -> None:
    found = runner.run_one(made(name), healthy)
    assert found.status is Status.ERROR
    assert found.data["ending"] == ending
    assert words in found.message
    assert found.hint


def test_the_last_words_of_an_abort_are_reported(healthy: Machine) -> None:
    found = runner.run_one(made("abort"), healthy)
    assert "cudnnGetVersion" in found.data["output"]


def test_a_hanging_child_is_an_error(healthy: Machine) -> None:
    found = runner.run_one(made("hang", timeout=1.0), healthy)
    assert (found.status, found.data["ending"]) == (Status.ERROR, "hang")


@pytest.mark.parametrize(
    ("kills", "ending"), [((1, 2), "out of memory"), ((2, 2), "killed"), ((None, None), "out of memory")]
)
def test_a_kill_for_lack_of_memory_is_told_from_another(
    healthy: Machine, monkeypatch: pytest.MonkeyPatch, kills: tuple[int | None, int | None], ending: str
) -> None:
    counts = iter(kills)
    monkeypatch.setattr(child, "memory_kills", lambda: next(counts))
    found = runner.run_one(made("killed"), healthy)
    assert (found.status, found.data["ending"]) == (Status.ERROR, ending)


def test_a_child_answers_past_the_noise_and_sees_the_machine(healthy: Machine) -> None:
    found = runner.run_one(made("well"), healthy)
    assert (found.status, found.message) == (Status.PASS, "1 GPU.")
    assert found.data["pid"] != os.getpid()


def test_the_run_goes_on_after_each_bad_end(healthy: Machine) -> None:
    found = list(runner.run_all([made("segfault"), made("well"), made("abort"), made("well")], healthy))
    assert [r.status for r in found] == [Status.ERROR, Status.PASS, Status.ERROR, Status.PASS]


def test_after_a_sticky_error_in_this_process_the_rest_runs_in_children(healthy: Machine) -> None:
    checks = [made("well", isolate=False), made("sticky", isolate=False), made("well", isolate=False)]
    first, second, third = runner.run_all(checks, healthy)
    assert first.data["pid"] == os.getpid()
    assert second.data["ending"] == "sticky CUDA error"
    assert third.data["pid"] != os.getpid()


@pytest.mark.parametrize(
    "text", ["device-side assert triggered", "CUDA_ERROR_ILLEGAL_ADDRESS", "unspecified launch failure"]
)
def test_sticky_errors_are_known_by_their_text(text: str) -> None:
    assert runner.raised("RuntimeError", f"CUDA error: {text}", "").data["ending"] == "sticky CUDA error"


def test_out_of_memory_on_the_gpu_is_not_sticky() -> None:
    assert runner.raised("OutOfMemoryError", "CUDA out of memory. Tried to allocate", "").data["ending"] == "exception"


def test_in_process_an_exception_and_a_hang_are_errors(healthy: Machine) -> None:
    assert runner.run_one(made("raises", isolate=False), healthy).message.endswith("KeyError: 'clock'")
    assert runner.run_one(made("nothing", isolate=False), healthy).message.endswith("instead of an Outcome")
    assert runner.run_one(made("hang", isolate=False, timeout=0.2), healthy).data["ending"] == "hang"


def test_a_failure_without_a_hint_is_an_error(healthy: Machine) -> None:
    found = runner.run_one(calling(lambda m: fail("Broken.", hint="")), healthy)
    assert found.status is Status.ERROR
    assert "needs a hint" in found.message


def test_an_unmet_need_is_a_skip_with_the_reason() -> None:
    m = helpers.load("container-without-gpus")
    found = runner.run_one(calling(lambda m: pass_("?"), needs=("gpu",)), m)
    assert found.status is Status.SKIP
    assert "550.90.07" in found.message
    assert "--gpus all" in found.hint


def outcome(function: object, m: Machine, needs: tuple[str, ...], *require: str) -> Status:
    return runner.run_one(calling(function, needs=needs), m, require=require).status


def test_what_is_required_may_not_be_skipped(healthy: Machine) -> None:
    bare = helpers.load("container-without-gpus")
    assert outcome(lambda m: pass_("?"), bare, ("gpu",), "gpu") is Status.FAIL
    assert outcome(lambda m: skip("No."), healthy, ("gpu",), "gpu") is Status.FAIL
    assert outcome(lambda m: skip("No."), healthy, (), "gpu") is Status.SKIP
    assert outcome(lambda m: pass_("?"), bare, ("gpu",), "speed") is Status.SKIP


def test_one_gpu_where_two_are_needed_is_no_missing_gpu(healthy: Machine) -> None:
    assert outcome(lambda m: pass_("?"), healthy, ("gpu", "multi_gpu"), "gpu") is Status.SKIP
    assert outcome(lambda m: pass_("?"), healthy, ("multi_gpu",), "multi_gpu") is Status.FAIL


@pytest.mark.parametrize("status", [Status.UNRATED, Status.INCONCLUSIVE])
def test_a_required_speed_needs_a_verdict(healthy: Machine, status: Status) -> None:
    def measured(m: Machine) -> Outcome:
        return Outcome(status, "No limit for this card.")

    assert outcome(measured, healthy, (), "speed") is Status.FAIL
    assert outcome(measured, healthy, (), "gpu") is status
    assert runner.run_one(calling(measured), healthy, require=["speed"]).hint
