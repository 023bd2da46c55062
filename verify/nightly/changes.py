"""What is new since yesterday's image, as Markdown and as one HTML page; short when nothing is."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from verify.nightly.contents import Contents

Layers = Sequence[tuple[str, int]]


@dataclass(frozen=True)
class Image:
    """An image as the report compares it: layers are (digest, bytes compressed), lowest first."""

    digest: str
    layers: Layers
    contents: Contents


@dataclass(frozen=True)
class Table:
    """A heading and rows under column names; `rows` is empty when nothing changed."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...] = field(default=())


def pulled(before: Layers, after: Layers) -> int:
    """Bytes that a host with the layers `before` has to fetch for `after`: each new digest once."""
    have = {digest for digest, _ in before}
    return sum({digest: size for digest, size in after if digest not in have}.values())


def megabytes(size: float, *, sign: bool = False) -> str:
    """12.3 MB, of 10^6 bytes."""
    return f"{size / 1e6:{'+' if sign else ''}.1f} MB"


def differences(title: str, before: Mapping[str, str], after: Mapping[str, str], *, short: int = 0) -> Table:
    """Added, removed and changed entries; `short` cuts the values to so many letters."""
    rows = []
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name, ""), after.get(name, "")
        if old != new:
            rows.append((name, (old[:short] if short else old) or "–", (new[:short] if short else new) or "removed"))
    return Table(title, ("name", "before", "now"), tuple(rows))


def layer_table(before: Layers, after: Layers) -> Table:
    """Every layer by its place, with its size and how it differs from the one in the same place before."""
    rows = []
    have = {digest for digest, _ in before}
    for place, (digest, size) in enumerate(after):
        old = before[place][1] if place < len(before) else 0
        word = "same" if digest in have else megabytes(size - old, sign=True)
        rows.append((str(place + 1), digest.removeprefix("sha256:")[:12], megabytes(size), word))
    return Table("Layers", ("layer", "digest", "size", "difference"), tuple(rows))


def tables(before: Image | None, after: Image) -> list[Table]:
    """All tables that have a row."""
    old = before or Image("", (), Contents())
    made = [
        differences("Debian packages", old.contents.debian, after.contents.debian),
        differences("Python packages", old.contents.python, after.contents.python),
        differences("Environment", old.contents.environment, after.contents.environment),
        differences("Files outside packages", old.contents.files, after.contents.files, short=12),
        layer_table(old.layers, after.layers),
    ]
    return [table for table in made if table.rows]


def summary(before: Image | None, after: Image, facts: Mapping[str, str]) -> list[tuple[str, str]]:
    """The lines on top: digest, size, bytes to pull, base, and what `facts` adds (verdict, speed, signature)."""
    total = sum(size for _, size in after.layers)
    rows = [("image", after.digest), ("before", before.digest if before else "none: this is the first")]
    rows.append(("size compressed", megabytes(total)))
    if before:
        new = pulled(before.layers, after.layers)
        rows.append(("a host with the image before pulls", f"{megabytes(new)} of layers ({new} bytes)"))
    old, base = before.contents.base if before else "", after.contents.base
    changed = f" (before: {old or 'not recorded'})" if before and old != base else ""
    rows.append(("base", (base or "not recorded") + changed))
    return [*rows, *facts.items()]


def markdown(before: Image | None, after: Image, facts: Mapping[str, str]) -> str:
    """The report as Markdown."""
    if before and before.digest == after.digest:
        return f"# Nightly: no change\n\nThe image is {after.digest}, as before; nothing was pushed.\n"
    lines = ["# Nightly: what changed", ""]
    lines += [f"- {name}: {value}" for name, value in summary(before, after, facts)]
    for table in tables(before, after) if before else [layer_table((), after.layers)]:
        lines += [
            "",
            f"## {table.title}",
            "",
            "| " + " | ".join(table.columns) + " |",
            "|---" * len(table.columns) + "|",
        ]
        lines += [
            "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |" for row in table.rows
        ]
    return "\n".join(lines) + "\n"


STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:68rem;margin:2rem auto;padding:0 1rem;color-scheme:light dark}"
    "table{border-collapse:collapse}td,th{text-align:left;padding:.15rem 1rem .15rem 0;vertical-align:top}"
    "td{font-variant-numeric:tabular-nums;overflow-wrap:anywhere}th{border-bottom:1px solid}"
)


def page(before: Image | None, after: Image, facts: Mapping[str, str]) -> str:
    """The same as one HTML page without anything from elsewhere."""
    same = before is not None and before.digest == after.digest
    parts = [f"<h1>Nightly: {'no change' if same else 'what changed'}</h1>"]
    shown: list[Table] = []
    if same:
        parts.append(f"<p>The image is {html.escape(after.digest)}, as before; nothing was pushed.</p>")
    else:
        shown = [Table("", ("", ""), tuple(summary(before, after, facts)))]
        shown += tables(before, after) if before else [layer_table((), after.layers)]
    for table in shown:
        if table.title:
            parts.append(f"<h2>{html.escape(table.title)}</h2>")
        head = "".join(f"<th>{html.escape(name)}</th>" for name in table.columns if name)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in table.rows
        )
        parts.append(f"<table>{f'<tr>{head}</tr>' if head else ''}{body}</table>")
    title = "Nightly"
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><style>{STYLE}</style>'
        + "\n".join(parts)
        + "</html>\n"
    )
