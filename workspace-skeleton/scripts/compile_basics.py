"""torch.compile, first steps: what it costs once, what it gives on every call, and what its options do.

Eager and compiled calls are timed in turn, after the compilation: timing the first call would time the compiler.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import nn

import _common as common

OPTIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "fullgraph": {"fullgraph": True},  # an error instead of a silent split into several graphs
    "dynamic": {"dynamic": True},  # one graph for every batch size, at some speed
    "reduce-overhead": {"mode": "reduce-overhead"},  # CUDA graphs: for small batches, where launches dominate
    "max-autotune": {"mode": "max-autotune"},  # tries many kernels: minutes for a large model
}


def main() -> None:
    parser = common.parser(__doc__)
    common.size(parser, "--batch", 4096, 8, "rows per call")
    common.size(parser, "--width", 1024, 32, "features of a row; the hidden layer is four times as wide")
    common.size(parser, "--repeat", 30, 3, "timed calls")
    run = common.start(parser, "compile_basics")
    batch, width = run.options.batch, run.options.width

    model = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.LayerNorm(4 * width), nn.Linear(4 * width, width))
    model = model.to(run.device, run.dtype).eval()
    x = torch.randn(batch, width, device=run.device, dtype=run.dtype)
    smaller = x[: batch // 2]
    rows = [("options", "compile s", "eager ms", "compiled ms", "speed-up", "other batch s", "largest difference")]
    figures: dict[str, float] = {}

    with torch.no_grad():
        expected = model(x)
        for name, options in OPTIONS.items():
            torch.compiler.reset()  # forget what the row before compiled
            compiled = torch.compile(model, **options)
            begin = time.perf_counter()
            difference = (compiled(x) - expected).abs().max().item()
            first = time.perf_counter() - begin
            fast = slow = float("inf")
            for _ in range(3):  # in turn: a clock that changes meets both
                fast = min(fast, common.seconds(lambda: compiled(x), run.options.repeat))  # noqa: B023
                slow = min(slow, common.seconds(lambda: model(x), run.options.repeat))
            begin = time.perf_counter()
            compiled(smaller)  # a new shape compiles again, unless dynamic=True
            other = time.perf_counter() - begin
            if difference > (0.1 if run.device == "cuda" else 1e-4):
                raise common.Stop(
                    f"{name}: the compiled result differs by {difference:.1e}: run `verify run` on this machine."
                )
            figures[name] = slow / fast
            cells = (
                f"{first:.1f}",
                f"{slow * 1e3:.3f}",
                f"{fast * 1e3:.3f}",
                f"{slow / fast:.2f}x",
                f"{other:.2f}",
                f"{difference:.0e}",
            )
            rows.append((name, *cells))
    common.table(rows)
    best = max(figures, key=lambda name: figures[name])
    words = "every option compiles and agrees with eager"  # at tiny sizes a ratio is noise
    run.finish(words if run.tiny else f"{best} is fastest here: {figures[best]:.2f}x", speedup=figures)


if __name__ == "__main__":
    common.main(main)
