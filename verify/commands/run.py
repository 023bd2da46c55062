"""`verify run`: run checks, report, and give the verdict as the exit code."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any, TextIO

from verify import core, limits, machine, report, runner
from verify.core import ABOUT, NEEDS, TIERS, Check, Result, Run, UsageError
from verify.machine import Machine
from verify.report import RENDERERS, text
from verify.signals import Stopped, stoppable
from verify.speed import rounds

DEFAULT_TIERS = ("static", "gpu")
REQUIRABLE = (*NEEDS, "speed")

DESCRIPTION = """\
Run checks and report. Without IDs: the tiers static and gpu. An ID is a check (stack.lock) or a check file (stack);
what is named runs whatever its tier. --tier speed takes the quick benchmarks; `verify bench` has more to choose from.

What is skipped is not proven. --require NAME turns a skip for want of NAME into a failure, --require speed does the
same with a measurement that has no limit or no clear verdict. The default is $VERIFY_REQUIRE, else gpu inside the
image, else none. It is none, too, where a GPU is not meant to matter: with --tier static, with --about image (the
build of the image has no GPU) and with --machine (a record). --require none accepts every skip: the launcher on the
host passes it where the host has no GPU.
"""


def words(known: tuple[str, ...]) -> Callable[[str], list[str]]:
    """An argparse type: comma-separated words out of `known`."""

    def parse(given: str) -> list[str]:
        chosen = [w.strip() for w in given.split(",") if w.strip()]
        for word in chosen:
            if word not in known:
                raise argparse.ArgumentTypeError(f"{word!r} is not one of {', '.join(known)}")
        return chosen

    return parse


def add_parser(commands: Any) -> None:
    """Add `run`."""
    made = commands.add_parser(
        "run",
        help="run checks, report, and give the verdict as the exit code",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("ids", nargs="*", metavar="ID", help="a check or a check file; none means all of the tiers")
    made.add_argument("--tier", action="extend", type=words((*TIERS, "all")), metavar="T[,T]", help=", ".join(TIERS))
    made.add_argument("--about", action="extend", type=words(ABOUT), metavar="A[,A]", help="image, container, machine")
    made.add_argument(
        "--require", action="extend", type=words((*REQUIRABLE, "none")), metavar="N[,N]", help="gpu, speed, …, none"
    )
    for name in RENDERERS:
        made.add_argument(f"--{name}", metavar="F", help=f"write the {name} report to F (- is stdout)")
    made.add_argument("--machine", metavar="F", help="judge the machine recorded in F instead of this one")
    made.add_argument("--verbose", "-v", action="store_true", help="also say what each passed check found")
    made.add_argument("--quiet", "-q", action="store_true", help="no text report; the exit code and the files tell")
    made.add_argument("--no-progress", action="store_true", help="do not show what is running")
    made.set_defaults(run=run)


def requirements(options: argparse.Namespace, m: Machine) -> frozenset[str]:
    """What must not be skipped; see DESCRIPTION."""
    given = options.require
    if given is None and (text := os.environ.get("VERIFY_REQUIRE")):
        try:
            given = words((*REQUIRABLE, "none"))(text)
        except argparse.ArgumentTypeError as error:
            raise UsageError(f"VERIFY_REQUIRE: {error}.") from error
    if given is not None:
        return frozenset(given) - {"none"}
    without_gpu = options.tier == ["static"] or options.about == ["image"]
    return frozenset({"gpu"} if m.image and not m.recorded and not without_gpu else ())


def choose(options: argparse.Namespace) -> list[Check]:
    """The checks asked for; UsageError when there is none."""
    tiers = options.tier or (() if options.ids else DEFAULT_TIERS)
    chosen = core.select(core.discover(), options.ids, () if "all" in tiers else tiers, options.about or ())
    # Without a name the quick benchmarks stand for all of them.
    chosen = [c for c in chosen if options.ids or c.id not in core.BENCHES or core.BENCHES[c.id].quick]
    if not chosen:
        raise UsageError("No check is of these tiers and about these subjects; `verify list` shows them all.")
    return chosen


def progress(total: int, stream: TextIO) -> Callable[[Check], None]:
    """Tells what is running: one line that rewrites itself on a terminal, one line per check file elsewhere."""
    seen: list[str] = []

    def show(check: Check) -> None:
        file = check.id.partition(".")[0]
        if stream.isatty():
            line = f"  {len(seen) + 1}/{total} {check.id}"[: shutil.get_terminal_size().columns - 1]
            stream.write(f"\r\x1b[2K{line}")
        elif file not in seen[-1:]:
            stream.write(f"checking {file} …\n")
        seen.append(file)
        stream.flush()

    return show


def now() -> str:
    """The time as ISO 8601 in UTC, seconds."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def put(rendered: str, path: str) -> str:
    """Write one report; what went wrong, or ""."""
    if path == "-":
        sys.stdout.write(rendered)
        sys.stdout.flush()
        return ""
    try:
        report.write(path, rendered)
        return ""
    except UsageError as error:
        return str(error)


def publish(run: Run, targets: dict[str, str], quiet: bool, verbose: bool) -> None:
    """Write every report asked for, all of those that can be, then complain about those that could not."""
    complaints = [c for name, path in targets.items() if (c := put(RENDERERS[name](run), path))]
    if not quiet:
        stream = sys.stderr if "-" in targets.values() else sys.stdout
        width = min(100, shutil.get_terminal_size((80, 24)).columns)
        color = stream.isatty() and "NO_COLOR" not in os.environ
        shown = text.render(run, width=max(40, width), color=color, verbose=verbose)
        encoding = stream.encoding or "utf-8"
        stream.write(shown.encode(encoding, "replace").decode(encoding))
        stream.flush()
    if complaints:
        raise UsageError(" ".join(complaints))


def run(options: argparse.Namespace) -> int:
    """0 passed or warned, 1 failed, 128 + signal when cut short; UsageError when no verdict is possible."""
    targets = {name: getattr(options, name) for name in RENDERERS if getattr(options, name)}
    if list(targets.values()).count("-") > 1:
        raise UsageError("Only one report can go to stdout.")
    report.ready(targets)
    for path in targets.values():
        if path != "-":
            report.writable(path)
    checks = choose(options)
    benches = [c for c in checks if c.id in core.BENCHES]
    checks = [c for c in checks if c.id not in core.BENCHES]
    m, results, started, signalled = Machine(), [], now(), 0
    show = progress(len(checks), sys.stderr)
    quiet = options.quiet or options.no_progress
    # The handlers stay in place until the reports are written: a second Ctrl-C must not leave half of them.
    with stoppable():
        try:
            m = machine.load(options.machine) if options.machine else machine.read()
            require = requirements(options, m)
            for result in runner.run_all(checks, m, require=require, before=(lambda _: None) if quiet else show):
                results.append(result)  # noqa: PERF402 - what came before an interruption is kept
            if benches:
                session = rounds.Session(limits.load(core.BENCHES), None if quiet else sys.stderr)
                for result in rounds.results(benches, m, session, require=require):
                    results.append(result)  # noqa: PERF402
        except Stopped as cut:
            signalled = int(cut.args[0])
        if not quiet and sys.stderr.isatty():
            sys.stderr.write("\r\x1b[2K")
        done = finish(m, results, started, complete=not signalled)
        publish(done, targets, options.quiet, options.verbose)
    return 128 + signalled if signalled else int(not done.ok())


def finish(m: Machine, results: list[Result], started: str, *, complete: bool) -> Run:
    """The Run made of what there is."""
    kept, samples = rounds.lift(results)
    return Run(started, now(), complete, m.to_dict(), m.image, kept, samples)
