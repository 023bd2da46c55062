"""In a fresh process: build, check and time benchmarks, and tell each one's measurement before the next begins.

Called as `python -m verify.speed.worker DEVICE ID…`.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import sys
import time
import traceback
from typing import Any

from verify import core, timing
from verify.child import answer
from verify.runner import STICKY
from verify.speed.watch import Watch
from verify.speed.work import NotHere, Setup, Work

TAIL = 4000


def device_facts() -> dict[str, Any]:
    """Name, sm, SM count and memory in GiB of the device that torch uses, and torch's version."""
    import torch

    p = torch.cuda.get_device_properties(torch.cuda.current_device())
    return {
        "name": p.name,
        "sm": f"sm_{p.major}{p.minor}",
        "sm_count": p.multi_processor_count,
        "memory_gib": round(p.total_memory / (1 << 30), 2),
        "l2_mib": (getattr(p, "L2_cache_size", 0) or 0) >> 20,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
    }


def prepared(work: Work, setup: Setup) -> dict[str, Any]:
    """The first call of each closure: its seconds and the peak of allocated memory."""
    import torch

    facts: dict[str, Any] = {"first_call_s": {}, "peak_gib": {}}
    for name, call in work.calls.items():
        if setup.device == "cuda":
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        started = time.monotonic()
        call()
        if setup.device == "cuda":
            torch.cuda.synchronize()
            facts["peak_gib"][name] = round(torch.cuda.max_memory_allocated() / (1 << 30), 3)
        facts["first_call_s"][name] = round(time.monotonic() - started, 2)
    return facts


def cache_state() -> str:
    """ "cold" when inductor had to compile since the counters were cleared, "warm" when it found all in its cache."""
    if "torch._dynamo" not in sys.modules:
        return ""
    from torch._dynamo.utils import counters

    missed = counters["inductor"]["fxgraph_cache_miss"] + counters["aot_autograd"]["autograd_cache_miss"]
    found = counters["inductor"]["fxgraph_cache_hit"] + counters["aot_autograd"]["autograd_cache_hit"]
    return "cold" if missed else ("warm" if found else "")


def measure(bench: core.Bench, setup: Setup, watch: Watch) -> dict[str, Any]:
    """One bench in this process."""
    import torch

    if "torch._dynamo" in sys.modules:  # importing it takes seconds, and kernels do without
        from torch._dynamo.utils import counters

        torch._dynamo.reset()
        counters.clear()
    torch.manual_seed(0)
    work = bench.build(setup)
    built = time.monotonic()
    errors = work.check()  # the first call of a compiled model: this is where it is compiled
    compile_s, state = time.monotonic() - built, cache_state()
    facts = prepared(work, setup)
    cuda = setup.device == "cuda"
    host: dict[timing.Call, list[float]] = {}
    if work.wall or not cuda:
        clock = timing.wall_clock(torch.cuda.synchronize if cuda else (lambda: None))
    else:
        clock = timing.events_clock(host)
    warmth = timing.warm_up(work.calls, clock, **({"least_s": 0.0, "most_s": 0.5} if setup.tiny else {}))
    count = 2 if setup.tiny else timing.repeats(warmth, work.seconds, work.least, work.most)
    with watch.during() as looks:
        times = timing.timed(work.calls, clock, count)
    return {
        "times": {name: [t / work.inner for t in values] for name, values in times.items()},
        "errors": {name: list(pair) for name, pair in errors.items()},
        "flops": work.flops / work.inner,
        "bytes": work.bytes / work.inner,
        "items": work.items / work.inner,
        "item": work.item,
        "conditions": dict(work.conditions),
        "compile_s": round(compile_s, 2) if "compiled" in work.calls else None,
        "cache": state,
        "warm_up": {"calls": warmth.calls, "seconds": warmth.seconds, "converged": warmth.converged},
        "host_ms": {
            name: round(min(host[call]) / work.inner, 4) for name, call in work.calls.items() if host.get(call)
        },
        "card": looks.summary(),
        **facts,
    }


def main(argv: list[str]) -> None:
    """Answer {"order": ids, "done": {id: measurement}, "now": the running id, "device": facts, "others": before}."""
    faulthandler.enable()
    setup, order = Setup(argv[0], tiny=argv[0] == "cpu"), argv[1:]
    core.discover("verify.bench")
    said: dict[str, Any] = {"order": order, "done": {}, "now": "", "device": {}, "others": [], "fixed": {}}
    started = time.monotonic()
    try:
        import torch

        watch = Watch()
        if setup.device == "cuda":
            said["others"] = watch.quiet()
            torch.cuda.init()
            said["device"] = device_facts()
            said["fixed"] = watch.fixed()
    except BaseException as error:
        answer({**said, "raised": type(error).__name__, "message": str(error), "trace": traceback.format_exc()[-TAIL:]})
        os._exit(0)
    said["start_s"] = round(time.monotonic() - started, 2)
    for name in order:
        said["now"] = name
        answer(said)
        started = time.monotonic()
        try:
            found = measure(core.BENCHES[name], setup, watch)
        except NotHere as reason:
            found = {"not_here": str(reason)}
        except BaseException as error:
            trace = traceback.format_exc()
            found = {"raised": type(error).__name__, "message": str(error), "trace": trace[-TAIL:]}
        found["seconds"] = round(time.monotonic() - started, 2)
        said["done"][name], said["now"] = found, ""
        answer(said)
        if "raised" in found and STICKY.search(str(found["message"])):
            break  # every later CUDA call of this process would fail; the parent starts another for the rest
        gc.collect()
        if setup.device == "cuda":
            torch.cuda.empty_cache()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # a library's atexit handlers are not under test, and may hang


if __name__ == "__main__":
    main(sys.argv[1:])
