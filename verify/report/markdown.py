"""Markdown for a CI job's summary page: the verdict first, then what needs a person, then the table."""

from __future__ import annotations

from verify.core import Result, Run, Status
from verify.report.group import LOUD, by_file, heading, skips, tally, verdict, worst

MARK = {
    Status.PASS: "✅",
    Status.WARN: "⚠️",
    Status.FAIL: "❌",
    Status.ERROR: "💥",
    Status.SKIP: "⏭️",
    Status.UNRATED: "❔",
    Status.INCONCLUSIVE: "❔",
}


def cell(text: str) -> str:
    """Text that stays inside one table cell and cannot become markup."""
    flat = " ".join(text.split())
    for char in "\\|<>*_`[]":
        flat = flat.replace(char, f"\\{char}" if char not in "<>" else {"<": "&lt;", ">": "&gt;"}[char])
    return flat


def finding(result: Result) -> list[str]:
    """One loud result with its fix."""
    lines = [f"- {MARK[result.status]} **{cell(result.id)}** — {cell(result.message)}"]
    if result.hint:
        lines.append(f"  - Fix: {cell(result.hint)}")
    return lines


def render(run: Run) -> str:
    """The run as GitHub-flavoured Markdown."""
    word, sentence = verdict(run)
    lines = [f"## verify: {word}", "", sentence, ""]
    lines += [f"{cell(' · '.join(parts))}  " for parts in heading(run.machine, run.image)] + [""]
    loud = [r for status in LOUD for r in run.results if r.status is status]
    if loud:
        lines += ["### What needs attention", "", *(line for r in loud for line in finding(r)), ""]
    lines += ["| subject | result | seconds |", "|---|---|---:|"]
    for file, results in by_file(run.results).items():
        seconds = sum(r.seconds for r in results)
        lines.append(f"| {MARK[worst(results)]} {cell(file)} | {tally(results)} | {seconds:.1f} |")
    if waiting := skips(run.results):
        lines += ["", "### Skipped", ""]
        for reason, hint, listed in waiting:
            lines.append(f"- {len(listed)} × {cell(reason)}" + (f" {cell(hint)}" if hint else ""))
    return "\n".join(lines) + "\n"
