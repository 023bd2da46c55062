"""`verify audit`: which GPU code each library holds, and what that means for a card and a driver."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from verify import audit, coverage
from verify.core import UsageError

DEFAULT_TARGETS = ("sm_89",)
DEFAULT_DRIVER = "550.90.07"
_IMAGE = Path("/opt/verify/image.json")


def add_parser(subparsers: Any) -> argparse.ArgumentParser:
    """Adds `audit` to the sub-commands; its `run` default is the function to call with the arguments."""
    text = "list the GPU code in every library, and whether a card and driver can run it"
    parser: argparse.ArgumentParser = subparsers.add_parser("audit", help=text, description=text)
    parser.add_argument("paths", nargs="*", type=Path, help="folders to read (default: site-packages and the toolkit)")
    parser.add_argument("--target", metavar="sm_NN[,…]", help="cards to judge for (default: what the image declares)")
    parser.add_argument("--driver", metavar="VERSION", help="driver to judge for (default: what the image declares)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    parser.add_argument("--no-cache", action="store_true", help="read every file anew")
    parser.set_defaults(run=run)
    return parser


def run(arguments: argparse.Namespace) -> int:
    """0 when every library runs on every target without JIT, 1 when one does not. UsageError on bad arguments."""
    image = _declared()
    names = arguments.target.split(",") if arguments.target else image.get("targets") or DEFAULT_TARGETS
    driver = arguments.driver or image.get("driver") or DEFAULT_DRIVER
    try:
        targets = [coverage.parse_target(name) for name in names]
    except ValueError as error:
        raise UsageError(f"{error}; write --target sm_89.") from error
    isa = coverage.driver_isa(driver)
    if isa is None:
        raise UsageError(f"Driver {driver!r} is no driver version this program knows; write --driver {DEFAULT_DRIVER}.")
    if missing := [path for path in arguments.paths if not path.is_dir()]:
        raise UsageError(f"{missing[0]} is not a folder; give folders to read, or none for this Python's packages.")
    roots = tuple(arguments.paths) or audit.default_roots()
    cache = None if arguments.no_cache else audit.cache_file()
    inventory = audit.scan(roots, progress=progress_on(sys.stderr), cache=cache)
    verdicts = [verdict for target in targets for verdict in coverage.judge_all(inventory, target, isa)]
    if arguments.json:
        print(json.dumps(to_json(inventory, verdicts, driver), indent=1))
    else:
        print(render(inventory, verdicts, driver, isa))
    return 0 if all(clean(verdict) for verdict in verdicts) and not inventory.unreadable else 1


def clean(verdict: coverage.Verdict) -> bool:
    """Whether the library runs on the card with machine code alone."""
    return not (verdict.faults or verdict.refused or verdict.jit or verdict.library.problems)


def to_json(inventory: audit.Inventory, verdicts: list[coverage.Verdict], driver: str) -> dict[str, Any]:
    """The inventory with one list of verdicts; a verdict names its library by path."""
    rows = [
        {**{k: v for k, v in asdict(verdict).items() if k != "library"}, "path": verdict.library.path}
        for verdict in verdicts
    ]
    return {"driver": driver, "verdicts": rows, "inventory": inventory.to_json()}


def render(inventory: audit.Inventory, verdicts: list[coverage.Verdict], driver: str, isa: tuple[int, int]) -> str:
    """The table as text: one row per library and target, its faults below it."""
    width = max([len(v.library.name) for v in verdicts] + [7])
    lines = []
    for target in dict.fromkeys(v.target for v in verdicts):
        rows = [v for v in verdicts if v.target == target]
        lines.append(f"sm_{target}, driver {driver} (compiles PTX up to ISA {isa[0]}.{isa[1]})")
        for verdict in rows:
            lines.append(f"  {verdict.library.name:{width}}  {verdict.reach.value:24}  {contents(verdict.library)}")
            lines += [f"    ! {fault}" for fault in verdict.faults]
            lines += [f"    ! PTX too new for this driver: {refused}" for refused in verdict.refused]
            lines += [f"    ? {problem}" for problem in verdict.library.problems]
            if verdict.other_cards or verdict.note:
                reason = f": {verdict.note}" if verdict.note else ""
                lines.append(
                    f"      containers: {verdict.served} for it, {verdict.other_cards} for other cards{reason}"
                )
        bad = sum(not clean(v) for v in rows)
        lines.append(
            f"  {len(rows)} libraries, {bad} with a fault, {sum(v.jit for v in rows)} containers that need JIT"
        )
    lines += [f"not readable: {path}: {reason}" for path, reason in inventory.unreadable]
    lines.append(f"{inventory.files} ELF files read in {inventory.seconds:.1f} s, {inventory.cached} from the cache")
    return "\n".join(lines)


def contents(library: audit.Library) -> str:
    """What a library holds in one line: "SASS 70 75 80 90a | PTX 8.7 for 80"."""
    codes = {c for group in library.groups if not group.empty for c in group.codes if c.present}
    sass = sorted({(c.arch, c.variant) for c in codes if c.kind == "sass"})
    ptx: dict[str, set[tuple[int, str]]] = {}
    for code in codes:
        if code.kind == "ptx":
            version = f"{code.isa[0]}.{code.isa[1]}" if code.isa else "?"
            ptx.setdefault(version, set()).add((code.arch, code.variant))
    parts = ["SASS " + " ".join(f"{arch}{variant}" for arch, variant in sass)] if sass else []
    for version, archs in sorted(ptx.items()):
        parts.append(f"PTX {version} for " + " ".join(f"{arch}{variant}" for arch, variant in sorted(archs)))
    other = sorted({c.kind.upper() for c in codes} - {"SASS", "PTX"})
    return " | ".join(parts + other) or "no kernel"


def progress_on(stream: Any) -> Callable[[int, int, str], None] | None:
    """Shows files done on a terminal, at most ten times a second; None when the stream is no terminal."""
    if not stream.isatty():
        return None
    shown = [0.0]

    def show(done: int, total: int, name: str) -> None:
        now = time.monotonic()
        if done < total and now - shown[0] < 0.1:
            return
        shown[0] = now
        text = "" if done == total else f"reading {done}/{total} {name[:50]}"
        stream.write(f"\r\x1b[K{text}")
        stream.flush()

    return show


def _declared() -> dict[str, Any]:
    try:
        data = json.loads(_IMAGE.read_text())
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}
