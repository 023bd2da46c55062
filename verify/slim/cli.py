"""`verify slim`: the command line, and the table of what was done."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from verify import audit, coverage
from verify.core import UsageError
from verify.slim import work
from verify.slim.manifest import File, Manifest
from verify.wording import some

MANIFEST = "slim.json"
Row = tuple[str, str, str, str, str, str]
DESCRIPTION = """\
Zero, in place, the GPU code that none of the targets runs: per fat binary what the driver would pick for each target
stays, lengths, offsets and headers too. A file of zeros compresses to nothing and is never read. Only packages whose
licence allows it are edited (torch, torchvision, torchaudio, xFormers, flash-attn, bitsandbytes, Triton); NVIDIA's
stay as they are, except for whole files that nothing needs. RECORD files are made true again; a manifest tells all.
"""


def add_parser(subparsers: Any) -> argparse.ArgumentParser:
    """Adds `slim` to the sub-commands."""
    made: argparse.ArgumentParser = subparsers.add_parser(
        "slim",
        help="take out the GPU code that no declared card runs",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _options(made)
    return made


def _options(made: argparse.ArgumentParser) -> None:
    text = "a site-packages, or the parts of one (default: this Python's)"
    made.add_argument("paths", nargs="*", type=Path, metavar="PATH", help=text)
    made.add_argument("--target", required=True, metavar="sm_NN[,…]", help="cards that the result has to run on")
    made.add_argument("--dry-run", action="store_true", help="change nothing, show what would be done")
    made.add_argument("--manifest", type=Path, metavar="F", help=f"where it is kept (default: PATH/{MANIFEST})")
    made.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """0 when all was done, 1 when a file could not be slimmed; UsageError on bad arguments."""
    started = time.monotonic()
    try:
        targets = [coverage.parse_target(name) for name in options.target.split(",")]
    except ValueError as error:
        raise UsageError(f"{error}; write --target sm_89, or --target sm_80,sm_89.") from error
    parts = tuple(path.resolve() for path in options.paths) or audit.default_roots()[:1]
    if missing := [path for path in parts if not path.is_dir()]:
        raise UsageError(f"{missing[0]} is not a folder; give a site-packages, or none for this Python's.")
    place = options.manifest or parts[0] / MANIFEST
    try:
        report = work.slim(parts, targets, place, dry_run=options.dry_run)
    except OSError as error:
        raise UsageError(f"{error.filename or place} cannot be written: {error.strerror}.") from error
    seconds = time.monotonic() - started
    print(table(report.manifest))
    for reason in report.failed:
        print(f"error: {reason}", file=sys.stderr)
    done = "nothing was changed (--dry-run)" if options.dry_run else f"{report.changed} files changed, manifest {place}"
    print(f"{done}; {seconds:.1f} s")
    return 1 if report.failed else 0


def megabytes(size: int | None) -> str:
    """10^6 bytes, "-" when not known."""
    return "-" if size is None else f"{size / 1e6:.1f}"


def table(manifest: Manifest) -> str:
    """Per library before and after, in MB (10^6 bytes); what was left out and what was left alone."""
    files, dropped = manifest.files, manifest.dropped
    rows = [("file", "size", "zeroed", "zstd before", "zstd after", "GPU code taken out")]
    rows += [_row(f.path, (f.size, sum(f.freed.values()), *_packed(f)), " ".join(f.freed)) for f in files]
    rows += [_row(d.path, (d.size, d.size, d.compressed, 0), f"left out: {d.why}") for d in dropped]
    packed = [_packed(f) for f in files] + [(d.compressed, 0) for d in dropped]
    before, after = (
        (None if None in column else sum(n or 0 for n in column) for column in zip(*packed, strict=True))
        if packed
        else (0, 0)
    )
    size = sum(f.size for f in files) + sum(d.size for d in dropped)
    freed = sum(sum(f.freed.values()) for f in files) + sum(d.size for d in dropped)
    rows.append(_row(f"{len(packed)} files for {', '.join(manifest.targets)}", (size, freed, before, after), ""))
    lines = _align(rows)
    alone: dict[str, list[str]] = {}
    for path, reasons in manifest.left_alone.items():
        for why in reasons[:3]:
            alone.setdefault(why, []).append(path)
    lines += [f"left alone: {some(paths)}: {why}" for why, paths in alone.items()]
    if manifest.untouched:
        lines.append(f"untouched packages: {some(manifest.untouched, 40)}")
    return "\n".join(lines)


def _packed(file: File) -> tuple[int | None, int | None]:
    return file.compressed_before, file.compressed_after


def _row(name: str, sizes: Sequence[int | None], text: str) -> Row:
    size, freed, before, after = (megabytes(number) for number in sizes)
    return name, size, freed, before, after, text


def _align(rows: Sequence[Row]) -> list[str]:
    first = max(len(row[0]) for row in rows)
    numbers = [max(len(row[i]) for row in rows) for i in range(1, 5)]
    return [
        f"{row[0]:{first}}  "
        + "  ".join(f"{row[i + 1]:>{width}}" for i, width in enumerate(numbers))
        + f"  {row[5]}".rstrip()
        for row in rows
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """`python -m verify.slim`, for the build of the image, which has no need of the other commands."""
    parser = argparse.ArgumentParser(prog="verify slim", description=DESCRIPTION)
    _options(parser)
    try:
        return run(parser.parse_args(argv))
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
