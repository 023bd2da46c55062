"""`verify list`, `verify explain ID`, `verify machine`: what there is to check, and what was read."""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from typing import Any

from verify import core, machine
from verify.commands.run import words
from verify.core import ABOUT, TIERS, Check, UsageError


def add_parser(commands: Any) -> None:
    """Add `list`, `explain` and `machine`."""
    listing = commands.add_parser("list", help="list the checks")
    listing.add_argument("--tier", action="extend", type=words(TIERS), metavar="T[,T]", help=", ".join(TIERS))
    listing.add_argument("--about", action="extend", type=words(ABOUT), metavar="A[,A]", help=", ".join(ABOUT))
    listing.add_argument("--json", action="store_true", help="as JSON")
    listing.set_defaults(run=list_checks)
    explain = commands.add_parser("explain", help="say what a check proves, or what a known failure is")
    explain.add_argument("id", metavar="ID", help="a check, a check file, or a failure that `verify doctor` names")
    explain.set_defaults(run=explain_check)
    record = commands.add_parser(
        "machine", help="print every fact about this machine as JSON, for `verify run --machine F` elsewhere"
    )
    record.set_defaults(run=print_machine)


def plain(check: Check) -> dict[str, Any]:
    """A check as plain data."""
    return {
        "id": check.id,
        "title": check.title,
        "tier": check.tier,
        "about": check.about,
        "needs": list(check.needs),
        "isolate": check.isolate,
        "timeout": check.timeout,
    }


def list_checks(options: argparse.Namespace) -> int:
    """One line per check."""
    chosen = core.select(core.discover(), (), options.tier or (), options.about or ())
    if options.json:
        print(json.dumps([plain(c) for c in chosen], indent=1))
        return 0
    room = max((len(c.id) for c in chosen), default=0)
    for c in chosen:
        print(f"{c.id:<{room}}  {c.tier:<6}  {c.about:<9}  {c.title}")
    return 0


def explain_check(options: argparse.Namespace) -> int:
    """The whole docstring of a check and what it asks for, or what the doctor knows of a failure."""
    from verify.doctor import show
    from verify.doctor.catalogue import BY_ID

    if options.id in BY_ID:
        print(show.explain(BY_ID[options.id]), end="")
        return 0
    checks = core.discover()
    chosen = core.select(checks, [options.id], (), ())
    if not chosen:
        raise UsageError(f"There is no check called {options.id!r}.")
    for number, c in enumerate(chosen):
        head, _, rest = c.text.partition("\n\n")
        print(*([""] if number else []), c.id, sep="\n" if number else "")
        print(textwrap.fill(" ".join(head.split()), 78, initial_indent="  ", subsequent_indent="  "))
        if rest:
            print("\n" + textwrap.indent(textwrap.dedent("    " + rest.strip()), "  "))
        print(f"\n  tier {c.tier} · about the {c.about} · needs {', '.join(c.needs) or 'nothing'}")
        print(f"  runs {'in its own process' if c.isolate else 'in process'} for at most {c.timeout:g} s")
    return 0


def print_machine(_: argparse.Namespace) -> int:
    """JSON on stdout."""
    json.dump(machine.read().to_dict(), sys.stdout, indent=1, default=str)
    print()
    return 0
