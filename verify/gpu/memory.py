"""What saves memory really saves it, by the allocator's own peaks and as ratios, which no card changes."""

from __future__ import annotations

import gc
import importlib.util
from collections.abc import Callable
from typing import Any

from verify.core import Outcome, fail, pass_, skip
from verify.gpu.numbers import UNIT, relative
from verify.gpu.probes import Context, probe

REINSTALL = "Reinstall torch (and bitsandbytes) in the versions of the lock; `verify run stack` names what differs."
BLOCKS, WIDTH, ROWS = 8, 512, 8192
# Activations of one block: its input, the wide layer before and after the activation: 9 widths, of which
# checkpointing keeps 1 a block and makes one block's anew at a time: (8 + 9) / 72 = 0.24, plus gradients in flight.
CHECKPOINT, AUTOCAST, ADAM = 0.5, 0.75, 0.35


def peak(call: Callable[[], Any]) -> tuple[Any, int]:
    """`call()` and the bytes its peak lies above what was allocated before."""
    import torch

    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    made = call()
    torch.cuda.synchronize()
    return made, torch.cuda.max_memory_allocated() - before


def model() -> Any:
    """Eight residual blocks with a hidden layer four times as wide."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    return nn.ModuleList(
        nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)) for _ in range(BLOCKS)
    ).cuda()


def step(blocks: Any, x: Any, *, checkpointed: bool = False, autocast: bool = False) -> tuple[Any, list[Any]]:
    """Loss and gradients of one pass."""
    import torch
    from torch.utils.checkpoint import checkpoint

    with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
        for block in blocks:
            x = x + (checkpoint(block, x, use_reentrant=False) if checkpointed else block(x))
        loss = x.float().square().mean()
    return loss.detach(), [g.detach() for g in torch.autograd.grad(loss, list(blocks.parameters()))]


def ratio_verdict(what: str, ratio: float, limit: float, error: float, allowed: float) -> Outcome:
    """Saves enough, and changes the gradients no more than `allowed`. NaN fails both."""
    data = {"ratio": round(ratio, 4), "limit": limit, "error": error, "allowed": allowed}
    if not error <= allowed:
        return fail(f"{what} changes the result by {error:.1e}, allowed is {allowed:.1e}.", hint=REINSTALL, data=data)
    if not ratio <= limit:
        return fail(
            f"{what} needs {ratio:.0%} of the memory; at most {limit:.0%} was expected.", hint=REINSTALL, data=data
        )
    return pass_(f"{what} needs {ratio:.0%} of the memory, the result differs by {error:.1e}.", data=data)


def worst(found: list[Any], exact: list[Any]) -> float:
    """The largest relative error of several tensors; NaN when any is."""
    errors = [relative(a, b) for a, b in zip(found, exact, strict=True)]
    return next((e for e in errors if e != e), max(errors))


@probe
def checkpointing(_: Context) -> Outcome:
    """Gradient checkpointing."""
    import torch

    blocks, x = model(), torch.randn(ROWS, WIDTH, device="cuda")
    step(blocks, x)
    (_loss, plain), full = peak(lambda: step(blocks, x))
    (_loss, saved), less = peak(lambda: step(blocks, x, checkpointed=True))
    # The same kernels on the same numbers: equal but for the order of atomic sums.
    return ratio_verdict("Gradient checkpointing", less / full, CHECKPOINT, worst(saved, plain), 1e-5)


@probe
def mixed_precision(_: Context) -> Outcome:
    """bf16 autocast."""
    import torch

    blocks, x = model(), torch.randn(ROWS, WIDTH, device="cuda")
    step(blocks, x, autocast=True)
    (_loss, plain), full = peak(lambda: step(blocks, x))
    (_loss, mixed), less = peak(lambda: step(blocks, x, autocast=True))
    if any(g.dtype is not torch.float32 for g in mixed):
        return fail("Autocast leaves gradients of float32 weights in another format.", hint=REINSTALL)
    # Two roundings a block forward and backward (products' inputs and outputs), 8 blocks: √32 roundings, twice that.
    return ratio_verdict("bf16 autocast", less / full, AUTOCAST, worst(mixed, plain), 2 * 32**0.5 * UNIT["bfloat16"])


@probe
def loss_scaling(_: Context) -> Outcome:
    """fp16 with GradScaler: an overflow skips the step and halves the scale, a good one takes it."""
    import torch

    weight = torch.nn.Parameter(torch.ones(8, device="cuda"))
    optimizer = torch.optim.SGD([weight], lr=0.5)
    scaler = torch.amp.GradScaler("cuda", init_scale=1024.0)
    seen = []
    for factor in (float("inf"), 1.0):
        optimizer.zero_grad()
        scaler.scale((weight * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        seen.append((weight.detach().clone(), scaler.get_scale()))
    good = bool((seen[0][0] == 1).all()) and seen[0][1] == 512 and bool((seen[1][0] == 0.5).all())
    if not good:
        return fail("GradScaler does not skip a step whose gradients overflow.", hint=REINSTALL)
    return pass_("A step that overflows is skipped and the scale halved.")


@probe
def adam_8bit(_: Context) -> Outcome:
    """The state of bitsandbytes' 8-bit Adam beside torch's, and the weights after ten steps of both.

    State: two bytes a weight and a scale for each 256 (bitsandbytes), eight bytes (torch): 0.25 and a little.
    """
    if importlib.util.find_spec("bitsandbytes") is None:
        return skip("bitsandbytes is not installed.")
    import bitsandbytes as bnb
    import torch

    def train(kind: Any) -> tuple[Any, int]:
        weight = torch.nn.Parameter(torch.randn(4096, 1024, generator=torch.Generator().manual_seed(1)).cuda())
        aim = torch.randn(4096, 1024, generator=torch.Generator().manual_seed(2)).cuda()
        start, optimizer = weight.detach().clone(), kind([weight], lr=1e-2)
        torch.cuda.synchronize()
        held = torch.cuda.memory_allocated()
        for _step in range(10):
            weight.grad = weight.detach() - aim
            optimizer.step()
        weight.grad = None
        torch.cuda.synchronize()
        state = torch.cuda.memory_allocated() - held
        return weight.detach() - start, state

    (wide, full), (narrow, less) = train(torch.optim.Adam), train(bnb.optim.Adam8bit)
    # Dynamic 8-bit quantisation keeps about 3 % of a value; the square root halves it for the second moment. The moved
    # distance is compared, and 10 % is allowed.
    return ratio_verdict("The state of 8-bit Adam", less / full, ADAM, relative(narrow, wide), 0.1)
