"""One table for the reports of many nodes: the worst node first, what they have in common, and who differs.

A node whose report is missing, unreadable or cut short is a bad node, never a missing row.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from verify.core import BAD, Run, Status
from verify.report import group
from verify.report.junit import clean
from verify.report.markdown import MARK, cell
from verify.report.outliers import Outlier, odd_facts, outliers
from verify.wording import some

# A node's name with its run, or with the reason why there is none.
Node = tuple[str, Run | str]
ORDER = ("UNREADABLE", "INCOMPLETE", "FAIL", "SKIPPED", "UNRATED", "OUTLIER", "PASS")


@dataclass(frozen=True)
class Row:
    """A node in the table."""

    name: str
    word: str
    gpus: str
    driver: str
    checks: str
    notes: str
    weight: tuple[int, int, float]


def read(paths: Iterable[str]) -> list[Node]:
    """Each file with its run, or with the reason why it is no report; named by its stem, or by its path."""
    listed = list(paths)
    stems = Counter(Path(p).stem for p in listed)
    return [(Path(p).stem if stems[Path(p).stem] == 1 else p, load(p)) for p in listed]


def load(path: str) -> Run | str:
    """One report, or why it is none."""
    try:
        text = Path(path).read_text(encoding="utf-8")
        if not text.strip():
            return "The file is empty: the node wrote no report."
        return Run.from_dict(json.loads(text))
    except OSError as error:
        return f"The file cannot be read: {error.strerror}."
    except json.JSONDecodeError as error:
        return f"The file is no JSON ({error.msg} in line {error.lineno}): cut short, or not a report."
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        return f"The file is not a report of verify: {error}."


def ok(nodes: Iterable[Node]) -> bool:
    """True when there is a node and each has a complete report in which nothing failed."""
    listed = list(nodes)
    return bool(listed) and all(isinstance(run, Run) and run.ok() for _, run in listed)


def cards(run: Run) -> str:
    """ "8 × NVIDIA H200 140 GiB", what group.heading says of the GPUs."""
    gpus = run.machine.get("gpus") or ()
    names = Counter(
        " ".join(filter(None, (str(g.get("name", "?")), group.gib(g["memory"]) if g.get("memory") else "")))
        for g in gpus
    )
    return ", ".join(f"{n} × {name}" if n > 1 else name for name, n in names.items()) or "no GPU"


def row(name: str, run: Run | str, far: Sequence[Outlier], odd: Mapping[str, str]) -> Row:
    """The node's line; `far` are its outliers, `odd` the facts (and sentences) in which it differs from most."""
    if isinstance(run, str):
        return Row(name, "UNREADABLE", "?", "?", "?", run, (0, 0, 0.0))
    word = group.verdict(run)[0]
    worse = [o for o in far if o.worse]
    if word == "PASS" and worse:
        word = "OUTLIER"
    counts = run.counts()
    driver = run.machine.get("driver") or {}
    notes = [f"{o.id} {o.change:+.0%}" for o in far] + [f"other {label}" for label in odd]
    return Row(
        name=name,
        word=word,
        gpus=cards(run),
        driver=str(driver.get("version") or driver.get("kernel_module") or "none"),
        checks=group.tally(run.results),
        notes=some(notes, 4),
        weight=(
            ORDER.index(word),
            -sum(counts.get(s, 0) for s in BAD),
            -(1000.0 * len(worse) + len(odd) + counts.get(Status.WARN, 0) / 1000),
        ),
    )


def findings(nodes: Iterable[Node]) -> list[tuple[Status, tuple[str, ...], tuple[str, ...], str, str]]:
    """(status, nodes, checks, message, hint) of what failed or warned; the same finding of many nodes is one entry."""
    found: dict[tuple[Status, str, str], tuple[dict[str, None], dict[str, None]]] = {}
    for name, run in nodes:
        for result in run.results if isinstance(run, Run) else ():
            if result.status in group.LOUD:
                names, checks = found.setdefault((result.status, result.message, result.hint), ({}, {}))
                names[name] = checks[result.id] = None
    order = {status: number for number, status in enumerate(group.LOUD)}
    listed = [(s, tuple(names), tuple(checks), m, h) for (s, m, h), (names, checks) in found.items()]
    return sorted(listed, key=lambda one: (order[one[0]], -len(one[1])))


def summary(rows: Sequence[Row]) -> str:
    """ "7 nodes: 1 UNREADABLE, 1 FAIL, 5 PASS." """
    counts = Counter(r.word for r in rows)
    words = ", ".join(f"{counts[w]} {w}" for w in ORDER if counts[w])
    return f"{len(rows)} node{'s' * (len(rows) != 1)}: {words or 'none'}."


def render(runs: Sequence[Node], *, markdown: bool = False) -> str:
    """The fleet as text, or as GitHub-flavoured Markdown. A `str` in place of a run says why there is none."""
    readable = {name: run for name, run in runs if isinstance(run, Run)}
    far, odd = outliers(readable), odd_facts(readable)
    rows = sorted(
        (row(n, r, [o for o in far if o.node == n], odd.get(n, {})) for n, r in runs), key=lambda r: (r.weight, r.name)
    )
    return (as_markdown if markdown else as_text)(rows, findings(runs), far, odd)


Findings = Sequence[tuple[Status, tuple[str, ...], tuple[str, ...], str, str]]
HEAD = ("node", "verdict", "GPUs", "driver", "checks", "notes")


def as_text(rows: Sequence[Row], found: Findings, far: Sequence[Outlier], odd: Mapping[str, Mapping[str, str]]) -> str:
    """Columns as wide as they must be, then the findings with their fixes; one finding is one line however long."""
    table = [HEAD, *((r.name, r.word, r.gpus, r.driver, r.checks, r.notes) for r in rows)]
    flat = [[clean(" ".join(text.split())) for text in line] for line in table]
    widths = [max(map(len, column)) for column in list(zip(*flat, strict=True))[:-1]] + [0]
    lines = [summary(rows), ""]
    lines += ["  ".join(text.ljust(w) for text, w in zip(line, widths, strict=True)).rstrip() for line in flat]
    if found:
        lines += ["", "What needs attention"]
        for status, names, checks, message, hint in found:
            lines.append(f"  {str(status).upper()} {some(checks, 3)} on {some(names, 6)}: {' '.join(message.split())}")
            lines += [f"    → {' '.join(hint.split())}"] * bool(hint)
    lines += [""] * bool(far or odd) + ["Who differs"] * bool(far or odd)
    lines += [f"  {o.node}: {o.sentence()}" for o in far]
    lines += [f"  {name}: {text}" for name, texts in odd.items() for text in texts.values()]
    return clean("\n".join(lines)) + "\n"


def as_markdown(
    rows: Sequence[Row], found: Findings, far: Sequence[Outlier], odd: Mapping[str, Mapping[str, str]]
) -> str:
    """The same for a CI job's summary page."""
    lines = ["## verify: the fleet", "", summary(rows), "", f"| {' | '.join(HEAD)} |", f"|{'---|' * len(HEAD)}"]
    table = [(r.name, r.word, r.gpus, r.driver, r.checks, r.notes) for r in rows]
    lines += [f"| {' | '.join(map(cell, line))} |" for line in table]
    if found:
        lines += ["", "### What needs attention", ""]
        for status, names, checks, message, hint in found:
            lines.append(f"- {MARK[status]} **{cell(some(checks, 3))}** on {cell(some(names, 6))} — {cell(message)}")
            lines += [f"  - Fix: {cell(hint)}"] * bool(hint)
    if far or odd:
        lines += ["", "### Who differs", ""]
        lines += [f"- {cell(o.node)}: {cell(o.sentence())}" for o in far]
        lines += [f"- {cell(name)}: {cell(text)}" for name, texts in odd.items() for text in texts.values()]
    return clean("\n".join(lines)) + "\n"
