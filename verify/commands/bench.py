"""`verify bench`: measure, hold against the card's limits, and propose limits for a card that has none."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from verify import core, limits, machine, report
from verify.commands.run import finish, now, publish, put, requirements
from verify.core import Check, Result, UsageError
from verify.machine import Machine
from verify.signals import Stopped, stoppable
from verify.speed import record, rounds, selftest

DESCRIPTION = f"""\
Measure the benchmarks (`verify list --tier speed`) in fresh processes and hold each figure against the limit of this
card. An ID is a benchmark (gemm.bf16) or a file (gemm). --quick (the default) takes a representative set and three
processes each, --full all and seven. A card without limits is measured and unrated; --require speed makes that a
failure.

`verify bench selftest` measures the method itself: GPT-2 training in some 50 fresh processes, some with a real extra
kernel of {", ".join(f"{100 * level:g}" for level in selftest.LEVELS)} % of the step. Raw times go to --json.
"""


def minutes(text: str) -> float:
    """An argparse type: a number of minutes above zero."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of minutes above zero")
    return value


def add_parser(commands: Any) -> None:
    """Add `bench`."""
    made = commands.add_parser(
        "bench",
        help="measure the speed of this card and of compiled code, and judge it by the card's limits",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("ids", nargs="*", metavar="ID", help="a benchmark or a file of them; or selftest")
    size = made.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="the representative set, 3 processes (the default)")
    size.add_argument("--full", action="store_true", help="all benchmarks, 7 processes")
    made.add_argument("--budget", type=minutes, metavar="MINUTES", help="measure what fits into so many minutes")
    made.add_argument("--limits", default="", metavar="FILE", help="lay the limits of FILE on top of the shipped ones")
    made.add_argument("--record", action="store_true", help="print limits made of what was measured, as TOML")
    made.add_argument(
        "--require", action="extend", type=lambda text: text.split(","), metavar="N[,N]", help="gpu, speed, none"
    )
    made.add_argument("--json", metavar="F", help="write the report with all raw times to F (- is stdout)")
    made.add_argument("--quiet", "-q", action="store_true", help="no text report and no progress")
    made.set_defaults(run=run, tier=["speed"], about=None)


def choose(ids: list[str], *, full: bool) -> list[Check]:
    """The benchmarks asked for: by id or file, else the quick set or all."""
    checks = core.discover()
    benches = {i: c for i, c in checks.items() if i in core.BENCHES}
    chosen = core.select(benches, ids, (), ())
    return chosen if ids or full else [c for c in chosen if core.BENCHES[c.id].quick]


def run(options: argparse.Namespace) -> int:
    """0 passed, unrated or inconclusive, 1 failed, 128 + signal when cut short; UsageError for no verdict."""
    for name in options.require or ():
        if name not in {"gpu", "speed", "torch", "none"}:
            raise UsageError(f"{name!r} cannot be required of benchmarks; gpu, speed, torch and none can.")
    if options.json and options.json != "-":
        report.writable(options.json)
    if options.record and options.json == "-":
        raise UsageError("Only one of --record and --json - can go to stdout.")
    if options.ids == ["selftest"]:
        return run_selftest(options)
    checks = choose(options.ids, full=options.full)
    table = limits.load(core.BENCHES, options.limits)
    m, found, started, signalled = Machine(), list[Result](), now(), 0
    budget = 60 * options.budget if options.budget else None
    deadline = time.monotonic() + budget if budget else None
    session = rounds.Session(table, None if options.quiet else sys.stderr, deadline)
    with stoppable():
        try:
            m = machine.read()
            wanted = requirements(options, m)
            for result in rounds.results(checks, m, session, full=options.full, budget_s=budget, require=wanted):
                found.append(result)
        except Stopped as cut:
            signalled = int(cut.args[0])
        done = finish(m, found, started, complete=not signalled)
        targets = {"json": options.json} if options.json else {}
        publish(done, targets, options.quiet or options.record, verbose=True)
        if options.record:
            sys.stdout.write(
                record.propose(done) or "# Nothing was measured undisturbed, so there is nothing to propose.\n"
            )
    return 128 + signalled if signalled else int(not done.ok())


def run_selftest(options: argparse.Namespace) -> int:
    """0 when every process measured, 1 otherwise."""
    if not options.json or options.json == "-":
        raise UsageError("`verify bench selftest` needs a file for its raw times: --json FILE.")
    m = machine.read()
    core.discover()
    for need in ("gpu", "torch"):
        if reason := m.unmet(need):
            raise UsageError(f"The self-measurement needs a GPU and torch: {reason}")
    made = selftest.run(options.json, minutes=options.budget or 5.5)
    put(selftest.table(made), "-")
    return int(not made["complete"] or any("raised" in p for p in made["processes"]))
