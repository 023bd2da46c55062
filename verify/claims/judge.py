"""From measured facts to the rows. Pure: a test needs no GPU."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import asdict

from verify.claims.rows import CLAIMS
from verify.claims.texts import is_the_card, name_of
from verify.claims.words import CARD, Claim, Fact, Facts, Figure, Row, Word
from verify.core import Result, Run
from verify.machine import Machine

EDGE = 1e-9  # a value on the very edge is inside, whatever rounding does
NO_BENCH = "Not in a report yet: `verify bench --json F` measures it, `verify claims --from F` reads it."


def from_run(run: Run) -> dict[str, Fact]:
    """The figures of `verify bench` as facts: "bench.<id>", with the interval, and the median of raw times."""
    found: dict[str, Fact] = {}
    for result in run.results:
        value = result.data.get("value")
        if result.tier == "speed" and isinstance(value, (int, float)):
            found[f"bench.{result.id}"] = Fact(float(value), _unit(str(result.data.get("unit", ""))), _spread(result))
    for sample in run.samples:
        if f"bench.{sample.id}" not in found and sample.values:
            found[f"bench.{sample.id}"] = Fact(statistics.median(sample.values), _unit(sample.unit))
    return found


def _unit(unit: str) -> str:
    return "×" if unit == "x" else unit


def _spread(result: Result) -> str:
    low, high = result.data.get("low"), result.data.get("high")
    both = isinstance(low, (int, float)) and isinstance(high, (int, float))
    return f"({number(float(low))} to {number(float(high))})" if both else ""  # type: ignore[arg-type]


def number(value: float) -> str:
    """Three significant digits, four from 1000 on."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def called(name: str) -> str:
    """What tells this fact from its neighbours: "llama_int8.gb" → "int8"; unit and note say the rest."""
    work, _, fact = name.partition(".")
    if work == "bench":
        return fact
    words = [*work.split("_")[1:], *fact.split("_")]
    return " ".join(w for w in words if w not in {"rate", "gb", "held", "seconds", "steps"} and not w.isdigit())


def said(name: str, fact: Fact) -> str:
    """ "fp16 50.1 tokens/s"."""
    label = called(name)
    if fact.value is None:
        return f"{label or 'no figure'}: {fact.note}"
    return " ".join(filter(None, (label, number(fact.value), fact.unit, fact.note)))


def holds(figure: Figure, facts: Facts) -> bool | None:
    """Whether the published number is what was measured; None when nothing was."""
    values = [f.value for name in figure.facts if (f := facts.get(name)) and f.value is not None]
    if not values:
        return None
    if figure.rule == "at least":
        return max(values) >= figure.published * (1 - figure.tolerance) - EDGE
    return any(abs(v / figure.published - 1) <= figure.tolerance + EDGE for v in values)


def row(claim: Claim, m: Machine, facts: Facts, reasons: Mapping[str, str]) -> Row:
    """One claim against the facts; `reasons` says of a work that did not run why."""
    names = dict.fromkeys(n for f in claim.figures for n in (*f.facts, *f.shown))
    used = {n: facts[n] for n in names if n in facts}
    text, why = "; ".join(said(n, f) for n, f in used.items()), claim.reason
    if claim.before is Word.NOT_MEASURABLE:
        word = Word.NOT_MEASURABLE
    elif claim.judge:
        word, text = claim.judge(m, facts)
        used = {n: f for n, f in facts.items() if n.partition(".")[0] in claim.works}
    else:
        word = compared(claim, m, facts)
    if word is Word.NOT_RUN:
        why = next((reasons[w] for w in claim.works if w in reasons), "" if claim.judge else NO_BENCH)
        why, text = (why or text), text if why else ""
    elif word is Word.OTHER_CARD:
        why = f"The claim is about the {CARD}; this is {name_of(m) or 'no GPU'}."
    elif word is Word.NOT_MEASURABLE and claim.judge:
        why = "The claim is about torch 2.8, which is not installed here."
    facts_used = {n: asdict(f) for n, f in used.items()}
    return Row(claim.id, claim.claim, claim.published, claim.physics, claim.before, text, word, why, facts_used)


def compared(claim: Claim, m: Machine, facts: Facts) -> Word:
    """The word for a claim made of numbers."""
    found = [h for f in claim.figures if (h := holds(f, facts)) is not None]
    if not found:
        return Word.NOT_RUN
    if not claim.anywhere and not is_the_card(name_of(m)):
        return Word.OTHER_CARD
    return Word.CONFIRMED if all(found) else Word.CONTRADICTED


def rows(m: Machine, facts: Facts, reasons: Mapping[str, str], ids: Iterable[str] = ()) -> list[Row]:
    """All rows, or those named."""
    chosen = set(ids)
    return [row(c, m, facts, reasons) for c in CLAIMS if not chosen or c.id in chosen]
