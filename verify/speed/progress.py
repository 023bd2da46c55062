"""What is running and how long it will still take: one line that rewrites itself, or a line per process elsewhere."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TextIO

from verify.speed.plan import clock_text

BAR = 24


def line(text: str, done: float, left: float, width: int) -> str:
    """ "██████░░░░  42 %  about 2:05 left  1/3 resnet" in `width` columns."""
    share = done / (done + left) if done + left > 0 else 0.0
    full = round(BAR * share)
    return f"  {'█' * full}{'░' * (BAR - full)} {100 * share:3.0f} %  about {clock_text(left)} left  {text}"[:width]


@contextmanager
def ticking(stream: TextIO | None, text: str, done: float, expected: float, after: float) -> Iterator[None]:
    """While a process runs: `done` seconds lie behind, it will take `expected`, and `after` come behind it."""
    if stream is None or not stream.isatty():
        yield
        return
    stop, started = threading.Event(), time.monotonic()

    def tick() -> None:
        while True:
            gone = time.monotonic() - started
            # A process that takes longer than expected is about to end, for all that is known.
            left = max(1.0, expected - gone) + after
            width = shutil.get_terminal_size().columns - 1
            stream.write(f"\r\x1b[2K{line(text, done + gone, left, width)}")
            stream.flush()
            if stop.wait(0.5):
                return

    thread = threading.Thread(target=tick, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(1)
        stream.write("\r\x1b[2K")
        stream.flush()


def finished(text: str, found: Mapping[str, Mapping[str, Any]], seconds: float, left: float) -> str:
    """ "1/3 resnet 23.4 s: tf32_nchw 12.1 (compile 3.2 warm), amp_channels_last 9.8; about 2:05 left"."""
    parts = []
    for name, one in found.items():
        extra = f" (compile {one['compile_s']:.1f} {one.get('cache', '')})" if one.get("compile_s") else ""
        mark = " raised " + str(one["raised"]) if "raised" in one else " not here" if "not_here" in one else ""
        parts.append(f"{name.partition('.')[2]} {one.get('seconds', 0):.1f}{extra}{mark}")
    return f"  {text} {seconds:.1f} s: {', '.join(parts)}; about {clock_text(left)} left\n"
