"""How far a night is: one JSON file, replaced as a whole, and one lock. A run that was killed goes on from here."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from verify import report
from verify.core import UsageError
from verify.plain import decode

FRESH = timedelta(hours=12)  # an unfinished night older than this is not gone on with: its packages are yesterday's


@dataclass(frozen=True)
class Step:
    """A stage that was done: its word (done, skipped, failed, stopped), one sentence, what it found, its seconds."""

    status: str
    text: str
    data: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0


@dataclass(frozen=True)
class Night:
    """One night. `started` is ISO 8601 in UTC, `inputs` what it is made from, `ended` how it ended, "" before."""

    started: str
    inputs: Mapping[str, Any]
    steps: Mapping[str, Step] = field(default_factory=dict)
    ended: str = ""

    @property
    def name(self) -> str:
        """The folder of the night."""
        return self.started.replace(":", "").replace("-", "").partition("+")[0]

    def with_step(self, stage: str, step: Step) -> Night:
        """The night with one more step."""
        return replace(self, steps={**self.steps, stage: step})

    def data(self, stage: str) -> Mapping[str, Any]:
        """What a stage found; empty before it was done."""
        step = self.steps.get(stage)
        return step.data if step and step.status in ("done", "skipped") else {}


def now() -> datetime:
    """The wall clock, in UTC."""
    return datetime.now(timezone.utc)


def folder(place: Path, night: Night) -> Path:
    """Where logs and reports of a night lie; made when it is not there."""
    made = place / "nights" / night.name
    made.mkdir(parents=True, exist_ok=True)
    return made


def save(place: Path, night: Night) -> None:
    """Write the state as a whole; OSError leaves it as it was."""
    report.write(str(place / "night.json"), json.dumps(asdict(night), indent=1, default=str) + "\n")


def load(place: Path) -> Night | None:
    """The night at hand; None when there is none, or none that can be read."""
    try:
        made: Night = decode(Night, json.loads((place / "night.json").read_text()))
        datetime.fromisoformat(made.started)
        return made
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def at_hand(place: Path, inputs: Mapping[str, Any], time: datetime) -> Night:
    """The unfinished night, when it is of the same inputs and of today; a new one otherwise.

    A start that lies in the future is of a clock that has jumped back: that night is not trusted, a new one begins.
    """
    night = load(place)
    if night and not night.ended and dict(night.inputs) == dict(inputs):
        age = time - datetime.fromisoformat(night.started)
        if timedelta(0) <= age < FRESH:
            return night
    return Night(time.isoformat(timespec="milliseconds"), dict(inputs))


@contextmanager
def locked(place: Path) -> Iterator[None]:
    """Nobody else works in `place` meanwhile; UsageError names who does. The kernel drops a dead process's lock."""
    try:
        place.mkdir(parents=True, exist_ok=True)
        handle = os.open(place / "lock", os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise UsageError(f"The state folder {place} cannot be used: {error.strerror}.") from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            who = os.pread(handle, 100, 0).decode(errors="replace").strip() or "unknown"
            raise UsageError(
                f"Another nightly is at work in {place} (process {who}): wait for it, or end it."
            ) from error
        try:
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        except OSError:
            pass  # a full disk: the lock holds all the same
        yield
    finally:
        os.close(handle)
