"""`verify report`: one recorded run in another form, or one table for the runs of many nodes."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import shutil
import sys
from typing import Any

from verify import history, report
from verify.commands.history import load
from verify.commands.run import put
from verify.core import Run, UsageError
from verify.report import RENDERERS, html, text

DESCRIPTION = """\
Show recorded runs (what --json of `verify run` or `verify bench` wrote). One FILE: as text, or in the formats asked
for; --history adds the trend to the HTML page. Several FILES, one per node: one table, the worst node first.
Exit code 0 when the run, or every node's, passed, else 1.
"""
FLEET = "verify.report.fleet"


def add_parser(commands: Any) -> None:
    """Add `report`."""
    made = commands.add_parser(
        "report",
        help="show a recorded run in another form, or many nodes in one table",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("files", nargs="+", metavar="FILE", help="reports in JSON")
    for name in RENDERERS:
        made.add_argument(f"--{name}", metavar="F", help=f"write the {name} report to F (- is stdout)")
    made.add_argument("--history", metavar="H", help="the history whose trend the HTML page shows")
    made.add_argument("--verbose", "-v", action="store_true", help="in the text, also say what each passed check found")
    made.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """0 when all passed, 1 when not; UsageError when a file cannot be read or written."""
    targets = {name: getattr(options, name) for name in RENDERERS if getattr(options, name)}
    if list(targets.values()).count("-") > 1:
        raise UsageError("Only one report can go to stdout.")
    report.ready(targets)
    for path in targets.values():
        if path != "-":
            report.writable(path)
    if len(options.files) > 1:
        return fleet(options.files, targets)
    found = load(options.files[0])
    past = history.read(options.history) if options.history else None
    for name, path in targets.items():
        rendered = html.render(found, past) if name == "html" else RENDERERS[name](found)
        if complaint := put(rendered, path):
            raise UsageError(complaint)
    if not targets:
        color = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        width = max(40, min(100, shutil.get_terminal_size((80, 24)).columns))
        sys.stdout.write(text.render(found, width=width, color=color, verbose=options.verbose))
    return int(not found.ok())


def fleet(files: list[str], targets: dict[str, str]) -> int:
    """The table of many nodes, as text or Markdown."""
    if other := [name for name in targets if name != "markdown"]:
        raise UsageError(f"Many nodes can be shown as text or --markdown, not --{other[0]}; give one file for that.")
    if not importlib.util.find_spec(FLEET):
        raise UsageError("This verify cannot show many nodes in one table; give one file.")
    table = importlib.import_module(FLEET)
    nodes: list[tuple[str, Run | str]] = table.read(files)
    rendered: str = table.render(nodes, markdown="markdown" in targets)
    if complaint := put(rendered, targets.get("markdown", "-")):
        raise UsageError(complaint)
    return int(not table.ok(nodes))
