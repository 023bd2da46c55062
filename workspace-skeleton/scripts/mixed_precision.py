"""Mixed precision with ResNet-50: float32, TF32, float16 with a gradient scaler, bfloat16 — speed and memory of each.

torch.amp.autocast runs products and convolutions in half precision and keeps sums in float32. float16 needs a scaler,
since small gradients would become zero; bfloat16 has the range of float32 and needs none.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import nn

import _common as common

# name: (autocast to, TF32 allowed)
KINDS: dict[str, tuple[torch.dtype | None, bool]] = {
    "float32": (None, False),
    "TF32": (None, True),
    "float16": (torch.float16, True),
    "bfloat16": (torch.bfloat16, True),
}


def measure(
    run: common.Run, make: Callable[[], nn.Module], dtype: torch.dtype | None, tf32: bool
) -> tuple[float, float]:
    """Images per second, and the loss after the last step."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
    o = run.options
    torch.manual_seed(o.seed)
    images = torch.randn(o.batch, 3, o.image, o.image, device=run.device).to(memory_format=torch.channels_last)
    labels = torch.randint(0, 1000, (o.batch,), device=run.device)
    model = make().to(run.device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    scaler = torch.amp.GradScaler(run.device, enabled=dtype is torch.float16)
    losses: list[torch.Tensor] = []

    def step() -> None:
        with torch.autocast(run.device, dtype or torch.bfloat16, enabled=dtype is not None):
            loss = nn.functional.cross_entropy(model(images), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)  # leaves the step out when a gradient has overflowed; the first few may
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.detach())

    rate = o.batch / common.seconds(step, o.repeat, warmup=0 if run.tiny else 5)
    return rate, losses[-1].item()


def main() -> None:
    parser = common.parser(__doc__)
    common.size(parser, "--batch", 64, 2, "images per step")
    common.size(parser, "--image", 224, 32, "height and width of an image")
    common.size(parser, "--repeat", 10, 1, "timed steps of each kind")
    run = common.start(parser, "mixed_precision")
    models = common.need("torchvision", "ResNet-50").models

    rows = [("", "images/s", "peak GiB", "loss")]
    rates: dict[str, float] = {}
    for name, (dtype, tf32) in KINDS.items():
        if run.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        rates[name], loss = measure(run, models.resnet18 if run.tiny else models.resnet50, dtype, tf32)
        if not math.isfinite(loss):
            raise common.Stop(f"{name}: the loss is {loss}: run `verify run` on this machine.", 1)
        rows.append((name, f"{rates[name]:.0f}", f"{common.peak_gib():.2f}", f"{loss:.3f}"))
    common.table(rows)
    words = ", ".join(f"{name} {rate / rates['TF32']:.2f}x" for name, rate in rates.items() if name != "TF32")
    run.finish(f"against TF32: {words}", images_per_second=rates)


if __name__ == "__main__":
    common.main(main)
