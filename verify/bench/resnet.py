"""ResNet-50 training on random images, in the number formats and memory layouts people use."""

from __future__ import annotations

from functools import partial
from typing import Any

from verify.core import bench
from verify.speed.work import Setup, Work, agree, precision

FLOPS = 3 * 2 * 4.09e9  # per image: 4.09 G multiply-adds forward (torchvision's table), the backward pass twice that
# Batch normalisation of random weights spreads rounding errors: float32 itself differs by some 1e-3 between two orders
# of summation.
FLOOR = 2e-2


def work(setup: Setup, *, tf32: bool, amp: bool, channels_last: bool, batch: int = 64) -> Work:
    """A whole step: forward, loss, backward, fused AdamW. Images (batch, 3, 224, 224), 1000 classes."""
    import torch
    from torchvision.models import resnet50

    precision(tf32=tf32)
    batch, size = setup.pick(batch, 2), setup.pick(224, 64)
    layout = torch.channels_last if channels_last else torch.contiguous_format
    with torch.device(setup.device):  # random weights are made where they are needed
        model = resnet50(weights=None).to(memory_format=layout).train()
    x = torch.randn(batch, 3, size, size, device=setup.device).to(memory_format=layout)
    y = torch.randint(0, 1000, (batch,), device=setup.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    cross_entropy = torch.nn.CrossEntropyLoss()

    def forward(net: Any, low: bool = amp) -> tuple[Any, Any]:
        with torch.autocast(setup.device, torch.bfloat16, enabled=low):
            out = net(x)
            return cross_entropy(out, y), out

    def step(net: Any) -> None:
        optimizer.zero_grad(set_to_none=True)
        forward(net)[0].backward()
        optimizer.step()

    compiled = setup.compile(model)

    def check() -> dict[str, tuple[float, float]]:
        reference = partial(forward, model, low=False) if amp or tf32 else None
        eager, made = partial(forward, model), partial(forward, compiled)
        return agree(eager, made, model.parameters(), reference=reference, floor=FLOOR)

    return Work(
        calls={"eager": partial(step, model), "compiled": partial(step, compiled)},
        check=check,
        conditions={
            "model": "torchvision resnet50, random weights",
            "batch": batch,
            "amp": "bfloat16" if amp else "off",
            "tf32": "on" if tf32 else "off",
            "memory_format": "channels_last" if channels_last else "contiguous (NCHW)",
            "sdpa": "none",
            "optimizer": "AdamW fused, not compiled",
            "cudnn.benchmark": "off",
        },
        flops=FLOPS * batch,
        items=batch,
        item="images",
    )


@bench(figure="ratio", seconds=6)
def fp32_nchw(setup: Setup) -> Work:
    """Compiling speeds up ResNet-50 training, fp32 without TF32, NCHW."""
    return work(setup, tf32=False, amp=False, channels_last=False)


@bench(figure="ratio", seconds=6)
def fp32_channels_last(setup: Setup) -> Work:
    """Compiling speeds up ResNet-50 training, fp32 without TF32, channels_last."""
    return work(setup, tf32=False, amp=False, channels_last=True)


@bench(figure="ratio", quick=True, seconds=6)
def tf32_nchw(setup: Setup) -> Work:
    """Compiling speeds up ResNet-50 training, TF32, NCHW: what a script gets that sets nothing."""
    return work(setup, tf32=True, amp=False, channels_last=False)


@bench(figure="ratio", seconds=6)
def tf32_channels_last(setup: Setup) -> Work:
    """Compiling speeds up ResNet-50 training, TF32, channels_last."""
    return work(setup, tf32=True, amp=False, channels_last=True)


@bench(figure="ratio", seconds=6)
def amp_nchw(setup: Setup) -> Work:
    """Compiling speeds up ResNet-50 training, bf16 autocast, NCHW."""
    return work(setup, tf32=True, amp=True, channels_last=False)


@bench(figure="ratio", quick=True, seconds=6)
def amp_channels_last(setup: Setup) -> Work:
    """Compiling speeds up ResNet-50 training, bf16 autocast, channels_last: the fast way."""
    return work(setup, tf32=True, amp=True, channels_last=True)
