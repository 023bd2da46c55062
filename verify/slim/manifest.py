"""What was done to a tree, as data and as JSON; it stays in the image."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from verify.core import UsageError
from verify.plain import decode

SCHEMA = 1


@dataclass(frozen=True)
class File:
    """One edited file. Sizes in bytes; `freed` by label of the code; compressed by zstd -3, None: not known."""

    path: str  # below site-packages
    wheel: str
    licence: str
    size: int
    sha256_before: str
    sha256_after: str
    containers: int
    freed: dict[str, int]
    compressed_before: int | None = None
    compressed_after: int | None = None


@dataclass(frozen=True)
class Dropped:
    """One whole file that was left out, and why."""

    path: str
    wheel: str
    size: int
    why: str
    compressed: int | None = None


@dataclass(frozen=True)
class Manifest:
    """What was done to a tree. `left_alone`: path → why; `untouched`: NVIDIA's wheels, and why."""

    targets: tuple[str, ...]
    files: tuple[File, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    left_alone: dict[str, tuple[str, ...]] = field(default_factory=dict)
    untouched: dict[str, str] = field(default_factory=dict)
    schema: int = SCHEMA

    def text(self) -> str:
        """As JSON, always the same for the same tree."""
        return json.dumps(asdict(self), indent=1, sort_keys=True) + "\n"


def load(place: Path) -> Manifest | None:
    """A manifest from before; None when there is none. UsageError when it is not readable as one."""
    try:
        data: Any = json.loads(place.read_text())
        if data["schema"] != SCHEMA:
            raise ValueError(f"schema {data['schema']}")
        made: Manifest = decode(Manifest, data)
        return made
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{place} is no manifest of `verify slim` ({error}): delete it, or name another.") from error
