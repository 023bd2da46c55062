"""The rows as text, Markdown and JSON."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from dataclasses import asdict

from verify.claims.words import CARD, Row, Word
from verify.plain import finite
from verify.report.markdown import cell

HEAD = f"What was published about PyTorch 2.8 on an {CARD}"
MARK = {
    Word.CONFIRMED: "✔",
    Word.NEAR: "≈",
    Word.CONDITIONAL: "≈",
    Word.CONTRADICTED: "✘",
    Word.PLAUSIBLE: "?",
    Word.OTHER_CARD: "·",
    Word.NOT_MEASURABLE: "–",
    Word.NOT_RUN: "–",
}


def measured(row: Row) -> str:
    """What was measured and, where that settles nothing, why."""
    return " — ".join(filter(None, (row.measured, row.why))) or "-"


def verdict(row: Row) -> str:
    """The verdict, and where nothing here could settle it, what was known before."""
    open_ = row.verdict in {Word.OTHER_CARD, Word.NOT_RUN, Word.NOT_MEASURABLE} and row.before is not row.verdict
    return f"{row.verdict} (by public data: {row.before})" if open_ else str(row.verdict)


def tally(rows: Sequence[Row]) -> str:
    """ "18 claims: 3 confirmed, 2 contradicted …"."""
    counts = [(w, sum(r.verdict is w for r in rows)) for w in Word]
    noun = "claim" if len(rows) == 1 else "claims"
    return f"{len(rows)} {noun}: " + ", ".join(f"{n} {w}" for w, n in counts if n) + "."


def text(rows: Sequence[Row], card: str, width: int = 100) -> str:
    """One block per claim, in `width` columns."""
    lines = [HEAD, f"measured on: {card or 'no GPU'}", ""]
    for r in rows:
        lines += [f"{MARK[r.verdict]} {r.id:<4}{verdict(r)}"]
        for label, words in (("claim", f"{r.claim}: {r.published}"), ("physics", r.physics), ("measured", measured(r))):
            lines += textwrap.wrap(words, width, initial_indent=f"    {label:<10}", subsequent_indent=" " * 14)
        lines.append("")
    return "\n".join([*lines, *textwrap.wrap(tally(rows), width)]) + "\n"


def markdown(rows: Sequence[Row], card: str) -> str:
    """One table."""
    lines = [f"## {HEAD}", "", f"Measured on: {cell(card or 'no GPU')}. {tally(rows)}", ""]
    head = ("", "claim", "published", "physics and public data", "measured here", "verdict")
    lines += [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for r in rows:
        cells = (r.id, r.claim, r.published, r.physics, measured(r))
        lines.append(f"| {' | '.join(map(cell, cells))} | {MARK[r.verdict]} {cell(verdict(r))} |")
    return "\n".join(lines) + "\n"


def as_json(rows: Sequence[Row], card: str, seconds: dict[str, float]) -> str:
    """One object: the card, the seconds each measurement took, the rows."""
    data = {"schema": 1, "card": card, "seconds": seconds, "claims": [asdict(r) for r in rows]}
    return json.dumps(finite(data), indent=1, default=str, ensure_ascii=False, allow_nan=False) + "\n"
