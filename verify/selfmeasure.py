"""What the nightly comparison would have said: false alarms and detections, drawn from real fresh processes.

Input is the file of `verify bench selftest`: A/A processes, and processes with a real extra kernel of known size in the
compiled step. A night draws its processes without replacement, the baseline from other A/A processes than the night,
and asks the very functions the history asks. The intervals of rates are Wilson's for the number of nights drawn; they
do not know that all nights come from the same few dozen processes of one machine.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from verify import stats
from verify.core import UsageError
from verify.regression import Series, Verdict, compare
from verify.stats import Interval

NIGHTS = 500
SIZES = (3, 5, 7)  # processes a night
WIDTHS = 100  # nights whose intervals are computed: each costs thousands of medians
FIGURES = ("speed-up", "compiled step")


@dataclass(frozen=True)
class Process:
    """One fresh process: raw times in ms, the injected share, the SM clock in MHz."""

    injected: float
    order: int
    eager: tuple[float, ...]
    compiled: tuple[float, ...]
    clock: float | None
    achieved: float = 0.0

    @property
    def step(self) -> float:
        """Median of the compiled step, ms."""
        return statistics.median(self.compiled)

    @property
    def gain(self) -> float:
        """Speed-up by compiling, from medians."""
        return statistics.median(self.eager) / self.step


@dataclass(frozen=True)
class Rates:
    """Nights of `size` processes. `false` and `false_alarm` are of A/A, `detected` and `alarmed` by injected share.

    A night alone is SLOW or FAST, an alarm takes two SLOW nights in a row. Widths are median half widths, as shares.
    """

    size: int
    false: Interval
    false_alarm: Interval
    detected: Mapping[float, Interval]
    alarmed: Mapping[float, Interval]
    gain_width: float
    step_width: float


@dataclass(frozen=True)
class Analysis:
    """All sizes, and what the processes themselves were like."""

    workload: str
    card: str
    counts: Mapping[float, int]
    achieved: Mapping[float, float]
    spread: Mapping[str, float]  # (largest - smallest) / median over A/A processes, by figure
    drift: Mapping[str, float]  # last third of the A/A processes against the first
    left_out: int
    nights: int
    rates: tuple[Rates, ...]


def read(path: str) -> tuple[list[Process], dict[str, Any], int]:
    """The processes that measured undisturbed, what the file says of itself, and how many were left out."""
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
        listed = data["processes"]
        good = [p for p in listed if p.get("eager") and p.get("compiled") and not p.get("others")]
        made = [
            Process(
                float(p["injected"]),
                int(p["order"]),
                tuple(map(float, p["eager"])),
                tuple(map(float, p["compiled"])),
                p.get("clock_mhz"),
                float(p.get("achieved") or 0.0),
            )
            for p in good
        ]
    except OSError as error:
        raise UsageError(f"The measurements {path} cannot be read: {error.strerror}.") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            f"The file {path} is not what `verify bench selftest --json F` writes: {type(error).__name__} {error}."
        ) from error
    return sorted(made, key=lambda p: p.order), data, len(listed) - len(made)


def both(processes: Sequence[Process]) -> tuple[Series, Series]:
    """The two figures a night is judged by."""
    clocks = tuple(p.clock for p in processes)
    return (
        Series(tuple((p.gain,) for p in processes), "ratio", "higher"),
        Series(tuple((p.step,) for p in processes), "time", "lower", clocks),
    )


def night(baseline: Sequence[Process], processes: Sequence[Process], seed: int) -> tuple[Verdict, Verdict]:
    """What the history would say of both figures."""
    pairs = zip(both(baseline), both(processes), strict=True)
    first, second = (compare(old, new, resamples=400, seed=seed).verdict for old, new in pairs)
    return first, second


def rates(pools: Mapping[float, Sequence[Process]], size: int, nights: int, seed: int = 0) -> Rates:
    """Nights of `size` processes, drawn `nights` times for A/A and for each level; two nights share their baseline."""
    made = random.Random(seed)
    calm, wrong = pools[0.0], 0
    verdicts: dict[float, list[tuple[Verdict, Verdict]]] = {level: [] for level in pools}
    seconds: dict[float, int] = dict.fromkeys(pools, 0)
    for level, pool in pools.items():
        for turn in range(nights):
            drawn = made.sample(calm, size)
            # One process measures every level, so a night and its baseline must not share processes.
            used = {p.order for p in drawn}
            rest = [p for p in pool if p.order not in used]
            found = night(drawn, made.sample(rest, size), turn)
            verdicts[level].append(found)
            wrong += level == 0.0 and any(v in {Verdict.SLOW, Verdict.FAST} for v in found)
            slow = [v is Verdict.SLOW for v in found]
            if any(slow):
                again = night(drawn, made.sample(rest, size), turn + nights)
                seconds[level] += any(a and b is Verdict.SLOW for a, b in zip(slow, again, strict=True))
    detected = {
        level: stats.share(sum(Verdict.SLOW in v for v in found), nights) for level, found in verdicts.items() if level
    }
    alarmed = {level: stats.share(count, nights) for level, count in seconds.items() if level}
    sets = [made.sample(calm, size) for _ in range(min(WIDTHS, nights))]
    gain = [stats.ratio([p.eager for p in s], [p.compiled for p in s], resamples=400).half_width for s in sets]
    step = [stats.median([p.compiled for p in s], resamples=400).half_width for s in sets]
    return Rates(
        size,
        stats.share(wrong, nights),
        stats.share(seconds[0.0], nights),
        detected,
        alarmed,
        statistics.median(gain),
        statistics.median(step),
    )


def analyse(path: str, *, nights: int = NIGHTS, sizes: Sequence[int] = SIZES) -> Analysis:
    """Everything about one file. UsageError when it holds too few processes."""
    processes, about, left_out = read(path)
    pools: dict[float, list[Process]] = {}
    for p in processes:
        pools.setdefault(p.injected, []).append(p)
    calm = pools.get(0.0, [])
    fitting = [s for s in sizes if 2 * s <= len(calm) and all(s <= len(p) for p in pools.values())]
    if not fitting:
        raise UsageError(
            f"{len(calm)} A/A processes in {path} are too few: a night of {min(sizes)} needs {2 * min(sizes)}."
        )
    third = max(1, len(calm) // 3)
    values = {"speed-up": [p.gain for p in calm], "compiled step": [p.step for p in calm]}
    return Analysis(
        str(about.get("workload", "")),
        str((about.get("device") or {}).get("name", "")),
        {level: len(pool) for level, pool in sorted(pools.items())},
        {level: statistics.median(p.achieved for p in pool) for level, pool in sorted(pools.items()) if level},
        {name: (max(v) - min(v)) / statistics.median(v) for name, v in values.items()},
        {name: statistics.median(v[-third:]) / statistics.median(v[:third]) - 1 for name, v in values.items()},
        left_out,
        nights,
        tuple(rates(dict(sorted(pools.items())), size, nights) for size in fitting),
    )


def share_of(found: Interval) -> str:
    """ "99.4 % (98.7–99.7)"."""
    return f"{100 * found.value:.1f} % ({100 * found.low:.1f}–{100 * found.high:.1f})"


def markdown(a: Analysis) -> str:
    """The table for people, and what it is made of."""
    levels = [level for level in a.counts if level]
    head = ["processes a night", "interval of the speed-up", "of the compiled step", "A/A: SLOW or FAST", "A/A: alarm"]
    head += [f"+{100 * level:g} %: SLOW" for level in levels] + [f"+{100 * level:g} %: alarm" for level in levels]
    lines = [f"| {' | '.join(head)} |", f"|{'---:|' * len(head)}"]
    for r in a.rates:
        cells = [str(r.size), f"±{100 * r.gain_width:.2f} %", f"±{100 * r.step_width:.2f} %"]
        cells += [share_of(r.false), share_of(r.false_alarm)]
        cells += [share_of(r.detected[x]) for x in levels] + [share_of(r.alarmed[x]) for x in levels]
        lines.append(f"| {' | '.join(cells)} |")
    made = ", ".join(
        f"{n} of +{100 * level:g} % (really +{100 * a.achieved[level]:.2f} %)" for level, n in a.counts.items() if level
    )
    spread = ", ".join(f"{name} {100 * v:.2f} %" for name, v in a.spread.items())
    drift = ", ".join(f"{name} {100 * v:+.2f} %" for name, v in a.drift.items())
    lines += [
        "",
        f"{a.nights} nights drawn for each rate from real fresh processes of `{a.workload}` on {a.card or 'one card'}: "
        f"{a.counts[0.0]} A/A, {made}. Rates with Wilson's 95 % interval; an alarm is the second SLOW night in a row. "
        f"All A/A processes lie within {spread}; from the first third to the last they drifted by {drift}."
        + (f" {a.left_out} disturbed or failed processes are left out." if a.left_out else ""),
    ]
    return "\n".join(lines) + "\n"


def add_parser(commands: Any) -> None:
    """Add `selfmeasure`."""
    made = commands.add_parser(
        "selfmeasure",
        help="false-alarm and detection rates from the file of `verify bench selftest`",
        description="Work out what nightly comparisons would have said of processes that differ by nothing, and of "
        "known slowdowns. Prints a Markdown table.",
    )
    made.add_argument("file", metavar="FILE", help="what `verify bench selftest --json FILE` wrote")
    made.add_argument("--nights", type=int, default=NIGHTS, metavar="N", help="nights a rate; default %(default)s")
    made.add_argument("--json", action="store_true", help="as JSON")
    made.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """0; UsageError when the file cannot be used."""
    if options.nights < 1:
        raise UsageError("--nights takes a number from 1 on.")
    found = analyse(options.file, nights=options.nights)
    print(json.dumps(asdict(found), indent=1) if options.json else markdown(found), end="\n" * options.json)
    return 0
