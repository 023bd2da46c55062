"""How many processes of which benchmarks fit into the time, and how long is left. Pure functions and one record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from verify.core import Bench

START = 5.0  # seconds to start a process, import torch and open the device
COMPILED = 4.0  # seconds of a compile whose code is in the cache, for a benchmark seen only with a cold one
QUICK, FULL = 3, 7
FEWEST = 2  # processes that can still tell noise


@dataclass(frozen=True)
class Plan:
    """Groups of benchmarks that share a process, how often each is run, and what was left out for the time."""

    groups: Mapping[str, tuple[str, ...]]
    processes: int
    left_out: tuple[str, ...] = ()


def grouped(benches: Iterable[Bench]) -> dict[str, tuple[str, ...]]:
    """Group → ids, in the order given."""
    made: dict[str, tuple[str, ...]] = {}
    for b in benches:
        made[b.group] = (*made.get(b.group, ()), b.id)
    return made


def cost(benches: Iterable[Bench], processes: int, seconds: Mapping[str, float] | None = None) -> float:
    """Seconds of a plan; `seconds` are those measured for a bench, the declared ones stand in for the others."""
    known, listed = seconds or {}, list(benches)
    return processes * (START * len(grouped(listed)) + sum(known.get(b.id, b.seconds) for b in listed))


def plan(benches: Iterable[Bench], *, full: bool, budget_s: float | None = None) -> Plan:
    """Fewer processes first, then fewer benchmarks (those outside the quick set first), until it fits the budget."""
    chosen, processes, out = list(benches), FULL if full else QUICK, list[str]()
    if budget_s is not None:
        while processes > FEWEST and cost(chosen, processes) > budget_s:
            processes -= 1
        while len(chosen) > 1 and cost(chosen, processes) > budget_s:
            # Quick ones stay longest, and of equals the longest goes first.
            gone = max(chosen, key=lambda b: (not b.quick, b.seconds))
            chosen.remove(gone)
            out.append(gone.id)
    return Plan(grouped(chosen), processes, tuple(out))


@dataclass(frozen=True)
class Clock:
    """What is known of the seconds so far: per bench, and how measured compares with declared."""

    seen: Mapping[str, float] = field(default_factory=dict)
    factor: float = 1.0

    def learn(self, benches: Mapping[str, Bench], found: Mapping[str, Mapping[str, object]]) -> Clock:
        """With the measurements of one more process. A cold compile is taken for a warm one from now on."""
        seen = dict(self.seen)
        for name, one in found.items():
            took = one.get("seconds")
            if isinstance(took, (int, float)):
                compiled = one.get("compile_s")
                if one.get("cache") == "cold" and isinstance(compiled, (int, float)):
                    took = took - compiled + COMPILED
                seen[name] = float(took)
        declared = sum(benches[n].seconds for n in seen)
        return replace(self, seen=seen, factor=sum(seen.values()) / declared if declared else 1.0)

    def process(self, benches: Mapping[str, Bench], ids: Iterable[str]) -> float:
        """Expected seconds of one process that runs `ids`."""
        return START + sum(self.seen.get(n, benches[n].seconds * self.factor) for n in ids)


def clock_text(seconds: float) -> str:
    """ "2:05"."""
    whole = max(0, round(seconds))
    return f"{whole // 60}:{whole % 60:02d}"
