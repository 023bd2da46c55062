"""A Diagnosis of a text, of a machine, or of both: what is wrong, what is harmless, and what was looked at."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from verify.core import Result, Status
from verify.doctor import trouble
from verify.doctor.catalogue import ENTRIES
from verify.doctor.digest import Digest
from verify.doctor.entry import Finding
from verify.doctor.matcher import diagnose, finding, places, rank
from verify.machine import Machine

# Left out of the quick look: they import, compile or read gigabytes.
SLOW_FILES = ("imports", "binaries")
SLOW = ("compilers.torch_compile", "compilers.triton_compiles", "compilers.nvcc_compiles", "stack.runtime_libraries")
FINE, NAMED, UNKNOWN = 0, 1, 3
CHECK_LAYERS = {"container": "resources", "environment": "compile", "workspace": "resources", "compilers": "compile"}


@dataclass(frozen=True)
class Diagnosis:
    """`findings` are ranked, the first is the cause; `unknown` says what is wrong and not known, "" for nothing."""

    findings: tuple[Finding, ...] = ()
    harmless: tuple[Finding, ...] = ()
    unknown: str = ""
    looked: str = ""

    @property
    def code(self) -> int:
        """The exit code: 0 nothing wrong, 1 a cause is named, 3 something is wrong and is not known."""
        return NAMED if self.findings else UNKNOWN if self.unknown else FINE

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "schema": 1,
            "verdict": {FINE: "nothing wrong", NAMED: "cause named", UNKNOWN: "not known"}[self.code],
            "findings": [f.to_dict() for f in self.findings],
            "harmless": [f.to_dict() for f in self.harmless],
            "unknown": self.unknown,
            "looked_at": self.looked,
        }


def inside() -> bool:
    """Whether this runs in the image, so that a text given to it speaks of this machine."""
    from verify.probe import IMAGE

    return IMAGE.exists()


def of_text(log: Digest, facts: Machine | None = None) -> Diagnosis:
    """What a text tells."""
    found = diagnose(log, ENTRIES, facts)
    wrong = tuple(f for f in found if f.fault != "none")
    harmless = tuple(f for f in found if f.fault == "none")
    looked = f"{log.total} lines ({log.size} bytes) of text against {len(ENTRIES)} known failures"
    if facts is not None:
        looked += ", and the facts of " + ("the recorded machine" if facts.recorded else "this machine")
    if wrong:
        return Diagnosis(wrong, harmless, "", looked)
    spared = {i for f in harmless if f.entry for signature in f.entry.text for i, _ in places(log, signature)}
    return Diagnosis((), harmless, unknown(trouble.last(log, spared)), looked)


PYTHON = frozenset(
    (
        *("ArithmeticError", "AssertionError", "AttributeError", "EOFError", "FileExistsError", "FileNotFoundError"),
        *("ImportError", "IndentationError", "IndexError", "IsADirectoryError", "KeyError", "KeyboardInterrupt"),
        *(
            "LookupError",
            "ModuleNotFoundError",
            "NameError",
            "NotADirectoryError",
            "NotImplementedError",
            "OverflowError",
        ),
        *("RecursionError", "StopIteration", "SyntaxError", "SystemExit", "TabError", "TypeError", "UnboundLocalError"),
        *("UnicodeDecodeError", "UnicodeEncodeError", "ValueError", "ZeroDivisionError", "JSONDecodeError"),
        *("CalledProcessError", "TimeoutExpired", "ConnectionError", "ParserError", "ValidationError"),
    )
)


def unknown(last: trouble.Trouble | None) -> str:
    """One sentence for an error nobody listed; "" when there is none."""
    if last is None:
        return ""
    where = f", raised in {last.where}" if last.where else ""
    if last.kind in PYTHON:
        return (
            f"The text ends in {last.kind}{where}: as far as the text goes, that is an error of the program, not "
            "a failure of the GPU, the container or the stack."
        )
    if last.kind:
        return f"The text ends in {last.kind}{where}, which fits no failure known here."
    return f"Line {last.number} tells of an error that fits no failure known here."


def quick() -> list[Any]:
    """The static checks that answer within a second or so."""
    from verify import core

    checks = core.select(core.discover(), (), ("static",), ())
    return [c for c in checks if c.id not in SLOW and c.id.partition(".")[0] not in SLOW_FILES]


def of_machine(m: Machine, results: Iterable[Result] | None = None) -> Diagnosis:
    """What is wrong with a machine: entries whose facts are met, and failed checks that no entry covers."""
    from verify import runner

    checks = quick()
    if results is None:
        results = list(runner.run_all(checks, m))
    found = [
        finding(entry, None, None, seen) for entry in ENTRIES if entry.facts is not None and (seen := entry.facts(m))
    ]
    covered = {ident for f in found if f.entry for ident in f.entry.checks}
    failed, errors = [], []
    for result in results:
        if result.status is Status.FAIL and result.id not in covered:
            failed.append(of_check(result))
        elif result.status is Status.ERROR:
            errors.append(f"the check {result.id} gave no verdict ({result.message.rstrip('.')})")
    unread = [
        f"{name}: {why}"
        for name, why in m.problems.items()
        if name in ("driver", "toolkit", "python", "system", "container")
    ]
    doubt = [*errors, *unread]
    where = "the recorded machine" if m.recorded else "this machine"
    looked = f"the facts of {where}, {len(checks)} quick checks and {len(ENTRIES)} known failures"
    if not m.gpus and m.env.get("VERIFY_REQUIRE") == "none":
        looked += "; no GPU is expected (VERIFY_REQUIRE=none)"
    said = f"Something is wrong and is not known: {'; '.join(doubt)}." if doubt else ""
    return Diagnosis(tuple(rank([*found, *failed])), (), said, looked)


def of_check(result: Result) -> Finding:
    """A failed check as a finding: its message is the cause, its hint the fix."""
    layer = CHECK_LAYERS.get(result.id.partition(".")[0], "libraries")
    return Finding(result.id, result.title, layer, "stack", result.message, result.hint, confirmed=True)


def hint(text: str) -> str:
    """Cause and fix of the failure a text shows, "" when it is none of the stack's: for the hint of a check."""
    from verify.doctor import digest

    for found in of_text(digest.of(text)).findings:
        if found.fault == "stack":
            return f"{found.cause} {found.fix}"
    return ""


def machine_here(path: str | None) -> Machine:
    """The recorded machine in the file `path`, or this one."""
    from verify import machine

    return machine.load(path) if path else machine.read()
