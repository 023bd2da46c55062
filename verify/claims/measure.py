"""Runs the works the rows need, each in a child with its own time limit. Parent side; imports no torch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable

from verify import child
from verify.claims.rows import CLAIMS
from verify.claims.words import Fact
from verify.claims.worker import WORKS


def wanted(ids: Iterable[str]) -> list[str]:
    """The works of the claims named (all when empty), in the order of WORKS."""
    chosen = set(ids)
    needed = {w for c in CLAIMS if not chosen or c.id in chosen for w in c.works}
    return [w for w in WORKS if w in needed]


def one(work: str, *, device: str = "cuda", tiny: bool = False) -> tuple[dict[str, Fact], str, float]:
    """(facts by "<work>.<name>", why something is missing or "", seconds) of one work."""
    argv = [sys.executable, "-m", "verify.claims.worker", work, device, *["tiny"] * tiny]
    # Nothing is downloaded: where a library would ask a hub, it finds the hub switched off.
    env = child.environment({"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "DIFFUSERS_OFFLINE": "1"})
    ended = child.run(argv, timeout=WORKS[work][0], env=env)
    answer = child.last_answer(ended) or {}
    facts = {f"{work}.{name}": Fact(*values) for name, values in answer.get("facts", {}).items()}
    problem = str(answer.get("problem", ""))
    if "problem" not in answer:
        last = ended.tail.splitlines()[-1:] or [""]
        problem = f"The measurement ended by {ended.ending[1] or 'itself'}. {last[0]}".strip()
    return facts, problem, ended.seconds


def measure(
    works: Iterable[str], before: Callable[[str], None], *, device: str = "cuda"
) -> tuple[dict[str, Fact], dict[str, str], dict[str, float]]:
    """All facts, the reasons of what is missing by work, and the seconds of each work."""
    facts, reasons, took = dict[str, Fact](), dict[str, str](), dict[str, float]()
    for work in works:
        before(work)
        found, problem, took[work] = one(work, device=device)
        facts |= found
        if problem:
            reasons[work] = problem
    return facts, reasons, took
