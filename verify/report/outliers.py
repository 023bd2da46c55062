"""Which nodes of a fleet differ from the others: figures by median and MAD, facts by majority.

Nodes are compared with nodes of the same GPUs only. How long a check took is no figure: it tells of disks and caches.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from verify.core import Run

# Distance from the median in robust standard deviations (1.4826 MAD) that a healthy fleet of so many nodes exceeds
# in 1 of 100 fleets: 99 % quantile of the largest of n normal deviates, simulated (400 000 fleets each).
CUTOFFS = ((5, 19.0), (6, 10.8), (8, 8.0), (10, 7.0), (12, 6.3), (16, 5.7), (20, 5.3), (30, 4.8), (50, 4.5))
# With fewer nodes MAD says nothing; what is as far off as this is told, as a fraction of the median.
FEW, FAR = 3, 0.10
# Less than this fraction of the median is no outlier, however alike the others are.
FLOOR = 0.02


@dataclass(frozen=True)
class Outlier:
    """A node's figure far from the fleet's. `score` is in robust standard deviations, None where the nodes are few."""

    node: str
    id: str
    unit: str
    value: float
    middle: float
    score: float | None
    nodes: int
    worse: bool

    @property
    def change(self) -> float:
        """Distance from the median as a fraction of it."""
        return self.value / self.middle - 1

    def sentence(self) -> str:
        """What a person reads."""
        how = f"{self.nodes} nodes are too few for a statistic" if self.score is None else f"{self.score:.1f} robust σ"
        side = "worse" if self.worse else "better"
        return (
            f"{self.id} is {self.value:.4g} {self.unit}, {abs(self.change):.1%} {side} than the median "
            f"{self.middle:.4g} of {self.nodes} nodes with these GPUs ({how})."
        )


def cards(run: Run) -> tuple[tuple[str, int], ...]:
    """What makes nodes comparable: the names of the GPUs and their memory in GiB (48 GB conversions share a name)."""
    return tuple(
        sorted((str(g.get("name")), round((g.get("memory") or 0) / 2**30)) for g in run.machine.get("gpus") or ())
    )


def cutoff(nodes: int) -> float | None:
    """The distance from which a node of so many is an outlier; None for fewer than the table knows."""
    return next((far for least, far in reversed(CUTOFFS) if nodes >= least), None)


def outliers(runs: Mapping[str, Run]) -> list[Outlier]:
    """All figures that are far from those of the other nodes with the same GPUs, the worst first."""
    figures: dict[tuple[Any, ...], dict[str, float]] = {}
    for name, run in runs.items():
        for sample in run.samples:
            values = [v for v in sample.values if isinstance(v, (int, float)) and math.isfinite(v)]
            if values:
                key = (cards(run), sample.id, sample.unit, sample.better)
                figures.setdefault(key, {})[name] = median(values)
    found = []
    for (_, ident, unit, better), values_of in figures.items():
        middle, number = median(values_of.values()), len(values_of)
        if number < FEW or middle <= 0:
            continue
        limit = cutoff(number)
        sigma = 1.4826 * median(abs(v - middle) for v in values_of.values())
        for node, value in values_of.items():
            away = abs(value - middle)
            score = away / sigma if sigma else math.inf
            if away > FLOOR * middle and (score > limit if limit is not None else away > FAR * middle):
                worse = (value < middle) == (better == "higher")
                told = score if limit is not None else None
                found.append(Outlier(node, ident, unit, value, middle, told, number, worse))
    return sorted(found, key=lambda o: (not o.worse, -abs(o.change), o.node))


def facts(run: Run) -> dict[str, str]:
    """Facts that should be the same on every node of a fleet; what a node does not say is left out."""
    machine, image = run.machine, run.image or {}
    driver, box, system = (machine.get(k) or {} for k in ("driver", "container", "system"))
    gpus: Sequence[Mapping[str, Any]] = machine.get("gpus") or ()
    stack = (machine.get("python") or {}).get("packages") or {}
    limits = sorted({f"{g['power_limit']:g} W" for g in gpus if g.get("power_limit")})
    links = sorted({f"x{g['pcie_width_max']} gen {g.get('pcie_gen_max')}" for g in gpus if g.get("pcie_width_max")})
    names = Counter(f"{name} {size} GiB" for name, size in cards(run))
    cores = box.get("cpu_limit") or system.get("cpus_usable")
    said = {
        "image": " ".join(str(image.get(k) or "") for k in ("version", "revision")).strip(),
        "lock": str((image.get("lock") or {}).get("sha256") or "")[:12],
        "torch": str(stack.get("torch") or ""),
        "driver": str(driver.get("version") or ""),
        "GPUs": ", ".join(f"{n} × {name}" for name, n in sorted(names.items())) or "none",
        "power limit": ", ".join(limits),
        "PCIe": ", ".join(links),
        "cores": f"{cores:g}" if cores else "",
        "tiers": ", ".join(sorted({r.tier for r in run.results})),
    }
    return {label: text for label, text in said.items() if text}


def odd_facts(runs: Mapping[str, Run]) -> dict[str, dict[str, str]]:
    """Node → fact → sentence, where it differs from what more than half of the nodes (of at least three) say."""
    said = {name: facts(run) for name, run in runs.items()}
    found: dict[str, dict[str, str]] = {}
    for label in dict.fromkeys(label for mine in said.values() for label in mine):
        values = {name: mine[label] for name, mine in said.items() if label in mine}
        most, number = Counter(values.values()).most_common(1)[0]
        if len(values) < FEW or 2 * number <= len(values):
            continue
        for name, value in values.items():
            if value != most:
                text = f"{label} {value}, where {number} of {len(values)} nodes have {most}."
                found.setdefault(name, {})[label] = text
    return found
