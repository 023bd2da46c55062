"""Runs the stages in their order, each once: what is done is not done again, and what fails says how to repeat it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace

from verify.core import UsageError
from verify.nightly import registry, stages, state, verdict
from verify.nightly.provenance import commit, locks
from verify.nightly.settings import Settings, checked, repeat
from verify.nightly.state import Night, Step
from verify.nightly.work import ROOT, Halted, Refused, Unchanged, Work
from verify.signals import Stopped, stoppable

STAGES: dict[str, Callable[[Work], Step]] = {
    "resolve": stages.resolve,
    "build": stages.build,
    "static": stages.static,
    "image-tests": stages.image_tests,
    "sbom": stages.bill,
    "provenance": stages.origin,
    "push": stages.push,
    "gpu": verdict.gpu,
    "speed": verdict.speed,
    "compare": verdict.compare,
    "sign": verdict.sign,
    "report": verdict.change_report,
    "promote": verdict.promote,
    "prune": verdict.prune,
}


def say(text: str) -> None:
    """One line for the person."""
    print(text, file=sys.stderr, flush=True)


def inputs(settings: Settings) -> dict[str, object]:
    """What makes two nights the same night."""
    return {
        "image": settings.image,
        "repository": settings.repository,
        "commit": commit(ROOT),
        "locks": locks(ROOT),
        "build": settings.build,
    }


def todo(night: Night, only: str) -> list[str]:
    """The stages that are left, or the one that was asked for; UsageError when one before it is not done."""
    names = list(STAGES)
    finished = [name for name in names if (s := night.steps.get(name)) and s.status in ("done", "skipped")]
    if not only:
        return names[len(finished) :] if finished == names[: len(finished)] else names
    missing = [name for name in names[: names.index(only)] if name not in finished]
    if missing:
        raise UsageError(f"The stage {only} cannot be repeated before {missing[0]} is done: leave --stage out.")
    return [only]


def one(settings: Settings, night: Night, stage: str) -> tuple[Night, int]:
    """Run one stage and write down how it ended: the night with it, and 0 to go on, else the exit code."""
    place = state.folder(settings.state, night)
    work = Work(settings, night, place, place / f"{stage}.log")
    work.note(f"--- {stage}, {state.now().isoformat(timespec='seconds')}")
    started, code, ended = time.monotonic(), 0, ""
    try:
        step = STAGES[stage](work)
    except Unchanged as why:
        step, code, ended = Step("done", str(why)), -1, "no change"
    except Refused as why:
        step, code, ended = Step("failed", str(why)), 1, "refused"
    except Halted as why:
        step, code = Step("stopped", str(why)), 2
    except (UsageError, OSError, Stopped) as why:
        text = "it was told to end" if isinstance(why, Stopped) else str(why)
        step, code = Step("failed", text), 2
    step = replace(step, seconds=round(time.monotonic() - started, 2))
    work.note(f"--- {step.status} after {step.seconds} s: {step.text}")
    night = replace(night.with_step(stage, step), ended=ended)
    state.save(settings.state, night)
    say(f"{stage:<12}{step.status:<9}{step.seconds:>8.1f} s  {step.text}")
    if code > 0:
        word = "stopped" if step.status == "stopped" else "failed"
        say(f"error: The stage {stage} {word}: {step.text}")
        say(f"  log: {work.log}\n  repeat this stage: {repeat(settings, stage)}")
    return night, code


def standing(settings: Settings) -> str:
    """What `latest` is now, in one sentence."""
    try:
        found = registry.manifest(registry.of(settings.repository), "latest")
    except UsageError:
        return "What latest is cannot be asked now."
    return f"latest is {found.digest}." if found else "There is no latest yet."


def run(settings: Settings, *, only: str = "", new: bool = False) -> int:
    """0 promoted, or nothing changed; 1 the image was refused; 2 no verdict. UsageError: the night did not begin."""
    checked(settings)
    with state.locked(settings.state), stoppable():
        try:
            night = state.at_hand(settings.state, inputs(settings), state.now())
            if new or (only and not night.steps and (last := state.load(settings.state)) is None):
                night = Night(state.now().isoformat(timespec="milliseconds"), inputs(settings))
            elif only and not night.steps and (last := state.load(settings.state)) is not None:
                night = replace(last, ended="")
            for stage in todo(night, only):
                night, code = one(settings, night, stage)
                if code:
                    say(standing(settings))
                    return max(code, 0)
            if not only or only == list(STAGES)[-1]:
                state.save(settings.state, replace(night, ended="promoted"))
        except OSError as error:
            raise UsageError(
                f"The state folder {settings.state} cannot be written ({error.strerror}); no tag was moved by this "
                "failure, and the same command goes on when there is room."
            ) from error
    say(standing(settings))
    return 0
