"""SYNTHETIC runs with benchmarks, for report and history: invented figures of a healthy card, no measurement."""

from __future__ import annotations

import random
from dataclasses import asdict, replace
from datetime import datetime, timedelta, timezone
from typing import Any

from tests.unit import helpers
from verify import core, runner, stats
from verify.core import Result, Run, Sample, Status

ARTICLE, PUBLIC = "article", "public measurement, one submitter"
# id, title, unit, better, figure, limit, ceiling, published, its source
BENCHES: tuple[tuple[str, str, str, str, float, float | None, float | None, float | None, str], ...] = (
    ("resnet.tf32_nchw", "Compiling speeds up ResNet-50 training, TF32, NCHW: what a script gets that sets nothing.",
     "x", "higher", 1.312, 1.10, None, 1.36, ARTICLE),
    ("resnet.amp_channels_last", "Compiling speeds up ResNet-50 training, bf16 autocast, channels_last: the fast way.",
     "x", "higher", 1.187, 1.10, None, None, ""),
    ("transformer.gpt2_amp", "Compiling speeds up GPT-2-124M training, bf16 autocast, 8 x 1024 tokens.",
     "x", "higher", 1.244, 1.15, None, 1.49, ARTICLE),
    ("diffusion.train_bf16", "Compiling speeds up a training step of SD 1.5's UNet, bf16 weights, batch 4.",
     "x", "higher", 1.051, 1.05, None, 1.26, ARTICLE),
    ("gemm.square_15000", "The article's 15000 x 15000 product takes no longer than it should.",
     "s", "lower", 0.1338, 0.38, None, 0.38, ARTICLE),
    ("gemm.fp32", "fp32 products of 8192 x 8192 reach their share of the card's arithmetic.",
     "TFLOP/s", "higher", 50.6, 37.6, 73.2, 50.07, PUBLIC),
    ("gemm.bf16", "bf16 products of 8192 x 8192 reach their share of the card's arithmetic.",
     "TFLOP/s", "higher", 147.4, 112.0, 158.3, 148.9, PUBLIC),
    ("memory.dram_copy", "Copies inside the card's memory reach their share of its bandwidth.",
     "GB/s", "higher", 917.0, 690.0, 1008.0, None, ""),
    ("memory.h2d_pinned", "Pinned memory reaches the card as fast as its link allows.",
     "GB/s", "higher", 12.9, 18.9, 31.5, None, ""),
    ("launch.latency", "Launching a kernel costs a few microseconds.", "us", "lower", 3.61, None, None, None, ""),
    ("attention.flash_fp16", "FlashAttention-2 forward, causal, 4096 tokens, reaches its share of the arithmetic.",
     "TFLOP/s", "higher", 131.2, None, 158.3, None, ""),
)  # fmt: skip


def spread(unit: str) -> float:
    """How far processes lie apart, as a share."""
    return 0.0006 if unit == "x" else 0.004


def bench(row: tuple[Any, ...], made: random.Random, factor: float, processes: int) -> tuple[Result, list[Sample]]:
    """One benchmark's result and samples."""
    ident, title, unit, better, figure, limit, ceiling, published, source = row
    figure = figure * factor if better == "lower" else figure / factor
    values = tuple(figure * made.gauss(1, spread(unit)) for _ in range(processes))
    found = stats.median([[v] for v in values])
    status = stats.judge(found, limit, better) if limit else Status.UNRATED
    how = {
        "amp": "bfloat16" if "amp" in ident or "bf16" in ident else "off", "tf32": "on",
        "clock_mhz": 2730.0 + made.gauss(0, 4), "clocks_mhz": [2730.0 + made.gauss(0, 2) for _ in values],
        "power_w": 398.0, "temperature_c": 63,
        "memory_format": "channels_last" if "channels" in ident else "contiguous",
    }  # fmt: skip
    data = {
        **asdict(found), "unit": unit, "better": better, "limit": limit, "ceiling": ceiling, "published": published,
        "published_source": source or None, "limit_source": "synthetic", "processes": processes,
    }  # fmt: skip
    shown = "x" if unit == "x" else unit
    words = f"{found.value:.4g} {shown} ({found.low:.4g} to {found.high:.4g}; {processes} processes)"
    hint = {
        Status.FAIL: "Memory or link is slower than it should be: `verify run condition.pcie_link` shows the slot.",
        Status.UNRATED: "`verify bench --record` proposes limits from a card you trust; `--limits FILE` uses them.",
        Status.INCONCLUSIVE: "Run it again on an idle card.",
    }.get(status, "")
    result = Result(ident, title, "speed", "machine", status, words, hint, data, 6.0)
    return result, [Sample(ident, unit, better, values, how)]


def run(day: int = 0, *, factor: float = 1.0, processes: int = 7, seed: int = 0) -> Run:
    """One night's run of a healthy card: every check that a recorded machine can answer, and the benchmarks."""
    made = random.Random(1000 + day + seed)
    m = helpers.load("healthy-4090d")
    recorded = replace(m, recorded=True)
    checks = [runner.run_one(c, recorded) for c in core.discover().values() if c.tier in {"static", "gpu"}]
    done = [bench(row, made, factor, processes) for row in BENCHES]
    started = datetime(2026, 8, 1, 3, 12, 45, tzinfo=timezone.utc) + timedelta(days=day)
    times = tuple(t.isoformat(timespec="seconds") for t in (started, started + timedelta(minutes=7)))
    image = {**(m.image or {}), "name": "SYNTHETIC"}
    results = (*checks, *(r for r, _ in done))
    return Run(times[0], times[1], True, m.to_dict(), image, results, tuple(s for _, ss in done for s in ss))
