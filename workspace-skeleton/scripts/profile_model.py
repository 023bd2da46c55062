"""Where does the time go? Profile training steps into a trace, a table and a picture.

trace.json opens in https://ui.perfetto.dev or chrome://tracing; table.txt and profile.png show what takes longest.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function, schedule

import _common as common

RANGES = ("forward", "backward", "optimizer", "ProfilerStep*")  # they contain operators and kernels


def picture(path: Any, names: list[str], milliseconds: list[float], title: str) -> None:
    """Bars, longest on top, as a PNG."""
    common.need("matplotlib", "the picture")
    from matplotlib.figure import Figure  # without pyplot: no display is asked for

    figure = Figure(figsize=(9, 0.4 * len(names) + 1.2), layout="constrained")
    axes = figure.subplots()
    bars = axes.barh([name[:60] for name in names][::-1], milliseconds[::-1], color="#2b6cb0")
    axes.bar_label(bars, fmt="%.2f", padding=3)
    axes.set_xlabel("milliseconds per step")
    axes.set_title(title, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120, format="png")


def main() -> None:
    parser = common.parser(__doc__)
    common.size(parser, "--batch", 32, 2, "sequences per step")
    common.size(parser, "--length", 512, 16, "tokens of a sequence")
    common.size(parser, "--width", 768, 32, "features of a token")
    common.size(parser, "--layers", 6, 2, "Transformer layers")
    common.size(parser, "--steps", 3, 2, "profiled steps; four more warm up")
    parser.add_argument("--compile", action="store_true", help="profile compiled code")
    run = common.start(parser, "profile_model")
    o = run.options
    layer = nn.TransformerEncoderLayer(o.width, o.width // (16 if run.tiny else 64), 4 * o.width, 0.0, batch_first=True)
    model = nn.TransformerEncoder(layer, o.layers, enable_nested_tensor=False).to(run.device)
    fast = torch.compile(model) if o.compile else model
    optimizer = torch.optim.AdamW(model.parameters(), fused=run.device == "cuda")
    x = torch.randn(o.batch, o.length, o.width, device=run.device)

    def step() -> None:
        with record_function("forward"), torch.autocast(run.device, torch.bfloat16):
            loss = fast(x).square().mean()
        with record_function("backward"):
            loss.backward()
        with record_function("optimizer"):
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    for _ in range(3):
        step()
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if run.device == "cuda" else [])
    with profile(
        activities=activities, schedule=schedule(wait=0, warmup=1, active=o.steps, repeat=1), record_shapes=True
    ) as profiler:
        for _ in range(o.steps + 1):
            step()
            if run.device == "cuda":
                torch.cuda.synchronize()
            profiler.step()

    column = "self_device_time_total" if run.device == "cuda" else "self_cpu_time_total"
    averages = profiler.key_averages()
    words = averages.table(sort_by=column, row_limit=15, max_name_column_width=60)
    common.save(run.folder / "table.txt", lambda path: path.write_text(words + "\n"))
    common.save(run.folder / "trace.json", lambda path: profiler.export_chrome_trace(str(path)))
    # On a GPU the kernels; on a CPU the operators.
    wanted = torch.autograd.DeviceType.CUDA if run.device == "cuda" else torch.autograd.DeviceType.CPU
    own = [e for e in averages if e.device_type == wanted and getattr(e, column) > 0 and e.key not in RANGES]
    own.sort(key=lambda e: -getattr(e, column))
    total = sum(getattr(e, column) for e in own) / 1e3 / o.steps
    if not own:
        raise common.Stop("the profiler saw no kernels: does another profiler run, or did the driver refuse?", 1)
    names, times = [e.key for e in own[:10]], [getattr(e, column) / 1e3 / o.steps for e in own[:10]]
    title = f"{total:.1f} ms per step on {torch.cuda.get_device_name() if run.device == 'cuda' else 'the CPU'}"
    common.save(run.folder / "profile.png", lambda path: picture(path, names, times, title))
    common.table(
        [
            ("longest", "ms per step", "share"),
            *((n[:60], f"{t:.3f}", f"{t / total:.0%}") for n, t in zip(names, times, strict=True)),
        ]
    )
    run.finish(
        f"{title}; {names[0][:40]} takes {times[0] / total:.0%}",
        ms_per_step=total,
        longest=dict(zip(names, times, strict=True)),
    )


if __name__ == "__main__":
    common.main(main)
