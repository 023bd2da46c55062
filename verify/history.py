"""Runs of many nights in one file: JSONL, one record a line, which a writer that is killed cannot spoil.

A record is a whole run, or the decision to measure against one from now on. Records are only ever appended, each by one
write under a lock, so the file also tells who the baseline was when. A line that was cut off is reported and skipped.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from verify.core import Run, UsageError
from verify.plain import finite
from verify.regression import Comparison, Verdict, alarm, compare, series

DEFAULT = "/workspace/output/verify/history.jsonl"
BASELINE = "baseline"
NO_TREND = Comparison(Verdict.INSUFFICIENT, None, "no baseline is accepted for this card")


@dataclass(frozen=True)
class Entry:
    """A run with its number in the file (from 1) and whether it is the baseline of its card now."""

    number: int
    run: Run
    baseline: bool = False
    comparisons: Mapping[str, Comparison] | None = None  # by sample id, None before a baseline was accepted
    alarms: tuple[str, ...] = ()  # sample ids slow in this night and the one before


@dataclass(frozen=True)
class History:
    """All runs, oldest first; `problems` says of each line that is no record where it is and why."""

    path: str
    entries: tuple[Entry, ...]
    baselines: tuple[tuple[int, int], ...] = ()  # (runs before the decision, number of the accepted run)
    problems: tuple[str, ...] = ()


def append(path: str, record: Run | Mapping[str, Any]) -> None:
    """Add one record, as a whole or not at all, and see it on the disk. UsageError when that is not possible."""
    data = finite(record.to_dict() if isinstance(record, Run) else record)
    line = json.dumps(data, default=str, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
    place = Path(path)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(place, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
    except OSError as error:
        raise UsageError(f"The history {path} cannot be written: {error.strerror}.") from error
    try:
        with suppress(OSError):  # a file system without locks; one write by O_APPEND is still whole
            fcntl.flock(handle, fcntl.LOCK_EX)
        size = os.fstat(handle).st_size
        if size and os.pread(handle, 1, size - 1) != b"\n":
            line = b"\n" + line  # a writer was killed here: its half line stays a line of its own
        try:
            if os.write(handle, line) != len(line):
                raise OSError(28, "no space left on the device")
            os.fsync(handle)
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(handle, size)
            raise UsageError(f"The history {path} cannot be written: {error.strerror}; it is as before.") from error
    finally:
        os.close(handle)


def read(path: str) -> History:
    """All that can be read of the file. UsageError when there is no such file."""
    try:
        raw = Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"The history {path} cannot be read: {error.strerror}.") from error
    entries, baselines, problems = list[Entry](), list[tuple[int, int]](), list[str]()
    for number, line in enumerate(raw.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            data = json.loads(line)
            if isinstance(data, dict) and BASELINE in data:
                accepted = int(data[BASELINE])
                if not 1 <= accepted <= len(entries):
                    raise ValueError(f"it accepts run {accepted}, which is not above it")
                baselines.append((len(entries), accepted))
            else:
                entries.append(Entry(len(entries) + 1, Run.from_dict(data)))
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            torn = line.startswith(b"{") and not line.rstrip().endswith(b"}")
            why = "cut off, its writer was ended" if torn else error
            problems.append(f"line {number} is no record and is left out: {why}")
    return History(path, tuple(entries), tuple(baselines), tuple(problems))


def card(run: Run) -> str:
    """The name of the first GPU, "" without one: a baseline holds for runs on the same card model."""
    gpus = run.machine.get("gpus") or [{}]
    return str(gpus[0].get("name", ""))


def find(history: History, name: str) -> Entry:
    """A run by its number, by "last", or by the beginning of its start time. UsageError when it is not one run."""
    if not history.entries:
        raise UsageError(f"The history {history.path} has no run.")
    if name == "last":
        return history.entries[-1]
    if name.isdigit() and len(name) < 4:
        found = [e for e in history.entries if e.number == int(name)]
    else:
        found = [e for e in history.entries if e.run.started.startswith(name)]
    if len(found) != 1:
        count = "no run" if not found else f"{len(found)} runs"
        raise UsageError(f"There is {count} {name!r} in {history.path}; `verify history` numbers them all.")
    return found[0]


def accept(history: History, name: str) -> Entry:
    """Make a run the baseline of its card from now on: nothing but this ever changes a baseline."""
    entry = find(history, name)
    if not entry.run.samples:
        raise UsageError(f"Run {entry.number} measured no speed, so it cannot be a baseline.")
    if not entry.run.ok():
        raise UsageError(f"Run {entry.number} did not pass, so it cannot be a baseline.")
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    append(history.path, {BASELINE: entry.number, "accepted": now})
    return entry


def figures(run: Run) -> dict[str, Any]:
    """Sample id → Series of what is compared: every primary figure, and the compiled time beside a speed-up."""
    return {s.id: series(s) for s in run.samples if ":" not in s.id or s.id.endswith(":compiled")}


def setting(run: Run, ident: str) -> dict[str, Any]:
    """How a sample was measured, as far as a difference forbids a comparison."""
    sample = next(s for s in run.samples if s.id == ident)
    return {k: sample.conditions[k] for k in ("amp", "tf32", "memory_format", "sdpa") if k in sample.conditions}


def against(baseline: Run, run: Run) -> dict[str, Comparison]:
    """Each figure of `run` that `baseline` also has, compared."""
    if card(baseline) != card(run):
        text = f"another card: {card(baseline) or 'none'} and {card(run) or 'none'}"
        return {ident: Comparison(Verdict.INSUFFICIENT, None, text) for ident in figures(run)}
    old, new, found = figures(baseline), figures(run), dict[str, Comparison]()
    for ident in new:
        if ident not in old:
            found[ident] = Comparison(Verdict.INSUFFICIENT, None, "the baseline did not measure it")
        elif (before := setting(baseline, ident)) != (after := setting(run, ident)):
            odd = ", ".join(f"{k} {before.get(k)} → {after.get(k)}" for k in after if before.get(k) != after[k])
            found[ident] = Comparison(Verdict.INSUFFICIENT, None, f"measured in another way: {odd}")
        else:
            found[ident] = compare(old[ident], new[ident])
    for ident in old.keys() - new.keys():
        found[ident] = Comparison(Verdict.INSUFFICIENT, None, "only the baseline measured it")
    return found


def judged(history: History, last: int = 30) -> History:
    """The newest `last` runs, each compared with the baseline of its card that held when it was added."""
    made, nights = list[Entry](), dict[tuple[int, str], list[Verdict]]()
    now = {card(history.entries[n - 1].run): n for _, n in history.baselines}
    for entry in history.entries[-last:]:
        name = card(entry.run)
        held = [n for before, n in history.baselines if before < entry.number and _same(history, n, name)]
        found, alarms = None, list[str]()
        if held and held[-1] != entry.number:
            found = against(history.entries[held[-1] - 1].run, entry.run)
            for ident, comparison in found.items():
                line = nights.setdefault((held[-1], ident), [])
                line.append(comparison.verdict)
                if alarm(line):
                    alarms.append(ident)
        is_baseline = now.get(name) == entry.number
        made.append(replace(entry, baseline=is_baseline, comparisons=found, alarms=tuple(alarms)))
    return replace(history, entries=tuple(made))


def _same(history: History, number: int, name: str) -> bool:
    return card(history.entries[number - 1].run) == name
