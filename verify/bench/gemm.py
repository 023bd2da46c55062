"""Matrix products: cuBLAS in each number format, square and skinny."""

from __future__ import annotations

from typing import Any

from verify.core import bench
from verify.gpu.numbers import product_limit
from verify.speed.work import NotHere, Setup, Work, precision, rows_against_float64


def product(setup: Setup, kind: str, m: int, n: int, k: int, *, seconds: float = 0.5, least: int = 11) -> Work:
    """(m, k) @ (k, n) with normal numbers; `kind` is float32, tf32, float16 or bfloat16; sums are float32."""
    import torch

    m, n, k = (setup.pick(size, min(size, 64)) for size in (m, n, k))
    precision(tf32=kind == "tf32")
    dtype = getattr(torch, "float32" if kind == "tf32" else kind)
    a, b = (torch.randn(*shape, device=setup.device, dtype=dtype) for shape in ((m, k), (k, n)))
    out = torch.empty(m, n, device=setup.device, dtype=dtype)

    def call() -> Any:
        return torch.mm(a, b, out=out)

    def check() -> dict[str, tuple[float, float]]:
        return rows_against_float64(call(), a, b, product_limit(kind, k))

    return Work(
        calls={"time": call},
        check=check,
        conditions={"shape": f"{m} x {k} @ {k} x {n}", "dtype": kind, "tf32": "on" if kind == "tf32" else "off"},
        flops=2.0 * m * n * k,
        bytes=float((m * k + k * n + m * n) * a.element_size()),
        seconds=seconds,
        least=least,
        most=300,
    )


@bench(figure="time", unit="s", bound="fp32", quick=True, group="kernels", seconds=3.5)
def square_15000(setup: Setup) -> Work:
    """A product of two 15000 x 15000 fp32 matrices takes no longer than it should."""
    return product(setup, "float32", 15000, 15000, 15000, seconds=1.5, least=5)


@bench(figure="rate", bound="fp32", quick=True, group="kernels", seconds=1.3)
def fp32(setup: Setup) -> Work:
    """fp32 products of 8192 x 8192 reach their share of the card's arithmetic."""
    return product(setup, "float32", 8192, 8192, 8192)


@bench(figure="rate", bound="tf32", quick=True, group="kernels", seconds=1.3)
def tf32(setup: Setup) -> Work:
    """TF32 products of 8192 x 8192 reach their share of the card's arithmetic."""
    return product(setup, "tf32", 8192, 8192, 8192)


@bench(figure="rate", bound="fp16", quick=True, group="kernels", seconds=1.3)
def fp16(setup: Setup) -> Work:
    """fp16 products of 8192 x 8192 reach their share of the card's arithmetic."""
    return product(setup, "float16", 8192, 8192, 8192)


@bench(figure="rate", bound="bf16", quick=True, group="kernels", seconds=1.3)
def bf16(setup: Setup) -> Work:
    """bf16 products of 8192 x 8192 reach their share of the card's arithmetic."""
    return product(setup, "bfloat16", 8192, 8192, 8192)


@bench(figure="bandwidth", bound="memory", group="kernels", seconds=1.3)
def skinny_fp16(setup: Setup) -> Work:
    """An fp16 product with 16 rows, as in decoding, is as fast as the memory that holds its weights."""
    return product(setup, "float16", 16, 16384, 8192)


@bench(figure="bandwidth", bound="memory", group="kernels", seconds=1.3)
def skinny_bf16(setup: Setup) -> Work:
    """A bf16 product with 16 rows, as in decoding, is as fast as the memory that holds its weights."""
    return product(setup, "bfloat16", 16, 16384, 8192)


@bench(figure="rate", bound="bf16", group="kernels", seconds=1.3)
def deep_bf16(setup: Setup) -> Work:
    """A bf16 product of a small result and a deep sum, as in weight gradients, is cut up well."""
    return product(setup, "bfloat16", 768, 768, 65536)


@bench(figure="rate", bound="fp8", group="kernels", seconds=1.3)
def fp8(setup: Setup) -> Work:
    """fp8 (E4M3) products of 8192 x 8192 with bf16 results reach their share of the card's arithmetic."""
    import torch

    if setup.device != "cuda" or torch.cuda.get_device_capability() < (8, 9):
        raise NotHere("This card has no fp8 arithmetic (sm_89 and later have).")
    n = 8192
    a, b = (torch.randn(n, n, device="cuda").clamp(-8, 8).to(torch.float8_e4m3fn) for _ in range(2))
    one = torch.ones((), device="cuda")

    def call() -> Any:
        return torch._scaled_mm(a, b.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16)

    def check() -> dict[str, tuple[float, float]]:
        # Tensor cores add fp8 products with fewer bits than float32 (14 on sm_89 and sm_90): 2^-7 covers it.
        return rows_against_float64(call(), a, b.t(), 2.0**-7)

    return Work(
        calls={"time": call},
        check=check,
        conditions={"shape": f"{n} x {n} @ {n} x {n}", "dtype": "float8_e4m3fn", "tf32": "off"},
        flops=2.0 * n**3,
        bytes=float(2 * n * n + 2 * n * n),
        seconds=0.5,
        most=300,
    )
