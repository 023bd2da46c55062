"""One pure `render(run) -> str` per format. The command line owns the exit code; a renderer only writes."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from verify.core import Run, UsageError
from verify.report import html, json_, junit, markdown, prometheus

RENDERERS: Mapping[str, Callable[[Run], str]] = {
    "json": json_.render,
    "junit": junit.render,
    "prometheus": prometheus.render,
    "markdown": markdown.render,
    "html": html.render,
}


def ready(formats: Iterable[str]) -> None:
    """UsageError, before anything is measured, when a format lacks its package."""
    if "html" in formats:
        html.needed()


def writable(path: str) -> None:
    """UsageError, before anything is measured, when a report could not be put at `path`."""
    place = Path(path)
    if place.is_dir():
        raise UsageError(f"The report {path} cannot be written: it is a folder.")
    if not place.parent.is_dir():
        raise UsageError(f"The report {path} cannot be written: the folder {place.parent} does not exist.")
    if not os.access(place if place.exists() and not place.is_file() else place.parent, os.W_OK):
        raise UsageError(f"The report {path} cannot be written: no permission.")


def write(path: str, text: str) -> None:
    """Write a report as a whole or not at all: a collector that reads it meanwhile never sees half of it."""
    place = Path(path)
    if place.exists() and not place.is_file():  # a pipe or a terminal: nothing to replace
        with place.open("w") as stream:
            stream.write(text)
        return
    temporary = ""
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{place.name}.", dir=place.parent)
        with os.fdopen(handle, "w") as stream:
            stream.write(text)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, place)
    except OSError as error:
        with suppress(OSError):
            os.unlink(temporary)
        raise UsageError(f"The report {path} cannot be written: {error.strerror}.") from error
