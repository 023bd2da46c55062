"""Attention forward and backward, one benchmark per implementation. Causal, 8 x 16 heads x 2048 x 64, bf16."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from verify.core import bench
from verify.gpu.attention import Case, References, excess, inputs, references
from verify.gpu.attention_sdpa import REFUSED
from verify.speed.work import NotHere, Setup, Work

BATCH, HEADS, LENGTH, DIM = 8, 16, 2048, 64
Attend = Callable[[Any, Any, Any], Any]


@cache
def known(case: Case) -> References:
    """Exact and low-precision results of one head, made once for all implementations of a process."""
    return references(case)


def work(setup: Setup, attend: Attend, sdpa: str, *, heads_first: bool) -> Work:
    """`attend(q, k, v)` and its gradients; one head of the first sequence is compared with float64.

    Tensors are (batch, length, heads, dim), or (batch, heads, length, dim) for `heads_first`.
    """
    import torch

    batch, heads, length = setup.pick((BATCH, HEADS, LENGTH), (2, 2, 64))
    case = Case("bfloat16", DIM, 1, 1, 1, length, length, causal=True, seed=7)
    shape = (batch, heads, length, DIM) if heads_first else (batch, length, heads, DIM)
    # One head of one sequence: (1, length, 1, dim) in `inputs`.
    head = (slice(0, 1), 0) if heads_first else (slice(0, 1), slice(None), 0)
    given = []
    for known_head in inputs(case):
        full = torch.randn(*shape, device=setup.device, dtype=torch.bfloat16)
        full[head] = known_head[:, :, 0].to(setup.device)
        given.append(full)
    *qkv, gradient = given
    leaves = [t.requires_grad_() for t in qkv]

    def call() -> Any:
        out = attend(*leaves)
        return (out, *torch.autograd.grad(out, leaves, gradient))

    def check() -> dict[str, tuple[float, float]]:
        found = [t.detach()[head].unsqueeze(2) for t in call()]
        worst, where = excess(found, known(case), case.kind)
        return {f"largest error over its limit, {where}": (worst, 1.0)}

    # Two products forward, five backward (FlashAttention-2, section 3.1); causal halves them.
    flops = (2 + 5) * 2.0 * batch * heads * length * length * DIM / 2
    return Work(
        {"time": call},
        check,
        {"shape": f"{batch} x {heads} heads x {length} x {DIM}, causal", "dtype": "bfloat16", "sdpa": sdpa},
        flops=flops,
        items=float(batch * length),
        item="tokens",
        seconds=0.5,
        most=300,
    )


def torchs(setup: Setup, name: str) -> Work:
    """torch's scaled_dot_product_attention, held to one implementation."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    backend = getattr(SDPBackend, name)

    def attend(q: Any, k: Any, v: Any) -> Any:
        with sdpa_kernel(backend):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    made = work(setup, attend, name, heads_first=True)
    try:
        made.calls["time"]()
    except RuntimeError as error:
        if any(words in str(error) for words in REFUSED):
            raise NotHere(f"torch has no {name} for this card: {str(error).splitlines()[0]}") from error
        raise
    return made


@bench(figure="rate", bound="bf16", quick=True, group="kernels", seconds=2)
def sdpa_flash(setup: Setup) -> Work:
    """torch's own FlashAttention-2 reaches its share of the card's arithmetic."""
    return torchs(setup, "FLASH_ATTENTION")


@bench(figure="rate", bound="bf16", group="kernels", seconds=2)
def sdpa_efficient(setup: Setup) -> Work:
    """torch's memory-efficient attention reaches its share of the card's arithmetic."""
    return torchs(setup, "EFFICIENT_ATTENTION")


@bench(figure="rate", bound="bf16", group="kernels", seconds=2)
def sdpa_cudnn(setup: Setup) -> Work:
    """cuDNN's attention reaches its share of the card's arithmetic."""
    return torchs(setup, "CUDNN_ATTENTION")


@bench(figure="rate", bound="bf16", group="kernels", seconds=2)
def sdpa_math(setup: Setup) -> Work:
    """Attention written out in single operations, the reference every fused one is better than."""
    return torchs(setup, "MATH")


@bench(figure="rate", bound="bf16", quick=True, group="kernels", seconds=2, needs=("flash_attn",))
def flash_attn(setup: Setup) -> Work:
    """The flash-attn package reaches its share of the card's arithmetic."""
    if setup.device != "cuda":
        raise NotHere("flash-attn needs a GPU.")
    import flash_attn as package

    return work(
        setup,
        lambda q, k, v: package.flash_attn_func(q, k, v, causal=True),
        f"flash-attn {package.__version__}",
        heads_first=False,
    )


@bench(figure="rate", bound="bf16", group="kernels", seconds=2, needs=("xformers",))
def xformers(setup: Setup) -> Work:
    """xFormers' memory_efficient_attention reaches its share of the card's arithmetic."""
    if setup.device != "cuda":
        raise NotHere("xFormers needs a GPU.")
    import xformers as package
    from xformers import ops

    return work(
        setup,
        lambda q, k, v: ops.memory_efficient_attention(q, k, v, attn_bias=ops.LowerTriangularMask()),
        f"xformers {package.__version__}, its own choice",
        heads_first=False,
    )
