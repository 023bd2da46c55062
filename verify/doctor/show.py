"""A Diagnosis as text for people."""

from __future__ import annotations

import textwrap

from verify.doctor.diagnosis import Diagnosis
from verify.doctor.entry import Entry, Finding

MOST = 5  # further causes named below the first


def paragraph(label: str, text: str, width: int) -> list[str]:
    """A labelled paragraph, wrapped; a command or a line of a log is never broken in the middle of a word."""
    room = " " * 10
    return textwrap.wrap(
        text,
        width,
        initial_indent=f"  {label:<8}",
        subsequent_indent=room,
        break_long_words=False,
        break_on_hyphens=False,
    )


def whole(found: Finding, width: int) -> list[str]:
    """A finding with cause, evidence, fix and command."""
    lines = [f"{found.title}  [{found.id}]", *paragraph("cause", found.cause, width)]
    for evidence in found.evidence:
        said = evidence if evidence.startswith("On this machine") else f"line {found.line}: {evidence}"
        lines += paragraph("seen", said, width)
    lines += paragraph("fix", found.fix, width)
    if found.command:
        lines.append(f"  {'command':<8}{found.command}")
    return lines


def render(d: Diagnosis, width: int) -> str:
    """What is wrong: causes seen on the machine in full, of a text the first in full and the rest by title."""
    lines: list[str] = []
    if d.findings:
        first, rest = d.findings[0], d.findings[1:]
        lines += whole(first, width)
        full = [f for f in rest if f.confirmed]
        for found in full:
            lines += ["", *whole(found, width)]
        brief = [f for f in rest if not f.confirmed]
        if brief:
            lines += ["", "Also in the text, less fundamental or a consequence:"]
            lines += [f"  line {f.line}: {f.title}  [{f.id}]" for f in brief[:MOST]]
            if len(brief) > MOST:
                lines.append(f"  and {len(brief) - MOST} more")
        if d.unknown:
            lines += ["", *textwrap.wrap(d.unknown, width)]
        lines += ["", f"`verify explain {first.id}` says more."]
    elif d.unknown:
        lines += textwrap.wrap(d.unknown, width)
        lines += textwrap.wrap(f"Looked at: {d.looked}.", width)
        lines += textwrap.wrap("No cause is named, because none is known; `verify run` checks the whole stack.", width)
    else:
        lines.append("Nothing wrong was found.")
        lines += textwrap.wrap(f"Looked at: {d.looked}.", width)
    if d.harmless and not d.findings:
        lines.append("")
        for found in d.harmless:
            lines += textwrap.wrap(
                f"Harmless (line {found.line}): {found.title}. {found.cause}", width, subsequent_indent="  "
            )
    return "\n".join(lines) + "\n"


def explain(entry: Entry, width: int = 78) -> str:
    """What the catalogue knows of one failure."""
    from verify.doctor.entry import fill

    lines = [entry.id, *textwrap.wrap(fill(entry.title, {}), width, initial_indent="  ", subsequent_indent="  "), ""]
    lines += paragraph("cause", fill(entry.cause, {}), width) + paragraph("fix", fill(entry.fix, {}), width)
    if entry.command:
        lines.append(f"  {'command':<8}{fill(entry.command, {})}")
    if entry.versions:
        lines += paragraph("versions", entry.versions, width)
    if entry.source:
        lines += paragraph("source", ", ".join(entry.source), width)
    told = [
        word for word, there in (("a text", entry.text or entry.weak), ("this machine's facts", entry.facts)) if there
    ]
    lines += ["", f"  known failure · layer {entry.layer} · told by {' and '.join(told) or 'Docker alone'}"]
    return "\n".join(lines) + "\n"
