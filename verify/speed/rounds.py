"""Runs benchmarks in fresh processes, round after round, and gives each one's verdict. Parent side: no torch here."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TextIO

from verify import child, core, runner
from verify.core import Bench, Outcome, Result, Sample, Status
from verify.gpu.ask import ending
from verify.limits import Limits, load
from verify.machine import Machine
from verify.scratch import RECORDED
from verify.speed import progress
from verify.speed.judge import judge, samples
from verify.speed.plan import Clock, Plan, plan

RETRIES = 2  # more processes for what is inconclusive
PATIENCE = 180.0  # seconds a process may take, and for each bench again: compiling from a cold cache takes minutes
DEVICE = "cuda"
Found = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Session:
    """How a set of benchmarks is run. `deadline` is of time.monotonic, None without one; `stream` gets the progress."""

    limits: Limits
    stream: TextIO | None = None
    deadline: float | None = None
    device: str = DEVICE

    def late(self) -> bool:
        """The time is up."""
        return self.deadline is not None and time.monotonic() >= self.deadline


def process(ids: Sequence[str], device: str) -> Found:
    """Measurements of one fresh process; what is left after a crash runs in another."""
    found: Found = {}
    left = list(ids)
    while left:
        argv = [sys.executable, "-m", "verify.speed.worker", device, *left]
        ended = child.run(argv, timeout=PATIENCE * (1 + len(left)), env=child.environment())
        said = child.last_answer(ended)
        if not isinstance(said, dict) or "raised" in said:
            given = said if isinstance(said, dict) else crashed(ended)
            return {**found, **{n: {k: given.get(k, "") for k in ("raised", "message", "trace")} for n in left}}
        shared = {"device": said["device"], "fixed": said["fixed"], "others": said["others"]}
        found |= {name: {**one, **shared} for name, one in said["done"].items()}
        if said["now"]:
            found[said["now"]] = crashed(ended)
        left = [n for n in left if n not in found]
    return found


def crashed(ended: child.Child) -> dict[str, Any]:
    """A process that ended in the middle, as if it had raised."""
    known = ending("the benchmark", ended)
    return {"raised": "Crash", "message": f"{known.message} {ended.tail[-800:]}", "trace": ended.tail, "seconds": 0.0}


def bandwidth(m: Machine) -> float | None:
    """GB/s of the first GPU's memory by clock and bus width; None when the driver does not tell."""
    g = m.gpus[0] if m.gpus else None
    if g is None or not g.memory_clock_max or not g.memory_bus:
        return None
    return round(2 * g.memory_clock_max * 1e6 * g.memory_bus / 8 / 1e9, 1)


def measure(the_plan: Plan, session: Session, m: Machine) -> Iterator[dict[str, list[dict[str, Any]]]]:
    """Run a plan and then the bounded retries; yields what there is after each process, the same dict each time."""
    benches, clock, done = core.BENCHES, Clock(), 0.0
    found: dict[str, list[dict[str, Any]]] = {n: [] for ids in the_plan.groups.values() for n in ids}
    queue = [(r, g, ids) for r in range(the_plan.processes) for g, ids in the_plan.groups.items()]
    retries, extra = 0, bandwidth(m)
    while queue and not session.late():
        turn, group, ids = queue.pop(0)
        expected, after = clock.process(benches, ids), sum(clock.process(benches, i) for _, _, i in queue)
        text = f"{turn + 1}/{the_plan.processes + retries} {group}"
        started = time.monotonic()
        with progress.ticking(session.stream, text, done, expected, after):
            made = process(ids, session.device)
        took = time.monotonic() - started
        done += took
        clock = clock.learn(benches, made)
        for name, one in made.items():
            if extra and one.get("device"):
                one["device"] = {**one["device"], "memory_gbs": extra}
            found[name].append(one)
        left = sum(clock.process(benches, i) for _, _, i in queue)
        if session.stream is not None:
            session.stream.write(progress.finished(text, made, took, left))
            session.stream.flush()
        # What can never be measured here is not tried again.
        dead = {n for n, ones in found.items() if any("raised" in o or "not_here" in o for o in ones)}
        queue = [(r, g, kept) for r, g, i in queue if (kept := tuple(n for n in i if n not in dead))]
        if not queue and retries < RETRIES:
            unsure = [n for n, ones in found.items() if judge(benches[n], ones, session.limits).status is UNSURE]
            retries += 1
            again = {g: tuple(n for n in i if n in unsure) for g, i in the_plan.groups.items()}
            queue = [(the_plan.processes + retries - 1, g, i) for g, i in again.items() if i]
        yield found


UNSURE = Status.INCONCLUSIVE


def outcomes(the_plan: Plan, session: Session, m: Machine) -> Iterator[tuple[str, Outcome]]:
    """(id, verdict) of every bench of the plan, when all are measured; after an interruption those that were begun."""
    found: dict[str, list[dict[str, Any]]] = {n: [] for ids in the_plan.groups.values() for n in ids}
    cut: BaseException | None = None
    try:
        for made in measure(the_plan, session, m):
            found = made
    except BaseException as error:
        cut = error
    for name, ones in found.items():
        if ones or cut is None:
            yield name, verdict(core.BENCHES[name], ones, session.limits, the_plan.processes)
    for name in the_plan.left_out if cut is None else ():
        words = "Left out: it did not fit into the budget."
        yield name, Outcome(Status.INCONCLUSIVE, words, "Give it a larger --budget.")
    if cut is not None:
        raise cut


def verdict(bench: Bench, ones: Sequence[Mapping[str, Any]], limits: Limits, planned: int) -> Outcome:
    """The judge's outcome with the samples in its data, from where `lift` takes them."""
    made = judge(bench, ones, limits, retries=max(0, len(ones) - planned))
    ran = [o for o in ones if "times" in o]
    spent = sum(float(o.get("seconds", 0)) for o in ones)
    return replace(made, data={**made.data, "samples": [asdict(s) for s in samples(bench, ran)], "spent_s": spent})


def results(
    checks: Iterable[core.Check],
    m: Machine,
    session: Session,
    *,
    full: bool = False,
    budget_s: float | None = None,
    require: Iterable[str] = (),
) -> Iterator[Result]:
    """A Result of each bench among `checks`; needs that are not met and requirements are those of every check."""
    listed, wanted = list(checks), frozenset(require)

    def finish(check: core.Check, made: Outcome) -> Result:
        # The GPU is here: what this card does not have (fp8, an attention kernel) is no missing requirement.
        kept = wanted & {"speed"} if not m.recorded else wanted
        said = runner.run_one(replace(check, function=lambda _: made, isolate=False), m, require=kept)
        return replace(said, seconds=round(float(made.data.get("spent_s", 0.0)), 1))

    able = []
    for check in listed:
        if m.recorded:
            yield finish(check, core.skip(RECORDED))
        elif runner.unmet(check, m)[0]:
            yield runner.run_one(check, m, require=wanted)
        else:
            able.append(check)
    the_plan = plan([core.BENCHES[c.id] for c in able], full=full, budget_s=budget_s)
    by_id = {c.id: c for c in able}
    for name, made in outcomes(the_plan, session, m) if able else ():
        yield finish(by_id[name], made)


def measure_one(bench: Bench, m: Machine) -> Outcome:
    """One bench alone: what its check of tier "speed" does."""
    if m.recorded:
        return core.skip(RECORDED)
    made = dict(outcomes(plan([bench], full=False), Session(load(core.BENCHES)), m))
    return made[bench.id]


def lift(results: Iterable[Result]) -> tuple[tuple[Result, ...], tuple[Sample, ...]]:
    """Results without the samples in their data, and the samples."""
    kept, taken = list[Result](), list[Sample]()
    for r in results:
        data = {k: v for k, v in r.data.items() if k != "samples"}
        taken += [Sample(**{**s, "values": tuple(s["values"])}) for s in r.data.get("samples", ())]
        kept.append(replace(r, data=data))
    return tuple(kept), tuple(taken)
