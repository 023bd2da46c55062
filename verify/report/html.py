"""One HTML page without any address in it: the verdict first, then speed, trend, machine and every check.

jinja2 fills html.j2; the charts are inline SVG (charts.py). Nothing is fetched and no script runs, so the page can be
kept, mailed and opened in ten years.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import Any

from verify import history as past
from verify.core import Result, Run, Sample, Status, UsageError
from verify.history import Entry, History
from verify.regression import MARGIN, Verdict, series
from verify.report import charts, machine_facts
from verify.report.group import LOUD, PLURAL, by_file, heading, same, tally, verdict, worst
from verify.report.junit import clean

MARK = {
    Status.PASS: "✔",
    Status.WARN: "!",
    Status.FAIL: "✘",
    Status.ERROR: "✘",
    Status.SKIP: "–",
    Status.UNRATED: "?",
    Status.INCONCLUSIVE: "?",
}
TRENDS = 30  # nights shown


@dataclass(frozen=True)
class Speed:
    """A benchmark as the page shows it."""

    result: Result
    figure: str
    unit: str
    spread: str
    chart: str
    how: str


def needed() -> Any:
    """jinja2; UsageError in one sentence when it is not installed."""
    try:
        import jinja2
    except ImportError as error:
        raise UsageError(
            "The HTML report needs the Python package jinja2, which is not installed here: `pip install jinja2`, or "
            "take the report as --markdown."
        ) from error
    return jinja2


def render(run: Run, history: History | None = None) -> str:
    """The page. With a history also the trend of each figure on the same card."""
    jinja2 = needed()
    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    environment = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["svg"] = jinja2.utils.markupsafe.Markup
    environment.filters["prose"] = lambda text: jinja2.utils.markupsafe.Markup(prose(text))
    return clean(str(environment.get_template("html.j2").render(view(run, history))))


def prose(text: str) -> str:
    """A sentence of a check as HTML: what stands in backticks is code."""
    parts = [escape(part) for part in text.split("`")]
    if len(parts) % 2 == 0:  # a single backtick is no pair
        return "`".join(parts)
    return "".join(f"<code>{part}</code>" if i % 2 else part for i, part in enumerate(parts))


def view(run: Run, history: History | None) -> dict[str, Any]:
    """What the template shows."""
    word, sentence = verdict(run)
    shown = [f for s in LOUD for f in same(brief(r) for r in run.results if r.status is s)]
    speeds = [speed(r, run) for r in run.results if r.tier == "speed" and "value" in r.data]
    return {
        "run": run,
        "word": word,
        "sentence": sentence,
        "lines": heading(run.machine, run.image),
        "counts": [(s, n, PLURAL[s][n != 1], 100 * n / len(run.results)) for s, n in run.counts().items()],
        "mark": MARK,
        "loud": shown,
        "speeds": speeds,
        "bars": charts.bars(gains(run)),
        "others_published": "RTX 4090 D" if not any(r.data.get("published") for r in run.results) else "",
        "trends": trends(run, history) if history else [],
        "margin": f"{100 * MARGIN:g} %",
        "facts": machine_facts.table(run),
        "files": [(f, rs, worst(rs), tally(rs), sum(r.seconds for r in rs)) for f, rs in by_file(run.results).items()],
        "calm": {Status.PASS, Status.SKIP},
    }


def brief(result: Result) -> Result:
    """An unrated figure by its reason alone, so that all of them are one finding: the figures have a section."""
    _, found, reason = result.message.partition("; unrated: ")
    if result.status is not Status.UNRATED or not found:
        return result
    return replace(result, message=f"Measured, see below, but not judged: {reason}")


def unit_of(result: Result) -> str:
    """ "×" for a speed-up, else the unit."""
    return shown_unit(str(result.data.get("unit", "")))


def shown_unit(unit: str) -> str:
    """A unit as people write it."""
    return {"x": "×", "us": "µs"}.get(unit, unit)


def sample_of(run: Run, ident: str) -> Sample | None:
    """The primary sample of a benchmark."""
    return next((s for s in run.samples if s.id == ident), None)


def floats(data: Mapping[str, Any], *names: str) -> list[float | None]:
    """Numbers by name, None where there is none."""
    return [float(v) if isinstance(v := data.get(n), (int, float)) else None for n in names]


def speed(result: Result, run: Run) -> Speed:
    """The figure, its interval and its strip plot."""
    unit, sample = unit_of(result), sample_of(run, result.id)
    value, low, high, limit, ceiling, published = floats(
        result.data, "value", "low", "high", "limit", "ceiling", "published"
    )
    if value is None:
        return Speed(result, "–", "", "", "", "")
    values = sample.values if sample and sample.values else (value,)
    better = sample.better if sample else str(result.data.get("better", "higher"))
    spread = f"± {percent(100 * (high - low) / 2 / value)} %" if low is not None and high is not None and value else ""
    chart = charts.strip(values, unit, better, limit=limit, ceiling=ceiling, published=published)
    return Speed(result, charts.number(value), unit, spread, chart, conditions(sample, ceiling, published, value))


def percent(share: float) -> str:
    """Two significant digits without an exponent."""
    return f"{share:.0f}" if share >= 10 else f"{share:.2g}"


def conditions(sample: Sample | None, ceiling: float | None, published: float | None, value: float) -> str:
    """How it was measured, in a line."""
    known = dict(sample.conditions) if sample else {}
    parts = [f"{100 * value / ceiling:.0f} % of the ceiling"] if ceiling else []
    parts += [f"published {charts.number(published)}"] if ceiling and published is not None else []
    for key, words in (("memory_format", "{}"), ("amp", "autocast {}"), ("tf32", "TF32 {}"), ("sdpa", "SDPA: {}")):
        if (given := known.get(key)) not in (None, "", "none"):
            parts.append(words.format(given))
    numbers = (("clock_mhz", "{:.0f} MHz"), ("power_w", "{:.0f} W"), ("temperature_c", "{:.0f} °C"))
    parts += [words.format(known[key]) for key, words in numbers if isinstance(known.get(key), (int, float))]
    return " · ".join(parts)


def published_gains() -> dict[str, float]:
    """Benchmark → the speed-up the articles publish for such a model."""
    from verify.claims.rows import CLAIMS  # here, because the claims themselves are written with verify.report

    figures = [f for c in CLAIMS for f in c.figures if f.unit == "×" and f.facts[0].startswith("bench.")]
    return {f.facts[0].partition(".")[2]: f.published for f in figures}


def gains(run: Run) -> list[tuple[str, float, float, float, float | None]]:
    """Every speed-up with its interval and what was published, the largest first."""
    articles, rows = published_gains(), []
    for r in run.results:
        value, low, high, published = floats(r.data, "value", "low", "high", "published")
        if r.tier == "speed" and unit_of(r) == "×" and value is not None:
            rows.append((r.id, value, low or value, high or value, published or articles.get(r.id)))
    return sorted(rows, key=lambda row: -row[1])


def trends(run: Run, history: History) -> list[tuple[str, str, str, str, str]]:
    """(id, newest value, what it is against the baseline, chart, days) of each figure with at least two nights."""
    judged = past.judged(history, TRENDS)
    entries = [e for e in judged.entries if past.card(e.run) == past.card(run)]
    base = next((e for e in history_of(history, judged) if e.baseline), None)
    names = dict.fromkeys(s.id for e in entries for s in e.run.samples if ":" not in s.id)
    return [made for name in names if (made := one_trend(name, entries, base))]


def history_of(history: History, judged: History) -> Sequence[Entry]:
    """All runs, the shown ones with their verdicts."""
    first = judged.entries[0].number - 1 if judged.entries else 0
    return (*history.entries[:first], *judged.entries)


def one_trend(name: str, entries: Sequence[Entry], base: Entry | None) -> tuple[str, str, str, str, str] | None:
    """The trend of one figure; None with less than two nights."""
    nights, word = list[charts.Night](), ""
    unit = ""
    for e in entries:
        sample = sample_of(e.run, name)
        if sample is None or not sample.values:
            continue
        values = [v for group in series(sample).groups for v in group]
        found = (e.comparisons or {}).get(name)
        word = found.verdict.value if found else "baseline" if e.baseline else ""
        slow = found is not None and found.verdict is Verdict.SLOW
        nights.append(charts.Night(e.run.started[:10], statistics.median(values), min(values), max(values), slow))
        unit = shown_unit(sample.unit)
    if len(nights) < 2:
        return None
    reference = sample_of(base.run, name) if base else None
    value = statistics.median(reference.values) if reference and reference.values else None
    last = f"{charts.number(nights[-1].value)} {unit}"
    return name, last, word, charts.trend(nights, unit, value, MARGIN), f"{nights[0].day} – {nights[-1].day}"
