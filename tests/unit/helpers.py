"""Recorded machines and ways to break them."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from verify import core
from verify.core import Outcome, Result, Run, Status
from verify.machine import Machine

MACHINES = Path(__file__).parent.parent / "machines"


def load(name: str) -> Machine:
    """tests/machines/<name>.json as if it were this machine (not marked as recorded)."""
    return Machine.from_dict(json.loads((MACHINES / f"{name}.json").read_text()))


def change(m: Any, path: str, value: Any) -> Any:
    """A copy of a record with one fact changed: change(m, "container.memlock", 0); a dict's key works as a step."""
    head, _, rest = path.partition(".")
    if isinstance(m, dict):
        return {**m, head: change(m[head], rest, value) if rest else value}
    inner = getattr(m, head)
    return dataclasses.replace(m, **{head: change(inner, rest, value) if rest else value})


def disk(m: Machine, name: str, **facts: Any) -> Machine:
    """A copy with other facts about the folder called `name`."""
    assert m.disk(name), f"the recorded machine has no folder {name}"
    disks = tuple(dataclasses.replace(d, **facts) if d.name == name else d for d in m.disks)
    return dataclasses.replace(m, disks=disks)


def without_disk(m: Machine, *names: str) -> Machine:
    """A copy in which these folders were not looked at."""
    return dataclasses.replace(m, disks=tuple(d for d in m.disks if d.name not in names))


def env(m: Machine, **variables: str | None) -> Machine:
    """A copy with these variables set, or unset where None."""
    merged = {**m.env, **variables}
    return dataclasses.replace(m, env={k: v for k, v in merged.items() if v is not None})


def package(m: Machine, name: str, version: str | None) -> Machine:
    """A copy with another version of a package installed, or without it."""
    merged = {**m.python.packages, name: version}
    return change(m, "python.packages", {k: v for k, v in merged.items() if v is not None})


def ask(ident: str, m: Machine) -> Outcome:
    """What the check `ident` says of `m`, called directly."""
    return core.discover()[ident].function(m)


def result(ident: str = "stack.lock", status: Status = Status.PASS, message: str = "Well.", **facts: Any) -> Result:
    """A result to render."""
    hint = facts.pop("hint", "Do this." if status is Status.FAIL else "")
    return Result(ident, "A sentence.", "static", "image", status, message, hint, facts.pop("data", {}), 0.25, **facts)


def run_of(*results: Result, complete: bool = True, machine: str = "healthy-4090d", **facts: Any) -> Run:
    """A run to render."""
    m = load(machine)
    times = ("2026-08-30T03:12:45+00:00", "2026-08-30T03:13:00+00:00")
    return Run(*times, complete, m.to_dict(), m.image, results, **facts)
