"""From what fresh processes measured to a verdict. Pure functions of plain data: a unit test needs no GPU."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from verify import stats
from verify.core import Bench, Outcome, Sample, Status, fail, skip
from verify.gpu.ask import explain
from verify.limits import Limit, Limits, Number, ceiling

Measured = Mapping[str, Any]  # what verify.speed.worker says of one bench in one process
AT_LEAST = 2  # processes a verdict needs
LOWERED = 0.9  # of the default power limit: less is somebody's setting
RERUN = "Run it again on an idle card."
MORE = "Let it run longer: leave out --budget and --processes, or give more."
SLOW = {
    "ratio": "Compiled code gains less than it should: `verify run compile attention_sdpa` proves the parts, and "
    'TORCH_LOGS="perf_hints,graph_breaks,recompiles" shows what was not fused.',
    "rate": "Arithmetic is slower than this card can do: `verify run condition binaries` shows a low power limit or a "
    "library without code for this card.",
    "bandwidth": "Memory or link is slower than it should be: `verify run condition.pcie_link` shows the slot, ECC and "
    "the clock of the memory are the other causes.",
    "items": "The input pipeline is too slow: give the container more CPU cores and --shm-size=8g.",
    "time": "This takes longer than it should on this card: `verify run condition` shows what slows it down.",
}


def scaled(bench: Bench, one: Measured, milliseconds: float) -> float:
    """A time in the unit of the figure; not for ratios."""
    seconds = milliseconds / 1000
    if bench.figure == "rate":
        return float(one["flops"]) / seconds / 1e12
    if bench.figure == "bandwidth":
        return float(one["bytes"]) / seconds / 1e9
    if bench.figure == "items":
        return float(one["items"]) / seconds
    return seconds * {"s": 1.0, "ms": 1e3, "us": 1e6}[bench.unit]


def figure(bench: Bench, one: Measured) -> float:
    """The figure of one process: from medians."""
    times = {name: statistics.median(values) for name, values in one["times"].items()}
    return times["eager"] / times["compiled"] if bench.figure == "ratio" else scaled(bench, one, times["time"])


def interval(bench: Bench, processes: Sequence[Measured]) -> stats.Interval:
    """The figure over all processes with its bounds."""
    if bench.figure == "ratio":
        groups = [[list(p["times"][name]) for p in processes] for name in ("eager", "compiled")]
        return stats.ratio(groups[0], groups[1])
    return stats.median([[scaled(bench, p, t) for t in p["times"]["time"]] for p in processes])


def middle(values: Sequence[Any]) -> float | None:
    """The median of what is known."""
    known = [v for v in values if v is not None]
    return statistics.median(known) if known else None


def host_bound(processes: Sequence[Measured]) -> dict[str, tuple[float, float]]:
    """Per closure whose call takes the host longer to queue than the GPU to run: (host, GPU), medians in ms.

    Its figure is the GPU's own time (verify/timing.py); a plain loop is slower than it by the difference. This is about
    the host and the size of the workload, so it is information and no part of the verdict.
    """
    found = {}
    for name in processes[0]["times"]:
        host = middle([p.get("host_ms", {}).get(name) for p in processes])
        gpu = statistics.median([t for p in processes for t in p["times"][name]])
        if host is not None and host > gpu:
            found[name] = (host, gpu)
    return found


def host_text(bound: Mapping[str, tuple[float, float]]) -> str:
    """ "host-bound here: the host needs 38 ms to queue a compiled call of 26 ms"; "" when nothing is."""
    calls = [
        f"{number(host)} ms to queue {'a' if name == 'time' else f'the {name}'} call of {number(gpu)} ms"
        for name, (host, gpu) in bound.items()
    ]
    return f"host-bound here: the host needs {' and '.join(calls)}" if calls else ""


def conditions(processes: Sequence[Measured]) -> dict[str, Any]:
    """How it was measured: the workload's own statement, and the card's state over all processes."""
    cards = [p.get("card", {}) for p in processes]
    peaks = [v for p in processes for v in p.get("peak_gib", {}).values()]
    return {
        **processes[0].get("conditions", {}),
        "clock_mhz": middle([c.get("clock_mhz") for c in cards]),
        "clocks_mhz": [c.get("clock_mhz") for c in cards],
        "power_w": middle([c.get("power_w") for c in cards]),
        "temperature_c": max((c["temperature_c"] for c in cards if c.get("temperature_c") is not None), default=None),
        "throttle": sorted({r for c in cards for r in c.get("throttle", {})}),
        "throttled": sorted({r for c in cards for r in c.get("throttled", ())}),
        "pcie_gen": middle([c.get("pcie_gen") for c in cards]),
        "pcie_width": middle([c.get("pcie_width") for c in cards]),
        "others": sorted({o for p in processes for o in (*p.get("others", ()), *p.get("card", {}).get("others", ()))}),
        "watched": all(c.get("looks") for c in cards),
        "memory_gib": max(peaks, default=None),
        "torch": processes[0].get("device", {}).get("torch", ""),
        "gpu": processes[0].get("device", {}).get("name", ""),
        "host_bound": host_text(host_bound(processes)),
        "power_limit_w": processes[0].get("fixed", {}).get("power_limit_w"),
        "power_default_w": processes[0].get("fixed", {}).get("power_default_w"),
    }


def samples(bench: Bench, processes: Sequence[Measured]) -> list[Sample]:
    """One value a process under the bench's id, and all raw times in ms under id:eager, id:compiled or id:time."""
    if not processes:
        return []
    how = conditions(processes)
    made = [Sample(bench.id, bench.unit, bench.better, tuple(figure(bench, p) for p in processes), how)]
    for name in processes[0]["times"]:
        counts = [len(p["times"][name]) for p in processes]
        values = tuple(t for p in processes for t in p["times"][name])
        made.append(Sample(f"{bench.id}:{name}", "ms", "lower", values, {**how, "processes": counts}))
    return made


def disturbed(how: Mapping[str, Any]) -> tuple[str, str]:
    """Why nothing can be concluded from these processes, and what to do; ("", "") when they were undisturbed."""
    if how["others"]:
        return (
            f"Not alone on the card: {', '.join(how['others'])}.",
            "Stop the other work on this card, or take a card of your own, and measure again.",
        )
    if how["throttled"]:
        return (
            f"The card slowed itself down ({', '.join(how['throttled'])}, {how['temperature_c']} °C), so its figures "
            "say nothing about the image.",
            "`verify run condition` says what to do about the card.",
        )
    limit, default = how["power_limit_w"], how["power_default_w"]
    if limit and default and limit < LOWERED * default and "software power cap" in how["throttle"]:
        return (
            f"The card's power limit is set to {limit:g} W of {default:g} W, so its figures say nothing about the "
            "image.",
            "On the host: nvidia-smi -pl gives the power back.",
        )
    return "", ""


def number(value: float) -> str:
    """Four significant digits, without an exponent."""
    return f"{value:.4g}" if abs(value) < 10000 else f"{value:.0f}"


def described(bench: Bench, found: stats.Interval, count: int, top: Number | None) -> str:
    """ "1.613 x (1.611 to 1.615; 3 processes), 71 % of the ceiling"."""
    text = f"{number(found.value)} {bench.unit} ({number(found.low)} to {number(found.high)}; {count} processes)"
    if top and bench.figure in {"rate", "bandwidth"}:
        text += f", {100 * found.value / top.value:.0f} % of the ceiling {number(top.value)}"
    return text


def facts(
    bench: Bench, processes: Sequence[Measured], found: stats.Interval, limit: Limit | None, top: Number | None
) -> dict[str, Any]:
    """Result.data of a benchmark."""
    first = processes[0]
    seconds = {n: statistics.median([t for p in processes for t in p["times"][n]]) / 1000 for n in first["times"]}
    fastest = min(seconds.values())
    top = top if top and top.unit == bench.unit else None  # a time has a ceiling in TFLOP/s: not on its axis
    return {
        **asdict(found),
        "unit": bench.unit,
        "better": bench.better,
        "limit": limit.value if limit else None,
        "limit_source": limit.source if limit else None,
        "published": limit.published if limit else None,
        "published_source": limit.published_source if limit else None,
        "ceiling": top.value if top else None,
        "ceiling_source": top.source if top else None,
        "processes": len(processes),
        "median_ms": {n: round(1000 * s, 4) for n, s in seconds.items()},
        "host_ms": {n: middle([p.get("host_ms", {}).get(n) for p in processes]) for n in first["times"]},
        "per_second": round(first["items"] / fastest, 2) if first.get("items") else None,
        "item": first.get("item") or None,
        "tflops": round(first["flops"] / fastest / 1e12, 2) if first.get("flops") else None,
        "compile_s": [p.get("compile_s") for p in processes],
        "cache": [p.get("cache", "") for p in processes],
        "peak_gib": first.get("peak_gib"),
        "errors": first.get("errors"),
        "warm_up": [p.get("warm_up") for p in processes],
        "seconds_per_process": [p.get("seconds") for p in processes],
    }


def judge(bench: Bench, processes: Sequence[Measured], limits: Limits, *, retries: int = 0) -> Outcome:
    """The verdict; `retries` are processes that were added because an earlier verdict was inconclusive."""
    for p in processes:
        if "raised" in p:
            return explain(p["raised"], p["message"], p.get("trace", ""))
    ran = [p for p in processes if "times" in p]
    if absent := [p["not_here"] for p in processes if "not_here" in p]:
        return skip(absent[0])
    if not ran:
        return Outcome(Status.INCONCLUSIVE, "It was not run: the time was up before.", "Give it a larger --budget.")
    how = conditions(ran)
    for p in ran:
        for name, (error, allowed) in p["errors"].items():
            if not error <= allowed:
                return fail(
                    f"The output is wrong, so its speed is no figure: {name} is off by {error:.2g}, "
                    f"{allowed:.2g} is allowed.",
                    hint="`verify run computes compile attention_sdpa` says what computes wrongly.",
                    data={"errors": p["errors"]},
                )
    found = interval(bench, ran)
    device = {**ran[0].get("device", {})}
    limit, reason = limits.limit(bench.id, device.get("name", "this card"), device.get("torch", ""))
    top = ceiling(limits, bench.bound, device, how)
    data = {**facts(bench, ran, found, limit, top), "retries": retries}
    text = described(bench, found, len(ran), top)
    text += f"; {how['host_bound']}" if how["host_bound"] else ""
    why, what = disturbed(how)
    if why:
        return Outcome(Status.INCONCLUSIVE, f"{why} Measured: {text}.", what, data)
    if len(ran) < AT_LEAST:
        return Outcome(Status.INCONCLUSIVE, f"{text}: one process cannot tell its own noise.", MORE, data)
    if limit is None:
        hint = "`verify bench --record` proposes limits from a card you trust; `--limits FILE` uses them."
        return Outcome(Status.UNRATED, f"{text}; unrated: {reason}.", hint, data)
    word = "at least" if bench.better == "higher" else "at most"
    status = stats.judge(found, limit.value, bench.better)
    message = f"{text}; {word} {number(limit.value)} is asked."
    if status is Status.FAIL and not all((p.get("warm_up") or {}).get("converged", True) for p in ran):
        status, message = Status.INCONCLUSIVE, f"{message} The times had not settled after the warm-up."
    if status is Status.INCONCLUSIVE:
        return Outcome(status, f"{message} The limit lies within the noise.", RERUN, data)
    if status is Status.FAIL:
        return fail(message, hint=SLOW[bench.figure], data=data)
    return Outcome(Status.PASS, message, "", data)
