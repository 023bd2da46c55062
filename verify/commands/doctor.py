"""`verify doctor`: the cause of a failure and its fix, from a text, from this machine, or from both."""

from __future__ import annotations

import argparse
import io
import json
import os
import select
import shutil
import stat
import sys
from typing import Any, BinaryIO

from verify.core import UsageError

DESCRIPTION = """\
Name the cause of a failure and its fix. With a text (FILE, or what comes on stdin: a traceback, a log) from the text;
inside the image also from the facts of this machine. Without a text: look at this machine and print only what is
wrong. A text that takes longer than 3 s to begin needs `verify doctor -`.

Exit codes: 0 nothing wrong, 1 a cause is named, 3 something is wrong and is not known (what was looked at is said),
2 bad arguments.
"""
PATIENCE = 3.0  # seconds a silent pipe is waited for


def add_parser(commands: Any) -> None:
    """Add `doctor`."""
    made = commands.add_parser(
        "doctor",
        help="name the cause of a failure and its fix, from a text or from this machine",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("file", nargs="?", metavar="FILE", help="a traceback or a log; - is stdin")
    made.add_argument("--json", action="store_true", help="as JSON on stdout")
    made.add_argument("--machine", metavar="F", help="judge by the machine recorded in F, not by this one")
    made.set_defaults(run=run)


def given(name: str | None, stdin: Any) -> BinaryIO | None:
    """The text that was given, None when there is none; UsageError says what is wrong with the file."""
    if name not in (None, "-"):
        try:
            if os.path.isdir(str(name)):
                raise UsageError(f"{name} is a folder; give a log or a traceback in a file.")
            return open(str(name), "rb")
        except OSError as error:
            raise UsageError(f"The text {name} cannot be read: {error.strerror}.") from error
    if stdin is None or stdin.closed:
        return None
    if name == "-":
        waited: BinaryIO = stdin.buffer
        return waited
    return first_bytes(stdin)


def first_bytes(stdin: Any) -> BinaryIO | None:
    """stdin when something comes on it: not a terminal, not empty, not a pipe that stays silent."""
    try:
        mode = os.fstat(stdin.fileno()).st_mode
        if stdin.isatty():
            return None
        if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
            ready, _, _ = select.select([stdin.fileno()], [], [], PATIENCE)
            if not ready:
                note = (
                    f"no text came on stdin within {PATIENCE:g} s, this machine is looked at; `verify doctor -` waits"
                )
                print(f"note: {note}.", file=sys.stderr)
                return None
    except (OSError, ValueError, io.UnsupportedOperation):
        pass  # a stand-in for stdin that is no file of the system
    stream: BinaryIO = stdin.buffer if hasattr(stdin, "buffer") else io.BytesIO(stdin.read().encode())
    return stream


def run(options: argparse.Namespace) -> int:
    """Print the diagnosis; its exit code."""
    from verify.doctor import diagnosis, digest, show

    stream = given(options.file, sys.stdin)
    log = None
    if stream is not None:
        try:
            log = digest.read(stream)
        except OSError as error:
            if options.file:
                raise UsageError(f"The text cannot be read: {error.strerror or error}.") from error
        finally:
            if options.file not in (None, "-"):
                stream.close()
    if log is not None and not any(line.strip() for line in log.lines):
        if options.file not in (None, "-"):
            raise UsageError(f"The text {options.file} is empty.")
        log = None
    if log is None:
        found = diagnosis.of_machine(diagnosis.machine_here(options.machine))
    else:
        known = diagnosis.machine_here(options.machine) if options.machine or diagnosis.inside() else None
        found = diagnosis.of_text(log, known)
    if options.json:
        print(json.dumps(found.to_dict(), indent=1, ensure_ascii=False))
    else:
        width = max(60, min(100, shutil.get_terminal_size((100, 24)).columns))
        shown = show.render(found, width)
        encoding = sys.stdout.encoding or "utf-8"
        sys.stdout.write(shown.encode(encoding, "replace").decode(encoding))
    return found.code
