"""Attention in exact arithmetic, in low precision with another order of operations, and the verdict between them.

The rule is FlashAttention's own (tests/test_flash_attn.py): the largest error is at most twice (outputs) or three times
(gradients) that of the low-precision reference whose operations are reordered, with a floor of one rounding step; and
so is the root of the mean square. Both references run on the CPU: a broken GPU cannot widen its own tolerance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

OUT, GRAD = 2.0, 3.0
EPS = {"float16": 2.0**-10, "bfloat16": 2.0**-7}


@dataclass(frozen=True)
class Case:
    """One attention problem. Shapes: q (batch, sq, heads, dim), k and v (batch, sk, kv_heads, dim).

    `window` is (left, right), -1 without limit; causal is aligned to the lower right corner, as FlashAttention does.
    `mask` (batch, 1, sq, sk) marks what may be seen. `kind` is the dtype's name.
    """

    kind: str = "bfloat16"
    dim: int = 64
    batch: int = 2
    heads: int = 4
    kv_heads: int = 4
    sq: int = 113
    sk: int = 203
    causal: bool = False
    window: tuple[int, int] = (-1, -1)
    softcap: float = 0.0
    slopes: tuple[float, ...] = ()
    seed: int = 0

    @property
    def label(self) -> str:
        """For messages: "bfloat16, head dim 64, causal"."""
        extra = [n for n, on in (("causal", self.causal), ("GQA", self.heads != self.kv_heads)) if on]
        extra += [f"window {self.window}"] if self.window != (-1, -1) else []
        extra += [n for n, on in (("softcap", self.softcap), ("ALiBi", self.slopes)) if on]
        return ", ".join([self.kind, f"head dim {self.dim}", f"{self.sq}×{self.sk}", *extra])


def inputs(case: Case) -> tuple[Any, Any, Any, Any]:
    """q, k, v and the gradient of the output, random, on the CPU, in the case's dtype."""
    import torch

    made = torch.Generator().manual_seed(1000 + case.seed)
    kind = getattr(torch, case.kind)

    def fresh(length: int, heads: int) -> Any:
        return torch.randn(case.batch, length, heads, case.dim, generator=made).to(kind)

    return (
        fresh(case.sq, case.heads),
        fresh(case.sk, case.kv_heads),
        fresh(case.sk, case.kv_heads),
        fresh(case.sq, case.heads),
    )


def visible(case: Case) -> Any:
    """(sq, sk) bool: which keys a query may see."""
    import torch

    rows = torch.arange(case.sq).unsqueeze(1) + case.sk - case.sq
    columns = torch.arange(case.sk).unsqueeze(0)
    left, right = case.window
    right = 0 if case.causal else right
    seen = torch.ones(case.sq, case.sk, dtype=torch.bool)
    if left >= 0:
        seen &= columns >= rows - left
    if right >= 0:
        seen &= columns <= rows + right
    return seen


def plain(case: Case, q: Any, k: Any, v: Any, *, reorder: bool = False) -> Any:
    """Attention written out, in the dtype of its inputs; `reorder` scales k instead of q, which rounds elsewhere."""
    import torch

    group = case.heads // case.kv_heads
    k, v = k.repeat_interleave(group, 2), v.repeat_interleave(group, 2)
    scale = case.dim**-0.5
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k * scale) if reorder else torch.einsum("bqhd,bkhd->bhqk", q * scale, k)
    if case.softcap:
        scores = torch.tanh(scores / case.softcap) * case.softcap
    if case.slopes:
        rows = torch.arange(case.sq).unsqueeze(1) + case.sk - case.sq
        distance = (rows - torch.arange(case.sk).unsqueeze(0)).abs()
        scores = scores - torch.tensor(case.slopes, dtype=scores.dtype).view(1, -1, 1, 1) * distance.to(scores.dtype)
    seen = visible(case)
    scores = scores.masked_fill(~seen, float("-inf"))
    weights = torch.softmax(scores, -1).to(v.dtype)
    weights = weights.masked_fill(~seen.any(-1, keepdim=True), 0)
    return torch.einsum("bhqk,bkhd->bqhd", weights, v)


def run(function: Callable[..., Any], tensors: Sequence[Any], gradient: Any) -> list[Any]:
    """[output, dq, dk, dv] of `function(q, k, v)`; only the output when `gradient` is None."""
    import torch

    leaves = [t.detach().clone().requires_grad_(gradient is not None) for t in tensors]
    out = function(*leaves)
    if gradient is None:
        return [out.detach()]
    return [out.detach(), *(g.detach() for g in torch.autograd.grad(out, leaves, gradient))]


@dataclass(frozen=True)
class References:
    """Exact (float64) and low-precision results: output and gradients."""

    exact: list[Any]
    low: list[Any]


def references(case: Case) -> References:
    """Both references of a case."""
    q, k, v, g = inputs(case)
    wide = [t.double() for t in (q, k, v)]
    return References(
        run(lambda *t: plain(case, *t), wide, g.double()),
        run(lambda *t: plain(case, *t, reorder=True), (q, k, v), g),
    )


def excess(found: Sequence[Any], ref: References, kind: str) -> tuple[float, str]:
    """How far the worst error lies beyond what is allowed (1.0 is the limit), and of which result; inf for NaN."""
    worst, where = 0.0, "the output"
    for index, name in enumerate(("the output", "dq", "dk", "dv")[: len(found)]):
        exact, low = ref.exact[index].double(), ref.low[index].double()
        got = found[index].detach().double().cpu()
        if got.shape != exact.shape or not bool(got.isfinite().all()):
            return float("inf"), name
        factor, step = (GRAD if index else OUT), EPS[kind] / 2
        allowed = factor * (low - exact).abs().max().item() + step * exact.abs().max().item()
        mean = factor * (low - exact).square().mean().sqrt().item() + step / 2 * exact.square().mean().sqrt().item()
        ratio = max(
            (got - exact).abs().max().item() / allowed,
            (got - exact).square().mean().sqrt().item() / mean,
        )
        if ratio > worst:
            worst, where = ratio, name
    return worst, where
