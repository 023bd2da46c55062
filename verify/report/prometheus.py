"""Prometheus text format for node_exporter's textfile collector; the writer replaces the file as a whole."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import datetime
from statistics import median

from verify.core import Run, Status


def label(value: str) -> str:
    """A label value with backslash, quote and newline escaped, as the exposition format asks."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def number(value: float) -> str:
    """A sample value; the format spells infinities and NaN its own way."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return f"{value:.17g}"


def family(name: str, text: str, rows: Iterable[tuple[Mapping[str, str], float]]) -> list[str]:
    """One gauge: HELP, TYPE and its rows; nothing when it has no rows."""
    lines = []
    for labels, value in rows:
        inside = ",".join(f'{key}="{label(given)}"' for key, given in labels.items())
        lines.append(f"{name}{{{inside}}} {number(value)}" if inside else f"{name} {number(value)}")
    return [f"# HELP {name} {text}", f"# TYPE {name} gauge", *lines] if lines else []


def stamp(iso: str) -> float:
    """ISO 8601 → seconds since the epoch, 0 when it is no time."""
    try:
        return datetime.fromisoformat(iso.replace("Z", "+00:00")).timestamp()
    except ValueError:
        return 0.0


def render(run: Run) -> str:
    """Gauges: the verdict, the age of the run, one row per check, counts, medians of the samples."""
    results = [({"check": r.id, "tier": r.tier, "about": r.about, "status": str(r.status)}, 1.0) for r in run.results]
    counts = run.counts()
    lines = [
        *family("verify_ok", "1 when the run is complete and nothing failed.", [({}, float(run.ok()))]),
        *family("verify_complete", "0 when the run was cut short.", [({}, float(run.complete))]),
        *family("verify_finished_timestamp_seconds", "When the run ended.", [({}, stamp(run.finished))]),
        *family("verify_checks", "Checks by status.", [({"status": str(s)}, float(counts.get(s, 0))) for s in Status]),
        *family("verify_check_status", "1 for the status the check has.", results),
        *family("verify_check_seconds", "Time the check took.", [({"check": r.id}, r.seconds) for r in run.results]),
        *family(
            "verify_sample_median",
            "Median of the raw values of a measurement.",
            [({"sample": s.id, "unit": s.unit, "better": s.better}, median(s.values)) for s in run.samples if s.values],
        ),
    ]
    return "\n".join(lines) + "\n"
