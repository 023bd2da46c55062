"""`verify history` and `verify compare`: how runs follow each other, and how two of them differ."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from verify import history
from verify.core import Run, UsageError
from verify.history import Entry, History
from verify.regression import Comparison, Verdict
from verify.report.group import verdict

COMPARE = """\
Compare the speed of two runs. A and B are reports (--json of `verify run` or `verify bench`), or runs of the history:
a number, "last", or the beginning of a start time.

SLOW and FAST need a gap between the two intervals, a change of at least 1 %, and the same in SM cycles (time x clock).
AMBIGUOUS says what is missing; INSUFFICIENT means that it cannot be compared. Exit code 1 when anything is SLOW.
"""
HISTORY = """\
Show the runs of the history and how each compares with the baseline of its card. A baseline changes only by
--accept-baseline. An alarm (exit code 1) is raised at the second slow night in a row, so one bad night is no alarm.
"""
MARK = {Verdict.SAME: "=", Verdict.SLOW: "▼", Verdict.FAST: "▲", Verdict.AMBIGUOUS: "?", Verdict.INSUFFICIENT: "–"}


def add_parser(commands: Any) -> None:
    """Add `compare` and `history`."""
    raw = argparse.RawDescriptionHelpFormatter
    place = os.environ.get("VERIFY_HISTORY") or history.DEFAULT
    made = commands.add_parser(
        "compare", help="compare the speed of two runs", description=COMPARE, formatter_class=raw
    )
    made.add_argument("a", metavar="A", help="the older run: a report, or a run of the history")
    made.add_argument("b", metavar="B", help="the newer run")
    made.add_argument("--history", metavar="F", default=place, help="where runs are looked up; default %(default)s")
    made.add_argument("--json", action="store_true", help="as JSON on stdout")
    made.set_defaults(run=run_compare)
    made = commands.add_parser(
        "history", help="show the runs so far and their trend", description=HISTORY, formatter_class=raw
    )
    made.add_argument(
        "file", nargs="?", metavar="FILE", default=place, help="default $VERIFY_HISTORY, else %(default)s"
    )
    made.add_argument("--add", metavar="REPORT", help="append a report before anything else")
    made.add_argument("--accept-baseline", metavar="RUN", help="from now on compare with this run")
    made.add_argument("--last", type=int, default=30, metavar="N", help="how many runs; default %(default)s")
    made.add_argument("--json", action="store_true", help="as JSON on stdout")
    made.set_defaults(run=run_history)


def load(path: str) -> Run:
    """A report by its path; UsageError says what is wrong with it."""
    try:
        return Run.from_dict(json.loads(Path(path).read_text(encoding="utf-8")))
    except OSError as error:
        raise UsageError(f"The report {path} cannot be read: {error.strerror}.") from error
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(f"The file {path} is not a report of verify: {error}.") from error


def named(name: str, place: str) -> Run:
    """A run by file name or, when there is no such file, out of the history."""
    if Path(name).exists() or "/" in name or name.endswith(".json"):
        return load(name)
    return history.find(history.read(place), name).run


def table(found: Mapping[str, Comparison]) -> list[str]:
    """One line per figure, what is slow first."""
    order = [Verdict.SLOW, Verdict.AMBIGUOUS, Verdict.FAST, Verdict.SAME, Verdict.INSUFFICIENT]
    room = max(map(len, found), default=0)
    rows = sorted(found.items(), key=lambda item: order.index(item[1].verdict))
    return [f"  {MARK[c.verdict]} {c.verdict!s:<13}{name:<{room}}  {c.reason}" for name, c in rows]


def counted(found: Mapping[str, Comparison]) -> str:
    """ "1 SLOW, 12 SAME"."""
    counts = [(v, sum(c.verdict is v for c in found.values())) for v in Verdict]
    return ", ".join(f"{n} {v}" for v, n in counts if n) or "nothing to compare"


def run_compare(options: argparse.Namespace) -> int:
    """0, or 1 when a figure is SLOW; UsageError when nothing was measured."""
    a, b = named(options.a, options.history), named(options.b, options.history)
    for name, run in ((options.a, a), (options.b, b)):
        if not run.samples:
            raise UsageError(f"The run {name} measured no speed; `verify bench --json F` makes one that did.")
    found = history.against(a, b)
    if options.json:
        print(json.dumps({name: asdict(c) for name, c in found.items()}, indent=1, ensure_ascii=False))
    else:
        print(f"{a.started} on {history.card(a) or 'no GPU'}  →  {b.started} on {history.card(b) or 'no GPU'}\n")
        print("\n".join(table(found)))
        print(f"\n{counted(found)}")
    return int(any(c.verdict is Verdict.SLOW for c in found.values()))


def line(entry: Entry) -> str:
    """One run: number, start, verdict, card, image, trend."""
    run = entry.run
    image = f"{run.image.get('name', 'image')} {run.image.get('version', '')}".strip() if run.image else "no image"
    if entry.baseline:
        trend = "baseline"
    elif entry.comparisons is None:
        trend = "no baseline yet" if run.samples else "no speed measured"
    else:
        trend = counted(entry.comparisons)
    cells = [f"{entry.number:>4}", run.started[:16].replace("T", " "), f"{verdict(run)[0]:<10}", f"{image:<26}"]
    return "  ".join([*cells, f"{history.card(run) or 'no GPU':<24}", trend])


def alarms(shown: History) -> list[str]:
    """What the newest run raises the alarm for."""
    return [f"ALARM  {name} was slow twice in a row" for name in (shown.entries[-1].alarms if shown.entries else ())]


def run_history(options: argparse.Namespace) -> int:
    """0, or 1 when the newest run raises an alarm."""
    if options.last < 1:
        raise UsageError("--last takes a number from 1 on.")
    if options.add:
        history.append(options.file, load(options.add))
    found = history.read(options.file)
    if options.accept_baseline:
        history.accept(found, options.accept_baseline)
        found = history.read(options.file)
    shown = history.judged(found, options.last)
    ringing = alarms(shown)
    if options.json:
        rows = [
            {
                "number": e.number,
                "started": e.run.started,
                "verdict": verdict(e.run)[0],
                "card": history.card(e.run),
                "baseline": e.baseline,
                "comparisons": None if e.comparisons is None else {n: asdict(c) for n, c in e.comparisons.items()},
                "alarms": e.alarms,
            }
            for e in shown.entries
        ]
        print(json.dumps({"runs": rows, "problems": found.problems}, indent=1, ensure_ascii=False))
    else:
        print("\n".join(line(e) for e in shown.entries) or "No run yet.")
        newest = shown.entries[-1] if shown.entries else None
        if newest and newest.comparisons:
            odd = {n: c for n, c in newest.comparisons.items() if c.verdict is not Verdict.SAME}
            if odd:
                print(f"\nRun {newest.number} against its baseline, without what is the same:")
                print("\n".join(table(odd)))
        for text in (*ringing, *(f"note: {p}" for p in found.problems)):
            print(text)
    return int(bool(ringing))
