"""Orderings and phrases the renderers share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from verify.core import Result, Run, Status

PLURAL = {
    Status.PASS: ("passed", "passed"),
    Status.WARN: ("warning", "warnings"),
    Status.FAIL: ("failed", "failed"),
    Status.ERROR: ("error", "errors"),
    Status.SKIP: ("skipped", "skipped"),
    Status.UNRATED: ("unrated", "unrated"),
    Status.INCONCLUSIVE: ("inconclusive", "inconclusive"),
}
# The order in which a person wants to read what is not a plain pass.
LOUD = (Status.ERROR, Status.FAIL, Status.INCONCLUSIVE, Status.UNRATED, Status.WARN)


def by_file(results: Iterable[Result]) -> dict[str, tuple[Result, ...]]:
    """Check file → its results, in the order they came."""
    found: dict[str, tuple[Result, ...]] = {}
    for result in results:
        file = result.id.partition(".")[0]
        found[file] = (*found.get(file, ()), result)
    return found


def tally(results: Iterable[Result]) -> str:
    """ "9 passed, 1 warning", zeros left out."""
    listed = list(results)
    counts = [(s, sum(r.status is s for r in listed)) for s in Status]
    return ", ".join(f"{n} {PLURAL[s][n != 1]}" for s, n in counts if n) or "nothing run"


def worst(results: Iterable[Result]) -> Status:
    """The status that stands for a group: the loudest; a group that only skipped is a skip."""
    seen = {r.status for r in results}
    return next((s for s in (*LOUD, Status.PASS) if s in seen), Status.SKIP)


def same(results: Iterable[Result]) -> list[tuple[Result, ...]]:
    """Results that say the very same together, in order: a missing GPU fails a whole file of checks for one reason."""
    found: dict[tuple[Status, str, str], tuple[Result, ...]] = {}
    for r in results:
        key = (r.status, r.message, r.hint)
        found[key] = (*found.get(key, ()), r)
    return list(found.values())


def skips(results: Iterable[Result]) -> list[tuple[str, str, tuple[Result, ...]]]:
    """(reason, hint, results) of the skipped, one entry per reason, so that a missing GPU is said once."""
    found: dict[tuple[str, str], tuple[Result, ...]] = {}
    for r in results:
        if r.status is Status.SKIP:
            found[r.message, r.hint] = (*found.get((r.message, r.hint), ()), r)
    return [(reason, hint, listed) for (reason, hint), listed in found.items()]


def verdict(run: Run) -> tuple[str, str]:
    """(word, sentence) for the last line of a report."""
    total, seconds = len(run.results), sum(r.seconds for r in run.results)
    checks = "1 check" if total == 1 else f"{total} checks"
    text = f"{checks} in {seconds:.1f} s: {tally(run.results)}."
    if not run.complete:
        return "INCOMPLETE", f"Cut short after {text}"
    if not run.ok():
        return "FAIL", text
    skipped = sum(r.status is Status.SKIP for r in run.results)
    if skipped == total:
        return "SKIPPED", f"{text} Nothing was proven."
    if all(r.status in {Status.SKIP, Status.UNRATED, Status.INCONCLUSIVE} for r in run.results):
        return "UNRATED", f"{text} Nothing was judged."
    return "PASS", text + (" What was skipped is not proven." if skipped else "")


def gib(size: float) -> str:
    """Bytes as GiB, without decimals from 10 on."""
    value = size / 2**30
    return f"{value:.0f} GiB" if value >= 10 else f"{value:.1f} GiB"


def cuda(version: int) -> str:
    """12040 → "12.4"."""
    return f"{version // 1000}.{version % 1000 // 10}"


def heading(machine: Mapping[str, Any], image: Mapping[str, Any] | None) -> list[list[str]]:
    """What was judged, in three or four lines of parts: the image, the stack, GPUs and machine, whether recorded."""
    python, system, box = machine.get("python", {}), machine.get("system", {}), machine.get("container", {})
    lines: list[list[str]] = []
    if image:
        base = image.get("base", {}).get("name", "")
        parts = [f"{image.get('name', 'image')} {image.get('version', '')}".strip(), image.get("target", "")]
        parts += [" ".join(image.get("targets", [])), f"on {base}" if base else ""]
        lines.append([p for p in parts if p])
    else:
        lines.append(["outside the image"])
    packages = python.get("packages", {})
    stack = [f"Python {python.get('version', '?')}"]
    stack += [f"{n} {packages[n].split('+')[0]}" for n in ("torch", "xformers", "flash-attn") if n in packages]
    lines.append(stack)
    gpus, driver = machine.get("gpus", []), machine.get("driver", {})
    number = driver.get("version") or driver.get("kernel_module")
    cards: dict[str, int] = {}
    for g in gpus:
        label = f"{g.get('name', '?')} {gib(g['memory'])}" if g.get("memory") else g.get("name", "?")
        cards[label] = cards.get(label, 0) + 1
    parts = [f"{n} × {label}" if n > 1 else label for label, n in cards.items()] or ["no GPU"]
    if number:
        parts.append(f"driver {number}" + (f" (CUDA {cuda(driver['cuda'])})" if driver.get("cuda") else ""))
    lines.append(parts)
    cores, memory = box.get("cpu_limit") or system.get("cpus_usable"), box.get("memory_limit") or system.get("memory")
    parts = [f"{system['os_id']} {system.get('os_version', '')}".strip()] if system.get("os_id") else []
    parts += [box["engine"]] if box.get("engine") else []
    parts += ["1 core" if cores == 1 else f"{cores:g} cores"] if cores else []
    lines.append([*parts, f"{gib(memory)} of memory"] if memory else parts or ["nothing is known of the machine"])
    if machine.get("recorded"):
        lines.append([f"recorded {machine.get('taken', '')}", "judged from a file, nothing was probed"])
    return lines
