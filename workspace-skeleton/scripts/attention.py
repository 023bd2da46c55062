"""One function for attention, four implementations behind it: torch's SDPA, xFormers, FlashAttention-2, plain math.

Copy `attention` into your own code. All take and give (batch, length, heads, features);
on a GPU in float16 or bfloat16.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional

import _common as common


def by_math(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    """The definition. Makes the whole (length × length) matrix: the others exist to avoid that."""
    scores = torch.einsum("blhd,bmhd->bhlm", q, k) * q.shape[-1] ** -0.5
    if causal:
        hidden = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(hidden, float("-inf"))
    return torch.einsum("bhlm,bmhd->blhd", scores.softmax(dim=-1), v)


def by_sdpa(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    """torch chooses a kernel by itself: FlashAttention, memory-efficient, cuDNN or math. Works everywhere."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return functional.scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(1, 2)


def by_xformers(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    ops = common.need("xformers.ops", "how='xformers'", "xformers")
    result: torch.Tensor = ops.memory_efficient_attention(
        q, k, v, attn_bias=ops.LowerTriangularMask() if causal else None
    )
    return result


def by_flash(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    flash = common.need("flash_attn", "how='flash'", "flash-attn")
    result: torch.Tensor = flash.flash_attn_func(q, k, v, causal=causal)
    return result


HOW: dict[str, Callable[[torch.Tensor, torch.Tensor, torch.Tensor, bool], torch.Tensor]] = {
    "math": by_math,
    "sdpa": by_sdpa,
    "xformers": by_xformers,
    "flash": by_flash,
}


def attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool = False, how: str = "sdpa"
) -> torch.Tensor:
    """Attention of (batch, length, heads, features) by one of HOW; they differ in speed, not in the result."""
    if how not in HOW:
        raise common.Stop(f"there is no attention called {how!r}: take one of {', '.join(HOW)}.")
    return HOW[how](q, k, v, causal)


def main() -> None:
    parser = common.parser(__doc__)
    common.size(parser, "--batch", 4, 1, "sequences")
    common.size(parser, "--length", 4096, 32, "tokens of a sequence")
    common.size(parser, "--heads", 16, 2, "heads")
    common.size(parser, "--features", 64, 16, "features of a head, a multiple of 8")
    common.size(parser, "--repeat", 10, 2, "timed calls, forward and backward")
    parser.add_argument("--not-causal", action="store_true", help="every token sees every other")
    run = common.start(parser, "attention")
    o = run.options
    causal = not o.not_causal
    shape = (o.batch, o.length, o.heads, o.features)
    q, k, v = (torch.randn(shape, device=run.device, dtype=run.dtype, requires_grad=True) for _ in range(3))
    gradient = torch.randn_like(q)
    few = slice(0, 1), slice(0, 64)  # the first tokens of the first sequence: with a causal mask they see no others
    with torch.no_grad():
        seen = few if causal else few[:1]
        exact = by_math(q[seen].double(), k[seen].double(), v[seen].double(), causal)

    rows = [("how", "ms", "peak GiB", "largest error")]
    times: dict[str, float] = {}
    for how in HOW:
        if run.device == "cpu" and how in ("xformers", "flash"):
            rows.append((how, "needs a GPU", "", ""))
            continue

        def step() -> torch.Tensor:
            q.grad = k.grad = v.grad = None
            result = attention(q, k, v, causal=causal, how=how)  # noqa: B023
            result.backward(gradient)
            return result.detach()

        if run.device == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        try:
            error = (step()[seen].double() - exact).abs().max().item()
            times[how] = common.seconds(step, o.repeat)
        except common.Stop as stop:
            print(f"note: {stop}")
            rows.append((how, "not here", "", ""))
            continue
        except torch.OutOfMemoryError:
            rows.append((how, "out of memory", "", ""))
            continue
        if not error < (0.05 if run.device == "cuda" else 1e-5):
            raise common.Stop(f"{how} is wrong by {error:.1e}: run `verify run` on this machine.", 1)
        rows.append((how, f"{times[how] * 1e3:.2f}", f"{common.peak_gib():.2f}", f"{error:.0e}"))
    common.table(rows)
    best = min(times, key=lambda how: times[how])
    against = f", {times['math'] / times[best]:.1f}x as fast as math" if "math" in times else ""
    words = f"{best} is fastest: {times[best] * 1e3:.2f} ms forward and backward{against}"
    run.finish(words, milliseconds={how: 1e3 * value for how, value in times.items()})


if __name__ == "__main__":
    common.main(main)
