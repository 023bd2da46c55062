"""The charts of the HTML report as inline SVG.

Horizontal positions are per cent and everything else is pixels, so a chart is as wide as its place while text, dots and
lines keep their size. Colours are classes of the style sheet; no meaning rests on a colour alone.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

LEFT, RIGHT = 1.5, 98.5  # per cent between which values are drawn
TOP, FLOOR, BOTTOM = 20, 52, 68  # of a strip, pixels: upper labels end, axis, lower labels' line
ROWS = 5  # heights among which the dots of a strip take turns, so that equal values stay apart


def number(value: float) -> str:
    """Four significant digits, never an exponent: "148.9", "0.0209", "12030"."""
    if value == 0:
        return "0"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}" if abs(value) >= 1e-4 else f"{value:.7f}"


@dataclass(frozen=True)
class Scale:
    """Maps values to per cent."""

    low: float
    high: float

    def at(self, value: float) -> float:
        """Where a value lies, per cent; what is outside lies on the edge."""
        share = (value - self.low) / (self.high - self.low) if self.high > self.low else 0.5
        return round(LEFT + (RIGHT - LEFT) * min(1.0, max(0.0, share)), 2)


def anchor(place: float) -> str:
    """How a label is held so that it stays inside."""
    return "start" if place < 16 else "end" if place > 84 else "middle"


def label(place: float, y: float, text: str, kind: str, *, hold: str = "") -> str:
    """Text at a place, turned inwards near the edges."""
    return f'<text class="{kind}" x="{place}%" y="{y}" text-anchor="{hold or anchor(place)}">{escape(text)}</text>'


def upright(place: float, top: float, bottom: float, kind: str) -> str:
    """A vertical line."""
    return f'<line class="{kind}" x1="{place}%" x2="{place}%" y1="{top}" y2="{bottom}"/>'


def symbol(kind: str, place: float, y: float, shape: str, inside: str = "") -> str:
    """A small shape drawn around a place."""
    return f'<svg class="{kind}" x="{place}%" y="{y}" overflow="visible"><path d="{shape}"/>{inside}</svg>'


def span(values: Sequence[float], marks: Sequence[float | None], *, ratio: bool) -> Scale:
    """From zero (a speed-up: from 1, no gain) to a little more than the largest value or mark."""
    known = [*values, *(m for m in marks if m is not None)]
    low = min(1.0, *known) if ratio else 0.0
    high = max(known)
    return Scale(low, high + 0.04 * (high - low) if high > low else low + 1)


def strip(
    values: Sequence[float],
    unit: str,
    better: str,
    *,
    limit: float | None = None,
    ceiling: float | None = None,
    published: float | None = None,
) -> str:
    """Every process's value on one axis, with the limit (label below), the ceiling (label above) and the published."""
    scale = span(values, (limit, ceiling, published), ratio=unit == "×")
    parts = list[str]()
    if limit is not None:
        place = scale.at(limit)
        start, width = (place, 100 - place) if better == "higher" else (0.0, place)
        parts.append(f'<rect class="good" x="{start}%" width="{round(width, 2)}%" y="{TOP}" height="{FLOOR - TOP}"/>')
    parts.append(f'<line class="axis" x1="0" x2="100%" y1="{FLOOR}" y2="{FLOOR}"/>')
    if limit is not None:
        parts.append(upright(place, TOP - 2, FLOOR + 4, "limit"))
        sign = "≥" if better == "higher" else "≤"
        parts.append(label(place, BOTTOM, f"limit {sign} {number(limit)}", "low"))
    if limit is None or place > 22:
        parts.append(label(0, BOTTOM, f"{number(scale.low)}{unit if unit == '×' else ''}", "tick", hold="start"))
    if ceiling is not None:
        parts.append(upright(scale.at(ceiling), TOP - 2, FLOOR, "ceiling"))
        parts.append(label(scale.at(ceiling), TOP - 8, f"ceiling {number(ceiling)}", "high"))
    if published is not None:
        place = scale.at(published)
        parts.append(
            f'<svg class="mark" x="{place}%" y="{FLOOR}" overflow="visible"><path d="M0-6 5 0 0 6-5 0Z"/></svg>'
        )
        if ceiling is None:  # one label above; with two, the line under the chart gives the published figure
            parts.append(label(place, TOP - 8, f"published {number(published)}", "high"))
    for index, value in enumerate(values):
        y = TOP + 4 + (FLOOR - TOP - 12) * (index % ROWS) / (ROWS - 1)
        parts.append(
            f'<circle class="dot" cx="{scale.at(value)}%" cy="{y:g}" r="3.5"><title>process {index + 1}: '
            f"{number(value)} {escape(unit)}</title></circle>"
        )
    words = f"{len(values)} processes, median {number(statistics.median(values))} {unit}"
    return svg("strip", 74, words, parts)


def bars(rows: Sequence[tuple[str, float, float, float, float | None]]) -> list[tuple[str, str]]:
    """(name, chart) for rows of (name, measured, low, high, published): two bars from 0, a line at 1×, the interval."""
    top = max((v for _, m, _, h, p in rows for v in (m, h, p or 0.0)), default=1.0)
    scale = Scale(0.0, top * 1.5)  # room for the labels behind the bars
    made = []
    for name, measured, low, high, published in rows:
        end = scale.at(measured)
        parts = [
            f'<rect class="measured" x="{LEFT}%" width="{round(end - LEFT, 2)}%" y="4" height="14"/>',
            f'<line class="whisker" x1="{scale.at(low)}%" x2="{scale.at(high)}%" y1="11" y2="11"/>',
            f'<text class="bar" x="{end}%" dx="8" y="15.5">{number(measured)}×</text>',
        ]
        if published is not None:
            there = scale.at(published)
            parts += [
                f'<rect class="published" x="{LEFT}%" width="{round(there - LEFT, 2)}%" y="24" height="9"/>',
                f'<text class="bar quiet" x="{there}%" dx="8" y="32.5">{number(published)}× published</text>',
            ]
        height = 38 if published is not None else 22
        parts.append(upright(scale.at(1.0), 0, height, "one"))
        made.append((name, svg("bars", height, f"measured {number(measured)}×", parts)))
    return made


@dataclass(frozen=True)
class Night:
    """A point of a trend: the median of the processes, their smallest and largest, and whether it was SLOW."""

    day: str
    value: float
    low: float
    high: float
    slow: bool = False


def trend(nights: Sequence[Night], unit: str, baseline: float | None, margin: float) -> str:
    """A figure night by night; the band is the baseline ± the margin in which a change does not matter."""
    known = [v for n in nights for v in (n.low, n.high)]
    middle = baseline if baseline is not None else statistics.median(n.value for n in nights)
    low, high = min(*known, middle * (1 - 2.5 * margin)), max(*known, middle * (1 + 2.5 * margin))
    low, high = (low, high) if high > low else (low - 1, high + 1)
    height = 74

    def y(value: float) -> float:
        return round(6 + (height - 12) * (high - value) / (high - low), 1)

    def x(index: int) -> float:
        return round(2.5 + 95 * index / max(1, len(nights) - 1), 2)

    parts = list[str]()
    if baseline is not None:
        upper, lower = y(baseline * (1 + margin)), y(baseline * (1 - margin))
        parts.append(f'<rect class="band" x="0" width="100%" y="{upper}" height="{round(lower - upper, 1)}"/>')
        parts.append(f'<line class="base" x1="0" x2="100%" y1="{y(baseline)}" y2="{y(baseline)}"/>')
    for i, b in enumerate(nights[1:]):
        parts.append(f'<line class="path" x1="{x(i)}%" y1="{y(nights[i].value)}" x2="{x(i + 1)}%" y2="{y(b.value)}"/>')
    for i, n in enumerate(nights):
        parts.append(f'<line class="range" x1="{x(i)}%" x2="{x(i)}%" y1="{y(n.low)}" y2="{y(n.high)}"/>')
        tip = f"<title>{escape(n.day)}: {number(n.value)} {escape(unit)}{', SLOW' if n.slow else ''}</title>"
        if n.slow:
            parts.append(symbol("slow", x(i), y(n.value), "M-6-5H6L0 6Z", tip))
        else:
            kind = "dot last" if i == len(nights) - 1 else "dot"
            parts.append(f'<circle class="{kind}" cx="{x(i)}%" cy="{y(n.value)}" r="3">{tip}</circle>')
    return svg("trend", height, f"{len(nights)} nights, last {number(nights[-1].value)} {unit}", parts)


def svg(kind: str, height: int, words: str, parts: Sequence[str]) -> str:
    """The chart with a text for those who do not see it."""
    inside = "".join(parts)
    return f'<svg class="{kind}" role="img" aria-label="{escape(words)}" width="100%" height="{height}">{inside}</svg>'
