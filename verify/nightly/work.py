"""What the stages share: the night's folder and log, one way to run a command, three ways in which a stage ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verify.core import UsageError
from verify.engine import connect
from verify.nightly import registry
from verify.nightly.registry import Registry
from verify.nightly.settings import Settings
from verify.nightly.state import Night, Step

ROOT = Path(__file__).parents[2]


class Refused(Exception):
    """The image is not good: this night ends, and `latest` stays."""


class Halted(Exception):
    """Something that only a person can bring is missing; the night goes on when it is there."""


class Unchanged(Exception):
    """The image is the one that `latest` names already: nothing is left to do."""


@dataclass(frozen=True)
class Work:
    """One stage at work: `log` is its own file, in the night's `folder`."""

    settings: Settings
    night: Night
    folder: Path
    log: Path

    @property
    def place(self) -> Registry:
        """The repository in its registry."""
        return registry.of(self.settings.repository)

    @property
    def digest(self) -> str:
        """The candidate's digest."""
        return str(self.night.data("push")["digest"])

    def client(self) -> Any:
        """The engine that builds."""
        return connect(timeout=600)

    def note(self, text: str) -> None:
        """One line for the log."""
        with self.log.open("a") as stream:
            stream.write(text.rstrip("\n") + "\n")


def done(text: str, **data: Any) -> Step:
    """The stage went through."""
    return Step("done", text, data)


def skipped(text: str, **data: Any) -> Step:
    """The stage had nothing to do, and the text says why."""
    return Step("skipped", text, data)


def end(process: subprocess.Popen[Any]) -> None:
    """End a command with all it started."""
    for kind in (signal.SIGTERM, signal.SIGKILL):
        with suppress(OSError):
            os.killpg(process.pid, kind)
        with suppress(subprocess.TimeoutExpired):
            process.wait(10)
            return


def call(work: Work, words: Sequence[str], environment: Mapping[str, str] | None = None) -> int:
    """Run a command into the log, in the project's folder: its exit code. It ends with us."""
    work.note("$ " + " ".join(words))
    with work.log.open("ab") as stream:
        process = subprocess.Popen(
            list(words), cwd=ROOT, env={**os.environ, **(environment or {})}, stdin=subprocess.DEVNULL,
            stdout=stream, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            return process.wait()
        except BaseException:
            end(process)
            raise


def verify(work: Work, *words: str, host: str = "") -> int:
    """Run this program as a process of its own: a verdict that is killed takes nothing else with it."""
    environment = {"PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))}
    return call(work, [sys.executable, "-m", "verify", *words], environment | ({"DOCKER_HOST": host} if host else {}))


def last_line(log: Path) -> str:
    """The line of a log that says most: the last with "error" in it, else the last."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()]
    return (errors or lines or ["no word was said"])[-1][-300:]


def shell(work: Work, command: str, environment: Mapping[str, str] | None = None) -> None:
    """Run a line of shell with {image} filled in; UsageError with its last word when it fails."""
    line = command.replace("{image}", work.settings.image)
    code = call(work, ["bash", "-c", line], {"IMAGE": work.settings.image, **(environment or {})})
    if code:
        raise UsageError(f"`{line}` ended with {code}: {last_line(work.log)}")
