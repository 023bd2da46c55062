"""A UNet of Stable Diffusion 1.5's shape: a training step and a sampling step on 64 x 64 latents (512 px)."""

from __future__ import annotations

import importlib.util
import inspect
from functools import partial
from typing import Any

from verify.core import bench
from verify.gpu.numbers import relative
from verify.speed import unet
from verify.speed.work import Setup, Work, agree, precision

FLOPS = 803e9  # of one forward pass of one 64 x 64 latent, as torch.utils.flop_counter counts them
WORDS = 77  # tokens of a prompt
# bf16 weights and activations through 60 layers: eager and compiled round at other places. A wrong kernel is off by 1.
TRAIN, SAMPLE = 0.1, 0.03


def model(setup: Setup) -> tuple[Any, str]:
    """The UNet as a function of latents, steps and text, and where it comes from."""
    import torch
    from torch import nn

    with torch.device(setup.device):
        if setup.tiny:
            return unet.build((32, 32, 32, 32), text=16, heads=2, groups=8), "a small UNet"
        if not importlib.util.find_spec("diffusers"):
            return unet.build(), "own definition of SD 1.5's UNet"
        import diffusers

        # Asked inside the forward pass: torch 2.8's compiler cannot follow it in bf16, and the answer never changes.
        torch.compiler.assume_constant_result(inspect.unwrap(diffusers.utils.is_torch_version))
        made = diffusers.UNet2DConditionModel(sample_size=64, cross_attention_dim=unet.TEXT)

    class Plain(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.made = made

        def forward(self, x: Any, steps: Any, words: Any) -> Any:
            return self.made(x, steps, words, return_dict=False)[0]

    return Plain(), f"diffusers {diffusers.__version__} UNet2DConditionModel of SD 1.5"


def inputs(setup: Setup, batch: int, kind: Any) -> tuple[Any, Any, Any]:
    """Latents (b, 4, 64, 64), steps (b,), text (b, 77, 768)."""
    import torch

    size, text = setup.pick((64, unet.TEXT), (16, 16))
    return (
        torch.randn(batch, unet.LATENT, size, size, device=setup.device, dtype=kind),
        torch.randint(0, 1000, (batch,), device=setup.device),
        torch.randn(batch, WORDS, text, device=setup.device, dtype=kind),
    )


def conditions(name: str, batch: int, **more: Any) -> dict[str, Any]:
    """What both benchmarks say of themselves."""
    return {
        "model": f"{name}, random weights",
        "batch": batch,
        "amp": "off",
        "tf32": "on",
        "sdpa": "torch's choice",
        **more,
    }


@bench(figure="ratio", quick=True, seconds=10)
def train_bf16(setup: Setup) -> Work:
    """Compiling speeds up a training step of SD 1.5's UNet, bf16 weights, batch 4."""
    import torch

    precision(tf32=True)
    batch = setup.pick(4, 1)
    net, name = model(setup)
    net = net.to(torch.bfloat16).train()
    given = inputs(setup, batch, torch.bfloat16)
    noise = torch.randn_like(given[0])
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-6, fused=True)
    compiled = setup.compile(net)

    def forward(which: Any) -> tuple[Any, Any]:
        out = which(*given)
        return torch.nn.functional.mse_loss(out.float(), noise.float()), out

    def step(which: Any) -> None:
        optimizer.zero_grad(set_to_none=True)
        forward(which)[0].backward()
        optimizer.step()

    return Work(
        calls={"eager": partial(step, net), "compiled": partial(step, compiled)},
        check=lambda: agree(
            partial(forward, net), partial(forward, compiled), net.parameters(), reference=None, floor=TRAIN
        ),
        conditions=conditions(
            name, batch, weights="bfloat16", memory_format="contiguous (NCHW)", optimizer="AdamW fused, not compiled"
        ),
        flops=3 * FLOPS * batch,
        items=batch,
        item="images",
        most=25,
    )


@bench(figure="ratio", seconds=7)
def sample_fp16(setup: Setup) -> Work:
    """Compiling speeds up a sampling step of SD 1.5's UNet, fp16, one image with guidance."""
    import torch

    precision(tf32=True)
    kind, batch = setup.pick(torch.float16, torch.bfloat16), 2  # with and without the prompt
    net, name = model(setup)
    net = net.to(kind, memory_format=torch.channels_last).eval().requires_grad_(False)
    latents, steps, words = inputs(setup, batch, kind)
    latents = latents.to(memory_format=torch.channels_last)
    compiled = setup.compile(net)

    def noise(which: Any) -> Any:
        with torch.no_grad():
            return which(latents, steps, words)

    def step(which: Any) -> Any:
        """Both predictions, guidance 7.5, and an Euler step."""
        without, prompted = noise(which).chunk(2)
        return latents[:1] - 0.1 * (without + 7.5 * (prompted - without))

    return Work(
        calls={"eager": partial(step, net), "compiled": partial(step, compiled)},
        check=lambda: {"noise": (relative(noise(compiled), noise(net)), SAMPLE)},
        conditions=conditions(name, batch, weights="float16", memory_format="channels_last"),
        flops=FLOPS * batch,
        items=1,
        item="steps",
    )
