"""The command line.

A subcommand is a module with `add_parser(subparsers)`; its parser's default `run` is a function of the parsed options
that gives the exit code. One more line in COMMANDS is all a new command needs here.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.util
import io
import os
import sys
import traceback
from collections.abc import Sequence

from verify.core import UsageError
from verify.signals import Stopped

COMMANDS = (
    "verify.commands.run",
    "verify.commands.show",
    "verify.commands.doctor",
    "verify.commands.bench",
    "verify.commands.history",
    "verify.commands.report",
    "verify.commands.claims",
    "verify.selfmeasure",
    "verify.audit_cli",
    "verify.slim.cli",
    "verify.host",
    "verify.pull",
    "verify.nightly.cli",
)
EXIT_CODES = "Exit codes: 0 passed or warned, 1 something failed, 2 no verdict, for the reason printed."


def parser() -> argparse.ArgumentParser:
    """The parser with every command that is here: the host's half may be left out of an image."""
    text = "Proves on this very machine that the workspace works, and names the cause and the fix where it does not."
    made = argparse.ArgumentParser(prog="verify", description=text, epilog=EXIT_CODES)
    commands = made.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name in COMMANDS:
        if importlib.util.find_spec(name):
            importlib.import_module(name).add_parser(commands)
    return made


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The options; bad ones raise UsageError with one sentence where argparse would print a page of usage first."""
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            return parser().parse_args(argv)
    except SystemExit as ended:
        if not ended.code:  # --help
            raise
        program, _, message = complaint.getvalue().strip().splitlines()[-1].partition(": error: ")
        raise UsageError(f"{message[:1].upper()}{message[1:]}; `{program} --help` lists what there is.") from ended


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and give its exit code."""
    try:
        options = parse(argv)
        code: int = options.run(options)
        sys.stdout.flush()
        return code
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except (KeyboardInterrupt, Stopped) as stopped:
        print("error: Stopped before it was done.", file=sys.stderr)
        return 128 + int(stopped.args[0]) if stopped.args else 130
    except BrokenPipeError:
        # The reader (head, less) went away; Python would complain once more while closing the stream.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 2
    except Exception as error:
        # A defect of this program is no verdict on the machine, and Python's own exit code 1 would read as one.
        traceback.print_exc()
        print(f"error: verify itself stopped with {type(error).__name__}: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
