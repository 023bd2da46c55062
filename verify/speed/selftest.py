"""The benchmark measures itself: what it says of two runs that differ by nothing, and of a known slowdown.

`verify bench selftest --json F` times GPT-2-124M training (bf16) in fresh processes: eager, compiled, and compiled with
a real extra kernel at the end of each step, a copy inside the card's memory that takes 1, 2, 3 or 5 % of it. All of
them take turns within a process. F holds

    {"schema": 1, "workload": id, "device": {...}, "pairs": n, "levels": [...], "seconds": s, "complete": bool,
     "processes": [{"injected": 0.0, "achieved": 0.0, "order": i, "eager": [ms…], "compiled": [ms…], "clock_mhz": …,
                    "throttled": [...], "others": [...], "temperature_c": …, "power_w": …, "converged": bool,
                    "start_s": …, "seconds": …} or {"order": i, "raised": text}]}

with one entry for each process (`order`) and level. `injected` is the share of the compiled step that was asked for
(0.01 = 1 %), `achieved` what the kernel really took, by CUDA events around it alone, over the median of the compiled
step without it. `eager` and `compiled` are all times in ms in the order they were taken. False alarms and detections
are worked out from this file by `verify selfmeasure`, which never compares a process with itself.

While one process is at the GPU, the next already imports torch and then waits for its turn.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, TextIO

from verify import child, core, timing
from verify.report import write
from verify.speed.plan import clock_text

WORKLOAD = "transformer.gpt2_amp"
LEVELS = (0.01, 0.02, 0.03, 0.05)
PROCESSES = 22
PAIRS = 24
PROCESS = 120.0  # seconds one process may take


def main(argv: list[str]) -> None:
    """In a child: `DEVICE PAIRS`; answers {"levels": entries of "processes", "device": facts}."""
    device, pairs = argv[0], int(argv[1])
    import torch
    import torch._inductor.compile_fx  # what compiling imports takes seconds: before the lock

    from verify.speed.watch import Watch
    from verify.speed.work import Setup
    from verify.speed.worker import device_facts

    core.discover("verify.bench")
    setup = Setup(device, tiny=device == "cpu")
    sys.stdin.readline()  # the turn: the process before this one is gone, and its memory on the card with it
    started = time.monotonic()
    watch = Watch()
    cuda = device == "cuda"
    others = watch.quiet(patience=2.0) if cuda else []
    torch.manual_seed(0)
    work = core.BENCHES[WORKLOAD].build(setup)
    clock = timing.events_clock() if cuda else timing.wall_clock()
    for call in work.calls.values():  # compiles, outside the warm-up
        call()
    least, most = (0.3, 3.0) if cuda else (0.0, 0.5)
    warmth = timing.warm_up(work.calls, clock, least_s=least, most_s=most)
    calls, achieved = dict(work.calls), {0.0: 0.0}
    for level in LEVELS:
        extra, achieved[level] = injection(level, warmth.medians["compiled"], clock, device)
        calls[str(level)] = followed(calls["compiled"], extra)
    timing.timed(calls, clock, timing.UNHELD)
    ready = time.monotonic()
    with watch.during() as looks:
        times = timing.timed(calls, clock, pairs)
    card = looks.summary()
    common = {
        "clock_mhz": card.get("clock_mhz"),
        "temperature_c": card.get("temperature_c"),
        "power_w": card.get("power_w"),
        "throttled": card.get("throttled", []),
        "others": [*others, *card.get("others", [])],
        "converged": warmth.converged,
        "start_s": round(ready - started, 2),
        "seconds": round(time.monotonic() - started, 2),
    }
    entries = [
        {"injected": level, "achieved": round(share, 5), "eager": times["eager"], **common}
        | {"compiled": times[str(level) if level else "compiled"]}
        for level, share in achieved.items()
    ]
    child.answer({"levels": entries, "device": device_facts() if cuda else {}})
    sys.stdout.flush()
    os._exit(0)


def followed(call: Callable[[], Any], extra: Callable[[], Any]) -> Callable[[], None]:
    """`call` and then `extra`."""

    def both() -> None:
        call()
        extra()

    return both


def injection(share: float, step_ms: float, clock: timing.Clock, device: str) -> tuple[Callable[[], Any], float]:
    """A copy that takes `share` of a step, and the share it was measured to take."""
    import torch

    def copying(size: int) -> Callable[[], Any]:
        source, target = (torch.empty(size, dtype=torch.uint8, device=device) for _ in range(2))
        return lambda: target.copy_(source)

    wanted, size = share * step_ms, 64 << 20
    if device != "cuda":
        size = 1 << 20
    for _ in range(3):  # a copy has a fixed part, so its size is found in steps
        call = copying(size)
        took = statistics.median(clock(call) for _ in range(9))
        size = max(1 << 16, int(size * wanted / took))
    call = copying(size)
    for _ in range(3):
        clock(call)
    return call, statistics.median(clock(call) for _ in range(15)) / step_ms


Begun = tuple[subprocess.Popen[bytes], Any]


def start(device: str, pairs: int) -> Begun:
    """A process that imports and waits for its turn, and the file its answer comes through."""
    answer = child.scratch()
    env = child.environment({child.ANSWER_FD: str(answer.fileno())})
    code = "import sys; from verify.speed.selftest import main; main(sys.argv[1:])"
    argv = [sys.executable, "-c", code, device, str(pairs)]
    pipe, null = subprocess.PIPE, subprocess.DEVNULL
    made = subprocess.Popen(argv, env=env, stdin=pipe, stdout=null, stderr=pipe, pass_fds=[answer.fileno()])
    return made, answer


def turn(begun: Begun) -> dict[str, Any]:
    """Let a process measure and give its answer; {"raised"} when there is none."""
    process, answer = begun
    try:
        _, said = process.communicate(b"go\n", timeout=PROCESS)
    except subprocess.TimeoutExpired:
        process.kill()
        _, said = process.communicate()
    answer.seek(0)
    lines = answer.read().decode().splitlines()
    answer.close()
    if lines:
        with contextlib.suppress(ValueError):
            made: dict[str, Any] = json.loads(lines[-1])
            return made
    tail = said.decode(errors="replace").strip()[-600:]
    return {"raised": f"exit code {process.returncode}: {tail}"}


def processes(count: int, device: str, pairs: int, deadline: float) -> Iterator[dict[str, Any]]:
    """The answers of `count` processes; the next imports while one measures. None starts after `deadline`."""
    begun: list[Begun] = []
    try:
        while count or begun:
            while count and len(begun) < 2 and time.monotonic() < deadline:
                begun.append(start(device, pairs))
                count -= 1
            if not begun:
                return
            yield turn(begun[0])
            begun.pop(0)
    finally:
        for process, _ in begun:
            process.kill()
            process.wait()


def run(
    path: str, *, minutes: float = 5.5, device: str = "cuda", pairs: int = PAIRS, stream: TextIO = sys.stderr
) -> dict[str, Any]:
    """The whole experiment; written to `path` as JSON after every process, so that nothing is lost when it is ended."""
    began = time.monotonic()
    made: dict[str, Any] = {"schema": 1, "workload": WORKLOAD, "device": {}, "pairs": pairs, "levels": [0.0, *LEVELS]}
    made |= {"seconds": 0.0, "complete": False, "processes": []}
    # The first process fills the compile cache and is thrown away.
    for number, found in enumerate(processes(PROCESSES + 1, device, pairs, began + 60 * minutes)):
        took = time.monotonic() - began
        if number:
            made["device"] = found.get("device") or made["device"]
            made["processes"] += [{"order": number - 1, **entry} for entry in found.get("levels", [found])]
        made["seconds"] = round(took, 1)
        made["complete"] = number == PROCESSES
        if path and path != "-":
            write(path, json.dumps(made) + "\n")
        left = min(60 * minutes - took, took / (number + 1) * (PROCESSES - number))
        stream.write(f"  {number}/{PROCESSES} {told(found)}; about {clock_text(max(0.0, left))} left\n")
        stream.flush()
    return made


def told(found: dict[str, Any]) -> str:
    """One process in a line."""
    if "raised" in found:
        return str(found["raised"])
    plain, *slowed = found["levels"]
    eager, compiled = (statistics.median(plain[n]) for n in ("eager", "compiled"))
    changes = [f"{100 * (statistics.median(e['compiled']) / compiled - 1):+.2f}" for e in slowed]
    return (
        f"{eager:.3f} / {compiled:.3f} ms = {eager / compiled:.4f}, slowed by {' '.join(changes)} %, "
        f"ready after {plain['start_s']:.1f} s, {plain['seconds']:.1f} s in all"
    )


def table(made: dict[str, Any]) -> str:
    """Per level: processes, median ratio, its spread between processes, and the change against A/A."""
    ratios: dict[float, list[float]] = {}
    for p in made["processes"]:
        if "raised" not in p:
            ratios.setdefault(p["injected"], []).append(
                statistics.median(p["eager"]) / statistics.median(p["compiled"])
            )
    base = statistics.median(ratios[0.0]) if ratios.get(0.0) else None
    lines = ["injected  processes  ratio   spread   change"]
    for level in sorted(ratios):
        values = ratios[level]
        middle = statistics.median(values)
        spread = (max(values) - min(values)) / middle
        change = f"{100 * (middle / base - 1):+.2f} %" if base else ""
        lines.append(f"{100 * level:5g} %   {len(values):9}  {middle:.4f}  {100 * spread:.2f} %   {change}")
    failed = sum("raised" in p for p in made["processes"])
    return "\n".join(lines) + f"\n{failed} process(es) failed; {made['seconds']:.0f} s in all\n"
