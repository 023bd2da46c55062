"""`verify claims`: every published figure beside physics and beside what this machine measures."""

from __future__ import annotations

import argparse
import shutil
import sys
from typing import Any

from verify import machine, report
from verify.claims import judge, measure, render
from verify.claims.rows import CLAIMS
from verify.claims.texts import name_of
from verify.claims.worker import WORKS
from verify.commands.history import load
from verify.commands.run import put
from verify.core import UsageError
from verify.machine import Machine
from verify.signals import stoppable

DESCRIPTION = """\
Show every published claim about this stack on an RTX 4090 D: published, physics, measured here, verdict. Models are
built with random weights from their configurations and nothing is downloaded; speed and memory do not depend on values.
Compile speed-ups and the matrix product come from a report of `verify bench` (--from). About four minutes on one card.
A claim is no check: the exit code is 0 whatever the verdicts are.
"""


def add_parser(commands: Any) -> None:
    """Add `claims`."""
    made = commands.add_parser(
        "claims",
        help="published figures beside physics and what this machine measures",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("ids", nargs="*", metavar="ID", help="C1 to C18; none means all")
    made.add_argument("--from", dest="source", metavar="REPORT", help="take benchmarks and machine from this report")
    made.add_argument("--no-measure", action="store_true", help="measure nothing, show what is known")
    made.add_argument("--json", metavar="F", help="write the rows as JSON to F (- is stdout)")
    made.add_argument("--markdown", metavar="F", help="write the rows as a Markdown table to F (- is stdout)")
    made.add_argument("--quiet", "-q", action="store_true", help="no text and no progress")
    made.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """0; UsageError when a claim is not known or a file cannot be read or written."""
    known = {c.id: c for c in CLAIMS}
    ids = [i.upper() for i in options.ids]
    if unknown := [i for i in ids if i not in known]:
        raise UsageError(f"There is no claim {unknown[0]!r}; they are called C1 to C{len(CLAIMS)}.")
    targets = [p for p in (options.json, options.markdown) if p]
    if targets.count("-") > 1:
        raise UsageError("Only one report can go to stdout.")
    for path in targets:
        if path != "-":
            report.writable(path)
    source = load(options.source) if options.source else None
    here = Machine.from_dict(source.machine) if source else machine.read()
    facts = judge.from_run(source) if source else {}
    works = [] if options.no_measure else measure.wanted(ids)
    reasons = dict.fromkeys(measure.wanted(ids), "Left out by --no-measure.") if options.no_measure else {}
    took: dict[str, float] = {}
    if works and (reason := machine.read().unmet("gpu")):
        works, reasons = [], dict.fromkeys(works, reason)

    def before(work: str) -> None:
        if not options.quiet:
            print(f"measuring {work} (at most {WORKS[work][0]:.0f} s) …", file=sys.stderr, flush=True)

    if works:
        with stoppable():
            found, missing, took = measure.measure(works, before)
        facts, reasons = {**facts, **found}, {**reasons, **missing}
    rows, card = judge.rows(here, facts, reasons, ids), name_of(here)
    complaints = [put(render.as_json(rows, card, took), options.json)] if options.json else []
    complaints += [put(render.markdown(rows, card), options.markdown)] if options.markdown else []
    if not options.quiet:
        stream = sys.stderr if "-" in targets else sys.stdout
        width = max(60, min(100, shutil.get_terminal_size((100, 24)).columns))
        stream.write(render.text(rows, card, width))
        if took:
            stream.write(f"measured in {sum(took.values()):.0f} s\n")
    if complaints := [c for c in complaints if c]:
        raise UsageError(" ".join(complaints))
    return 0
