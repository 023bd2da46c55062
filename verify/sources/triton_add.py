"""A Triton kernel that adds two float32 vectors, for verify/gpu/compile.py (Triton reads its source from this file)."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

BLOCK_SIZE = 1024


@triton.jit  # type: ignore[untyped-decorator]
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """out[i] = x[i] + y[i] for i < n; fp32."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)


def add(x: Any, y: Any) -> Any:
    """x + y of two vectors on the GPU."""
    import torch

    out = torch.empty_like(x)
    add_kernel[(triton.cdiv(x.numel(), BLOCK_SIZE),)](x, y, out, x.numel(), BLOCK=BLOCK_SIZE)
    return out
