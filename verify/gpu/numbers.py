"""How a result is compared with an exact one, and where each tolerance comes from.

Errors are relative in the Frobenius norm, ‖found − exact‖ / ‖exact‖, in float64 on the CPU. NaN never passes: every
test is written `error <= limit`.
"""

from __future__ import annotations

from typing import Any

# Unit roundoff u: half the distance between 1 and the next number (IEEE 754; bfloat16 has 8 bits of significand, TF32
# 11, FP8 E4M3 4).
UNIT = {
    "float32": 2.0**-24,
    "tf32": 2.0**-11,
    "float16": 2.0**-11,
    "bfloat16": 2.0**-8,
    "float8_e4m3fn": 2.0**-4,
}


def relative(found: Any, exact: Any) -> float:
    """‖found − exact‖ / ‖exact‖ of two tensors of one shape, in float64 on the CPU; ValueError when shapes differ."""
    if tuple(found.shape) != tuple(exact.shape):
        raise ValueError(f"shapes differ: {tuple(found.shape)} and {tuple(exact.shape)}")
    left, right = found.detach().double().cpu(), exact.detach().double().cpu()
    scale: float = right.norm().item()
    error: float = (left - right).norm().item()
    return error / scale if scale else error


def product_limit(kind: str, depth: int) -> float:
    """Largest relative error of a matrix product of `depth` terms with random signs.

    Summing in fp32 costs about √depth · 2⁻²⁴ (Higham and Mary, 2019, probabilistic bound; 8 is its constant for failure
    below 1e-12). TF32 rounds both factors: 2u. fp16 and bf16 inputs are exact and the output is rounded: u, and once
    more where partial sums of a split product are kept in that format: 2u.
    """
    summing: float = 8 * depth**0.5 * UNIT["float32"]
    return summing if kind == "float32" else 2 * UNIT[kind] + summing


def text(error: float) -> str:
    """An error in two digits."""
    return f"{error:.1e}"
