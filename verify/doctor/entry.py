"""What a known failure is: an Entry of the catalogue, and a Finding, which is an entry that was met."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from verify.machine import Machine

# From the most fundamental layer up: what is broken below explains what fails above.
LAYERS = (
    *("launch", "access", "hardware", "driver", "build", "libraries", "compile", "resources", "multi-gpu", "speed"),
    *("program", "harmless"),
)
# Who has to act: the stack or the machine, the person's own program, or nobody.
FAULTS = ("stack", "program", "none")


@dataclass(frozen=True)
class Entry:
    """One known failure.

    `text` are regular expressions for one line of a log, each of which is proof enough; `weak` ones fit this failure
    and others, and count only with the machine's facts or with a line of `beside` near. `engine` ones count only in
    what the Docker engine itself said. A line of `unless` near rules the entry out. Each has to contain some plain
    word, which is looked for first. Named groups fill `{name}` in `cause` and `fix`; `{name|word}` gives the word for a
    group that took no part. `read` turns a matching line into more such words, or None: not this. `facts` gives what a
    Machine shows of this failure, "" when it shows nothing. `checks` are the ids of the checks that fail with it,
    `hides` the entries that are its mere consequences. `source` is where the cause was settled in public, as
    owner/repository#number; `versions` says what it is limited to.
    """

    id: str
    title: str
    layer: str
    cause: str
    fix: str
    text: tuple[str, ...] = ()
    weak: tuple[str, ...] = ()
    engine: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()
    read: Callable[[str], Mapping[str, str] | None] | None = None
    facts: Callable[[Machine], str] | None = None
    checks: tuple[str, ...] = ()
    hides: tuple[str, ...] = ()
    command: str = ""
    source: tuple[str, ...] = ()
    versions: str = ""
    fault: str = "stack"
    rank: int = 0

    @property
    def depth(self) -> tuple[int, int]:
        """Smaller is more fundamental; `rank` orders within a layer."""
        return LAYERS.index(self.layer), self.rank


@dataclass(frozen=True)
class Finding:
    """An entry that was met, or a failed check (`entry` None). `line` counts from 1; 0 when no text showed it."""

    id: str
    title: str
    layer: str
    fault: str
    cause: str
    fix: str
    command: str = ""
    evidence: tuple[str, ...] = ()
    line: int = 0
    source: tuple[str, ...] = ()
    versions: str = ""
    confirmed: bool = False
    entry: Entry | None = field(default=None, repr=False, compare=False)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        names = ("id", "title", "layer", "fault", "cause", "evidence", "fix", "command", "line", "source", "versions")
        return {n: list(v) if isinstance(v := getattr(self, n), tuple) else v for n in names}


@cache
def pattern(text: str) -> re.Pattern[str]:
    """The compiled form of a signature: letters of either case."""
    return re.compile(text, re.IGNORECASE)


def fill(template: str, words: Mapping[str, str]) -> str:
    """`template` with `{name}` and `{name|otherwise}` replaced; other braces (JSON in a fix) stay."""

    def put(found: re.Match[str]) -> str:
        return words.get(found[1]) or (found[2] if found[2] is not None else found[0])

    return re.sub(r"\{([a-z_]+)(?:\|([^{}]*))?\}", put, template)
