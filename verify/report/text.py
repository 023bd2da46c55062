"""The report people read: one calm line per subject, and each failure with its fix.

Layout and words are made here; rich, where it is installed, adds the colours. Without it nothing is lost but colour.
"""

from __future__ import annotations

import io
import textwrap
from dataclasses import dataclass

from verify.core import Result, Run, Status
from verify.report.group import LOUD, by_file, heading, same, skips, tally, verdict, worst

GLYPH = {
    Status.PASS: "✔",
    Status.WARN: "!",
    Status.FAIL: "✘",
    Status.ERROR: "✘",
    Status.SKIP: "–",
    Status.UNRATED: "?",
    Status.INCONCLUSIVE: "?",
}
STYLE = {
    Status.PASS: "green",
    Status.WARN: "yellow",
    Status.FAIL: "bold red",
    Status.ERROR: "bold red",
    Status.SKIP: "dim",
    Status.UNRATED: "magenta",
    Status.INCONCLUSIVE: "magenta",
}
VERDICT = {"PASS": "bold green", "FAIL": "bold red"} | dict.fromkeys(
    ("INCOMPLETE", "SKIPPED", "UNRATED"), "bold yellow"
)


@dataclass(frozen=True)
class Span:
    """A piece of a line in one style (rich's words for it)."""

    text: str
    style: str = ""


Line = tuple[Span, ...]


def wrapped(text: str, width: int, first: tuple[Span, ...], style: str = "") -> list[Line]:
    """`text` folded to `width`, the first line behind `first`, the others indented as far."""
    indent = sum(len(s.text) for s in first)
    folded = textwrap.wrap(text, max(20, width - indent), break_long_words=False, break_on_hyphens=False) or [""]
    lines: list[Line] = [(*first, Span(folded[0], style))]
    # The bar on the left of a finding goes on through its folded lines.
    margin = Span(first[0].text, first[0].style) if first and first[0].text.strip() == "│" else Span("")
    return lines + [(margin, Span(" " * (indent - len(margin.text))), Span(part, style)) for part in folded[1:]]


def finding(results: tuple[Result, ...], width: int) -> list[Line]:
    """Loud results that say the same: what, why, and the fix."""
    result = results[0]
    style = STYLE[result.status]
    bar = Span("  │ ", style)
    names = ", ".join((result.id, *(r.id.partition(".")[2] for r in results[1:])))
    lines = wrapped(names, width, (bar, Span(f"{str(result.status).upper()} ", style)), "bold")
    lines += wrapped(result.message, width, (bar,))
    if result.hint:
        lines += wrapped(result.hint, width, (bar, Span("→ ", "bold cyan")), "cyan")
    return [*lines, ()]


def facts(results: tuple[Result, ...], width: int) -> list[Line]:
    """Calm results with what was found, names in one column."""
    names = [r.id.partition(".")[2] for r in results]
    room = max(map(len, names), default=0) + 2
    return [
        line
        for name, r in zip(names, results, strict=True)
        for line in wrapped(
            r.message, width, (Span(f"    {GLYPH[r.status]} ", STYLE[r.status]), Span(f"{name:<{room}}"))
        )
    ]


def layout(run: Run, width: int, verbose: bool) -> list[Line]:
    """The report as styled lines no wider than `width`, long unbreakable words apart."""
    lines: list[Line] = []
    for number, parts in enumerate(heading(run.machine, run.image)):
        # Folded between the parts only: no-break spaces hold each together.
        text = " · ".join(part.replace(" ", "\u00a0") for part in parts)
        lines += wrapped(text, width, (), "bold" if number == 0 else "")
    lines.append(())
    files = by_file(run.results)
    room = max((len(f) for f in files), default=0) + 2
    for file, results in files.items():
        status, took = worst(results), f"{sum(r.seconds for r in results):.1f} s"
        words = tally(results)
        gap = max(1, width - 4 - room - len(words) - len(took))
        loud = status in {Status.FAIL, Status.ERROR}
        name = Span(f"{file:<{room}}", "bold" if loud else "")
        mark, tone = (
            Span(f"  {GLYPH[status]} ", STYLE[status]),
            STYLE[status] if loud else "dim" * (status is Status.SKIP),
        )
        lines.append((mark, name, Span(words, tone), Span(" " * gap), Span(took, "dim")))
        shown = [r for s in LOUD for r in results if r.status is s]
        if verbose:
            lines += facts(tuple(r for r in results if r.status not in LOUD), width)
        if shown:
            lines.append(())
            lines += [line for group in same(shown) for line in finding(group, width)]
    if waiting := skips(run.results):
        if lines[-1]:
            lines.append(())
        for reason, hint, listed in waiting:
            few = " and ".join(r.id for r in listed)
            count = f"{few} skipped" if len(listed) < 3 else f"{len(listed)} checks skipped"
            lines += wrapped(f"{count}. {reason}", width, (Span("  – ", "dim"),), "dim")
            if hint:
                lines += wrapped(hint, width, (Span("    → ", "cyan"),), "cyan")
    word, sentence = verdict(run)
    if lines[-1]:
        lines.append(())
    return lines + wrapped(sentence, width, (Span(f"{word}  ", VERDICT[word]),))


def paint(lines: list[Line]) -> str | None:
    """The lines with terminal colours, None when rich is not installed."""
    try:
        from rich.console import Console
        from rich.text import Text
    except ImportError:
        return None
    buffer = io.StringIO()
    console = Console(file=buffer, force_terminal=True, color_system="standard", width=10_000, highlight=False)
    for line in lines:
        console.print(Text.assemble(*((s.text, s.style) for s in line)), soft_wrap=True)
    return buffer.getvalue()


def render(run: Run, *, width: int = 80, color: bool = False, verbose: bool = False) -> str:
    """The report in `width` columns; `color` is for a terminal and needs rich; `verbose` adds what each check found."""
    lines = layout(run, width, verbose)
    plain = "\n".join("".join(s.text for s in line).rstrip() for line in lines) + "\n"
    return ((paint(lines) if color else None) or plain).replace("\u00a0", " ")
