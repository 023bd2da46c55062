"""Which entries of the catalogue a text and a machine meet, the most fundamental one first."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from verify.doctor import digest
from verify.doctor.anchors import anchors
from verify.doctor.digest import Digest
from verify.doctor.entry import Entry, Finding, fill, pattern

if TYPE_CHECKING:
    from verify.machine import Machine

NEAR = 120  # lines; a chained traceback of torch.compile is this long
SHOWN = 300  # characters of a line given as evidence


@dataclass(frozen=True)
class Match:
    """Where a signature was met: the index of the line, the words it gave, and the line itself."""

    index: int
    words: Mapping[str, str]
    line: str
    wanted: str = ""


def places(log: Digest, signature: str) -> list[tuple[int, re.Match[str]]]:
    """The lines that a signature fits, in order; looked for once, as entries share signatures."""
    if signature not in log.memo:
        compiled, found = pattern(signature), {}
        for word in anchors(signature):
            for index in log.having(word):
                if index not in found and (match := compiled.search(log.lines[index])):
                    found[index] = match
        log.memo[signature] = sorted(found.items(), key=lambda item: item[0])
    known: list[tuple[int, re.Match[str]]] = log.memo[signature]
    return known


def near(log: Digest, index: int, signatures: Iterable[str]) -> int | None:
    """The index of a line within NEAR lines of `index` that one of the signatures fits."""
    for signature in signatures:
        for other, _ in places(log, signature):
            if abs(other - index) <= NEAR:
                return other
    return None


def by_text(entry: Entry, log: Digest, *, engine: bool) -> Match | None:
    """The first line that proves `entry`."""
    for signature in (*entry.text, *(entry.engine if engine else ())):
        for index, found in places(log, signature):
            if match := accept(entry, log, index, found):
                return match
    if entry.beside:
        for signature in entry.weak:
            for index, found in places(log, signature):
                other = near(log, index, entry.beside)
                if other is not None and (match := accept(entry, log, index, found)):
                    return replace(match, wanted=log.lines[other] if other != index else "")
    return None


def accept(entry: Entry, log: Digest, index: int, found: re.Match[str]) -> Match | None:
    """The match, unless something near rules it out or `read` does."""
    line = log.lines[index]
    if entry.unless and near(log, index, entry.unless) is not None:
        return None
    words = {k: v for k, v in found.groupdict().items() if v}
    if entry.read is not None:
        more = entry.read(line)
        if more is None:
            return None
        words |= more
    return Match(index, words, line)


def weakly(entry: Entry, log: Digest) -> Match | None:
    """A line that fits `entry` and others."""
    for signature in entry.weak:
        for index, found in places(log, signature):
            if match := accept(entry, log, index, found):
                return match
    return None


def finding(entry: Entry, match: Match | None, log: Digest | None, seen: str) -> Finding:
    """The entry with what was met filled in."""
    words = match.words if match else {}
    evidence = [match.line.strip()[:SHOWN], match.wanted.strip()[:SHOWN]] if match else []
    return Finding(
        id=entry.id,
        title=fill(entry.title, words),
        layer=entry.layer,
        fault=entry.fault,
        cause=fill(entry.cause, words),
        fix=fill(entry.fix, words),
        command=fill(entry.command, words),
        evidence=tuple(e for e in (*evidence, f"On this machine: {seen}" if seen else "") if e),
        line=log.numbers[match.index] if match and log else 0,
        source=entry.source,
        versions=entry.versions,
        confirmed=bool(seen),
        entry=entry,
    )


def joined(log: Digest) -> Digest:
    """Each line with the one after it: for texts that were wrapped at the width of a terminal."""
    rows = [(i, n) for i, n in enumerate(log.numbers) if i not in log.source]
    pairs = itertools.pairwise(rows)
    made = [(f"{log.lines[a].rstrip()} {log.lines[b].strip()}", n) for (a, n), (b, _) in pairs]
    return Digest(tuple(t for t, _ in made), tuple(n for _, n in made), log.total, log.size)


def search(
    log: Digest, entries: Iterable[Entry], facts: Machine | None = None, *, engine: bool = False
) -> list[Finding]:
    """What the text meets, in no order; `facts` settle what the text leaves open."""
    found = []
    for entry in entries:
        match = by_text(entry, log, engine=engine)
        seen = entry.facts(facts) if entry.facts and facts is not None and (match or entry.weak) else ""
        if match is None and seen:
            match = weakly(entry, log)
        if match:
            found.append(finding(entry, match, log, seen))
    return found


def rank(found: Iterable[Finding]) -> list[Finding]:
    """The most fundamental first, without what another one explains.

    What a machine confirms comes before what only the text says, within the person's reach: a cause seen is no guess.
    """
    listed = list(found)
    hidden = {other for f in listed if f.entry for other in f.entry.hides if other != f.id}
    kept = [f for f in listed if f.id not in hidden] or listed

    def order(f: Finding) -> tuple[int, int, int]:
        depth = f.entry.depth if f.entry else (7, 0)
        return depth[0], -int(f.confirmed), depth[1] * 10**7 + f.line

    return sorted(kept, key=order)


def diagnose(
    text: str | Digest, entries: Iterable[Entry], facts: Machine | None = None, *, engine: bool = False
) -> list[Finding]:
    """The causes a text shows, ranked; [] when none is known. Lines are joined only when single ones say nothing."""
    log = digest.of(text) if isinstance(text, str) else text
    entries = tuple(entries)
    found = search(log, entries, facts, engine=engine)
    if not any(f.fault != "none" for f in found):
        found += [f for f in search(joined(log), entries, facts, engine=engine) if f.id not in {o.id for o in found}]
    return rank(found)


def sentence(text: str, entries: Iterable[Entry], words: Mapping[str, str]) -> str:
    """Cause and fix in one sentence for what the Docker engine said, "" when no entry fits; `words` fill in names."""
    found = diagnose(text, entries, engine=True)
    if not found or found[0].entry is None:
        return ""
    entry = found[0].entry
    match = by_text(entry, digest.of(text), engine=True)
    filled = {**(match.words if match else {}), **{k: v for k, v in words.items() if v}}
    cause, fix = fill(entry.cause, filled).rstrip("."), fill(entry.fix, filled)
    return f"{cause}: {fix[:1].lower()}{fix[1:]}"
