"""Proposes limits from what was measured on a card that somebody trusts, as TOML for `--limits`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from verify.core import BENCHES, Run, Sample, Status

# Of the worse bound of the interval: what a healthy card of the same model may differ by, from one to the next.
MARGIN = {"ratio": 0.95, "rate": 0.90, "bandwidth": 0.90, "items": 0.70, "time": 1.15}
# Ratios and times of Python depend on the version of torch; products and copies hardly do.
BOUND_TO_TORCH = {"ratio", "items"}
RATED = {Status.PASS, Status.FAIL, Status.UNRATED}


def rounded(value: float) -> float:
    """Three significant digits."""
    return float(f"{value:.3g}")


def slug(name: str) -> str:
    """A table's key from a GPU's name: "NVIDIA H200" → "h200"."""
    bare = re.sub(r"\b(?:nvidia|geforce)\b", "", name, flags=re.IGNORECASE)
    return re.sub(r"[^a-z0-9]+", "-", bare.lower()).strip("-") or "card"


def propose(run: Run) -> str:
    """A table for the first GPU of the run, of every benchmark that was measured undisturbed; "" when none was."""
    primary: Mapping[str, Sample] = {s.id: s for s in run.samples if ":" not in s.id}
    usable = [r for r in run.results if r.id in primary and r.status in RATED and r.data.get("low")]
    if not usable:
        return ""
    how = primary[usable[0].id].conditions
    name, torch = str(how.get("gpu", "")), str(how.get("torch", ""))
    driver = (run.machine.get("driver") or {}).get("version", "")
    where = f"measured on {name}, torch {torch}, driver {driver}, {run.started[:10]}"
    key = slug(name)
    lines: Sequence[str] = [
        "schema = 1",
        "",
        f"[gpu.{key}]",
        f"names = [{json.dumps(name)}]",
    ]
    made = list(lines)
    for r in usable:
        bench = BENCHES[r.id]
        higher = bench.better == "higher"
        bound = r.data["low"] if higher else r.data["high"]
        margin = MARGIN[bench.figure]
        source = f"{where}, {r.data['processes']} processes: {r.data['value']:.4g} {bench.unit} "
        source += f"({r.data['low']:.4g} to {r.data['high']:.4g}); {'low' if higher else 'high'} x {margin}"
        made += [
            "",
            f'[gpu.{key}.limit."{r.id}"]',
            f"{'at_least' if higher else 'at_most'} = {rounded(bound * margin)}",
            f"unit = {json.dumps(bench.unit)}",
        ]
        if bench.figure in BOUND_TO_TORCH:
            made.append(f'torch = "{".".join(torch.split(".")[:2])}"')
        made.append(f"source = {json.dumps(source)}")
    return "\n".join(made) + "\n"
