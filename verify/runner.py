"""Runs checks: in this process under a time limit, or in a child, and makes one Result of whatever happens."""

from __future__ import annotations

import json
import re
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from verify import child
from verify.core import Check, Outcome, Result, Status
from verify.machine import Machine

# Errors after which every further CUDA call of the process fails (CUDA run-time API, cudaError_t: "the process must be
# terminated and relaunched"). Both torch's wording and the driver's names.
STICKY = re.compile(
    r"an illegal memory access was encountered|device-side assert triggered|unspecified launch failure"
    r"|misaligned address|an illegal instruction was encountered|invalid program counter|hardware stack error"
    r"|operation not supported on global/shared address space|uncorrectable ECC error"
    r"|the launch timed out and was terminated"
    r"|CUDA_ERROR_(?:ILLEGAL_ADDRESS|ASSERT|LAUNCH_FAILED|MISALIGNED_ADDRESS|ILLEGAL_INSTRUCTION|LAUNCH_TIMEOUT)",
    re.IGNORECASE,
)


def unmet(check: Check, machine: Machine) -> tuple[str, str]:
    """The first need of `check` that `machine` does not meet, and why; ("", "") when all are met."""
    for need in check.needs:
        reason = machine.unmet(need)
        if reason:
            return need, reason
    return "", ""


def required(check: Check, outcome: Outcome, need: str, require: frozenset[str]) -> Outcome:
    """Turn what `require` does not accept into a failure: a required need that is missing, a speed without verdict."""
    if outcome.status is Status.SKIP:
        blamed = {need} if need else set(check.needs)
        if named := sorted(blamed & require):
            hint = outcome.hint or f"Fix the cause, or run without --require {named[0]} if this is meant."
            return replace(outcome, status=Status.FAIL, message=f"Required, but skipped: {outcome.message}", hint=hint)
    if "speed" in require and outcome.status in {Status.UNRATED, Status.INCONCLUSIVE}:
        hint = outcome.hint or "Run it again on an idle machine, or without --require speed."
        return replace(outcome, status=Status.FAIL, message=f"No speed verdict: {outcome.message}", hint=hint)
    return outcome


def run_one(check: Check, machine: Machine, *, require: Iterable[str] = (), isolate: bool = False) -> Result:
    """Run one check, whatever it does; `isolate` forces a child process."""
    started = time.monotonic()
    need, reason = unmet(check, machine)
    if need:
        outcome = Outcome(Status.SKIP, reason, machine.remedy(need), {"unmet": need})
    elif check.isolate or isolate:
        outcome = _in_child(check, machine)
    else:
        outcome = _in_process(check, machine)
    if outcome.status is Status.ERROR:
        outcome = explained(outcome)
    outcome = required(check, outcome, need, frozenset(require))
    seconds = round(time.monotonic() - started, 3)
    return Result(
        check.id,
        check.title,
        check.tier,
        check.about,
        outcome.status,
        outcome.message,
        outcome.hint,
        outcome.data,
        seconds,
    )


def run_all(
    checks: Iterable[Check],
    machine: Machine,
    *,
    require: Iterable[str] = (),
    before: Callable[[Check], None] = lambda _: None,
) -> Iterator[Result]:
    """Run `checks` in order. After a sticky CUDA error in this process the rest run in children, which start clean."""
    wanted, poisoned = frozenset(require), False
    for check in checks:
        before(check)
        result = run_one(check, machine, require=wanted, isolate=poisoned)
        poisoned = poisoned or result.data.get("ending") == "sticky CUDA error"
        yield result


def explained(outcome: Outcome) -> Outcome:
    """An error with the cause and the fix the doctor knows for its words, if it knows them."""
    from verify.doctor.diagnosis import hint

    said = "\n".join(str(outcome.data.get(name, "")) for name in ("trace", "output"))
    known = hint(f"{said}\n{outcome.message}")
    return replace(outcome, hint=known) if known else outcome


def raised(kind: str, text: str, trace: str) -> Outcome:
    """The outcome of a check that ended by an exception; a sticky CUDA error is told apart."""
    lines = [line for line in text.strip().splitlines() if line.strip()]
    first = lines[0].strip() if lines else "no text"
    if found := STICKY.search(text):
        return Outcome(
            Status.ERROR,
            f"The check left its process with a sticky CUDA error: {found[0]}.",
            "Look at the kernel named in the trace; every later CUDA call of that process would fail too.",
            {"ending": "sticky CUDA error", "raised": kind, "trace": trace[-child.TAIL :]},
        )
    return Outcome(
        Status.ERROR,
        f"The check itself stopped with {kind}: {first}",
        "This says nothing about the machine; the trace in the JSON report shows where it stopped.",
        {"ending": "exception", "raised": kind, "trace": trace[-child.TAIL :]},
    )


def _in_process(check: Check, machine: Machine) -> Outcome:
    """In a daemon thread, so that a system call that never returns (a dead network mount) costs one check only."""
    box: list[Outcome] = []

    def call() -> None:
        try:
            outcome: Any = check.function(machine)
            if not isinstance(outcome, Outcome):
                raise TypeError(f"it returned {type(outcome).__name__} instead of an Outcome")
            box.append(outcome)
        except BaseException as error:
            box.append(raised(type(error).__name__, str(error), traceback.format_exc()))

    thread = threading.Thread(target=call, name=check.id, daemon=True)
    thread.start()
    thread.join(check.timeout)
    return box[0] if box else _hang(check)


def _hang(check: Check) -> Outcome:
    return Outcome(
        Status.ERROR,
        f"The check gave no answer within {check.timeout:g} s.",
        "Something it asks hangs: a dead network mount, a wedged driver or a stopped process are the usual ones.",
        {"ending": "hang"},
    )


def _in_child(check: Check, machine: Machine) -> Outcome:
    order = {
        "module": check.function.__module__,
        "function": check.function.__name__,
        "machine": machine.to_dict(),
        "path": sys.path,
    }
    argv = [sys.executable, "-m", "verify.child"]
    ended = child.run(argv, timeout=check.timeout, env=child.environment(), stdin=json.dumps(order, default=str))
    return judge(check, ended)


HINTS = {
    "hang": "Something it asks hangs: a wedged driver, a dead network mount or a lock held by another process.",
    "out of memory": "Give the container more memory (docker run --memory) or stop what else runs in it.",
    "segfault": "A library crashed; the end of its output, in the JSON report, shows where.",
    "abort": "A library gave up; a foreign cuDNN on LD_LIBRARY_PATH is the usual cause.",
    "bus error": "Start the container with more shared memory: --shm-size=8g.",
}


def judge(check: Check, ended: child.Child) -> Outcome:
    """The outcome of a check that ran in a child process."""
    name, phrase = ended.ending
    said = child.last_answer(ended)
    data = {"ending": name, "output": ended.tail}
    if name:
        hint = HINTS.get(name, "The end of its output is in the JSON report.")
        words = ended.tail.strip().splitlines()[-1:] if name in {"abort", "exit"} else []
        last = f"; its last words: {words[0][:200]}" if words else ""
        return Outcome(Status.ERROR, f"The check's process ended by {phrase}{last}.", hint, data)
    if not isinstance(said, dict):
        return Outcome(
            Status.ERROR,
            f"The process of {check.id} ended without an answer.",
            "Its output is in the JSON report.",
            data,
        )
    if "raised" in said:
        return raised(said["raised"], said["message"], ended.stderr)
    return Outcome(Status(said["status"]), said["message"], said["hint"], said["data"])
