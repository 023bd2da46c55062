"""SIGINT and SIGTERM as an exception that what must be finished can catch."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Stopped(BaseException):
    """A signal asked this program to end; the number is the first argument."""


@contextmanager
def stoppable() -> Iterator[None]:
    """SIGINT and SIGTERM raise Stopped once; afterwards they are ignored: reports get written, containers removed."""

    def handle(number: int, _: FrameType | None) -> None:
        for kind in (signal.SIGINT, signal.SIGTERM):
            signal.signal(kind, signal.SIG_IGN)
        raise Stopped(number)

    before = {kind: signal.signal(kind, handle) for kind in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)
