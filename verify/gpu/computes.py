"""Arithmetic on the GPU against float64 on the CPU."""

from __future__ import annotations

import ctypes
import math
import os
from typing import Any

from verify.core import Outcome, fail, pass_, skip
from verify.gpu import probes
from verify.gpu.numbers import UNIT, product_limit, relative, text
from verify.gpu.probes import Context, probe

FAULTY = (
    "Run it again: another error each time is a faulty card (memory, overclock, power), the same error is a faulty "
    "library: reinstall torch and the nvidia-* wheels in the versions of the lock."
)
DEPTH = 512


def verdict(title: str, errors: dict[str, tuple[float, float]]) -> Outcome:
    """`errors`: name → (error, limit). NaN is above every limit."""
    bad = {k: e for k, e in errors.items() if not e[0] <= e[1]}
    data = {k: {"error": e, "limit": limit} for k, (e, limit) in errors.items()}
    if bad:
        said = "; ".join(f"{k} {text(e)}, allowed {text(limit)}" for k, (e, limit) in bad.items())
        return fail(f"{title}: the result differs from float64 on the CPU ({said}).", hint=FAULTY, data=data)
    return pass_(", ".join(f"{k} {text(e)}" for k, (e, _) in errors.items()) + ".", data=data)


def random(*shape: int, seed: int, kind: str = "float32") -> Any:
    """Normal numbers on the CPU, rounded to `kind`."""
    import torch

    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(getattr(torch, kind))


def precise(on: bool) -> None:
    """Float32 products in full float32 (True) or in TF32."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = not on
    torch.backends.cudnn.allow_tf32 = not on


@probe
def matmul(context: Context) -> Outcome:
    """Matrix products in every format the card has; each has an odd size, so that edges of tiles are used too."""
    import torch

    errors: dict[str, tuple[float, float]] = {}
    for kind in ("float32", "tf32", "float16", "bfloat16"):
        stored = "float32" if kind == "tf32" else kind
        if kind in ("tf32", "bfloat16") and context.sm < 80:
            continue
        a, b = random(500, DEPTH, seed=1, kind=stored), random(DEPTH, 301, seed=2, kind=stored)
        precise(kind != "tf32")
        found = a.to(probes.DEVICE) @ b.to(probes.DEVICE)
        errors[kind] = (relative(found, a.double() @ b.double()), product_limit(kind, DEPTH))
    precise(True)
    made = torch.Generator().manual_seed(3)
    x, y = (torch.randint(-128, 128, s, generator=made, dtype=torch.int8) for s in ((128, DEPTH), (DEPTH, 64)))
    found = torch._int_mm(x.to(probes.DEVICE), y.to(probes.DEVICE)).cpu()
    # Whole numbers: exact or wrong.
    errors["int8"] = (float((found.long() - x.long() @ y.long()).abs().max()), 0.0)
    if context.sm >= 89:
        errors["fp8"] = (fp8(), 2 * UNIT["bfloat16"])
    return verdict("A matrix product", errors)


def fp8() -> float:
    """Error of a scaled E4M3 product with bf16 output: inputs are exact, the output is rounded to bf16."""
    import torch

    a, b = (random(128, DEPTH, seed=s).clamp(-400, 400).to(torch.float8_e4m3fn) for s in (4, 5))
    one = torch.ones((), device=probes.DEVICE)
    found = torch._scaled_mm(
        a.to(probes.DEVICE), b.to(probes.DEVICE).t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16
    )
    return relative(found, a.double() @ b.double().t())


@probe
def convolution(context: Context) -> Outcome:
    """Convolutions through cuDNN, forward and both gradients.

    Winograd kernels lose about a digit in float32 (Lavin and Gray, 2016), so 64 rounding steps of the sum are allowed.
    """
    import torch

    precise(True)
    errors = {}
    for kind in ("float32", "float16", "bfloat16"):
        if kind == "bfloat16" and context.sm < 80:
            continue
        x, w, b = (random(*s, seed=n, kind=kind) for n, s in enumerate(((4, 32, 29, 31), (48, 32, 3, 3), (48,))))
        results = []
        for device, wide in ((probes.DEVICE, False), ("cpu", True)):
            given = [(t.double() if wide else t).to(device).requires_grad_() for t in (x, w, b)]
            out = torch.nn.functional.conv2d(*given, stride=1, padding=1)
            grad = random(*out.shape, seed=9, kind=kind).to(out.device, out.dtype)
            results.append([out, *torch.autograd.grad(out, given[:2], grad)])
        # The deepest sum: the weight's gradient over batch, height and width.
        limit = 64 * UNIT["float32"] * math.sqrt(4 * 29 * 31) if kind == "float32" else 4 * UNIT[kind]
        errors[kind] = (max(relative(a, e) for a, e in zip(*results, strict=True)), limit)
    return verdict("A convolution", errors)


@probe
def linear_algebra(_: Context) -> Outcome:
    """Solve, Cholesky, QR, SVD and symmetric eigenvalues in float32, judged by their residuals.

    Backward stable algorithms leave a residual of a small multiple of n · u (Higham, Accuracy and Stability, ch. 9, 10,
    19); 10 is that multiple here. Up to n = 512 torch takes cuSOLVER's Jacobi method for eigenvalues, which stops
    earlier: 10.9 n · u measured on an H200 with CUDA 13.0, 100 allowed.
    """
    import torch

    n = 200
    limit = 10 * n * UNIT["float32"]
    a = random(n, n, seed=11)
    rhs, spd = random(n, 7, seed=12), a @ a.t() / n + torch.eye(n)
    on = [t.to(probes.DEVICE) for t in (a, rhs, spd)]
    x, factor = torch.linalg.solve(on[0], on[1]), torch.linalg.cholesky(on[2])
    q, r = torch.linalg.qr(on[0])
    u, s, vh = torch.linalg.svd(on[0])
    values, vectors = torch.linalg.eigh(on[2])
    wide = {k: t.double().cpu() for k, t in {"x": x, "l": factor, "q": q, "r": r, "u": u, "s": s, "vh": vh}.items()}
    residual = (a.double() @ wide["x"] - rhs.double()).norm() / (a.double().norm() * wide["x"].norm())
    errors = {
        "solve": (float(residual), limit),
        "cholesky": (relative(wide["l"] @ wide["l"].t(), spd), limit),
        "qr": (relative(wide["q"] @ wide["r"], a), limit),
        "svd": (relative(wide["u"] * wide["s"] @ wide["vh"], a), limit),
        "eigh": (relative(vectors.double() * values.double() @ vectors.double().t(), spd), 10 * limit),
    }
    return verdict("Linear algebra", errors)


@probe
def fourier(_: Context) -> Outcome:
    """FFTs of lengths with large and small prime factors. The error grows as u · log2 n (Higham, ch. 24)."""
    import torch

    errors: dict[str, tuple[float, float]] = {}
    refused: list[str] = []
    for n in (1024, 1000, 509):
        x = random(8, n, seed=n)
        exact = torch.fft.fft(x.double())
        try:
            spectrum = torch.fft.fft(x.to(probes.DEVICE))
            back = torch.fft.ifft(spectrum).real
        except RuntimeError as error:
            if "cuFFT" not in str(error):
                raise
            refused.append(f"length {n}: {' '.join(str(error).split())}")
            continue
        # A prime length goes through a longer transform twice (Bluestein): twice the steps, and as much again to spare.
        limit = 8 * UNIT["float32"] * math.log2(n)
        errors[str(n)] = (float((spectrum.cpu().to(exact.dtype) - exact).norm() / exact.norm()), limit)
        errors[f"{n} and back"] = (relative(back, x), limit)
    if refused:
        return no_plan("; ".join(refused))
    return verdict("A Fourier transform", errors)


def compiler_there() -> bool:
    """Whether the driver's PTX compiler can be loaded; the container gets it with the capability "compute"."""
    try:
        ctypes.CDLL("libnvidia-ptxjitcompiler.so.1")
    except OSError:
        return False
    return True


def no_plan(said: str) -> Outcome:
    """cuFFT refused: raises with the driver's compiler off (the caller tries again with it), else names the cause."""
    if "CUDA_DISABLE_PTX_JIT" in os.environ:
        raise RuntimeError(said)
    if not compiler_there():
        return fail(
            f"cuFFT cannot make a plan, because the driver's PTX compiler is missing here ({said}).",
            hint="libnvidia-ptxjitcompiler.so.1 belongs to the driver and comes with the capability compute: recreate "
            "the container with NVIDIA_DRIVER_CAPABILITIES=compute,utility, or run `ldconfig` if the file is there.",
        )
    return fail(
        f"cuFFT cannot make a plan on this card ({said}).",
        hint="cuFFT has the driver compile its PTX: `verify run binaries` says whether this driver takes it, `verify "
        "run condition` whether the card's memory is full. Otherwise reinstall the nvidia-cufft wheel torch pins.",
    )


@probe
def random_numbers(_: Context) -> Outcome:
    """One seed gives one sequence, another seed another, and moments are those of the law to 6 standard errors."""
    import torch

    def draw(seed: int) -> Any:
        return torch.randn(1 << 20, generator=torch.Generator(probes.DEVICE).manual_seed(seed), device=probes.DEVICE)

    first, again, other = draw(1), draw(1), draw(2)
    if not torch.equal(first, again):
        return fail("The same seed gives two different sequences of random numbers.", hint=FAULTY)
    if torch.equal(first, other):
        return fail("Two seeds give the same sequence of random numbers.", hint=FAULTY)
    count = first.numel()
    wide = first.double()
    uniform = torch.rand(count, generator=torch.Generator(probes.DEVICE).manual_seed(3), device=probes.DEVICE).double()
    # Standard errors: mean 1/√n; variance √(2/n); uniform mean 1/√(12 n); 6 of them fail once in 10^9.
    errors = {
        "mean": (abs(wide.mean().item()), 6 / count**0.5),
        "variance": (abs(wide.var().item() - 1), 6 * (2 / count) ** 0.5),
        "uniform": (abs(uniform.mean().item() - 0.5), 6 / (12 * count) ** 0.5),
        "outside [0, 1)": (float(((uniform < 0) | (uniform >= 1)).sum()), 0.0),
    }
    return verdict("Random numbers", errors)


@probe
def reductions(_: Context) -> Outcome:
    """Sum, softmax, layer norm, sort, scatter and index operations of float32."""
    import torch

    x = random(300, 1037, seed=21)
    g, wide = x.to(probes.DEVICE), x.double()
    where = torch.randint(0, 50, (300,), generator=torch.Generator().manual_seed(1))
    exact = torch.zeros(50, 1037, dtype=torch.float64).index_add_(0, where, wide)
    zeros = torch.zeros(50, 1037, device=probes.DEVICE)
    limit = product_limit("float32", 1037)
    order = torch.sort(g, dim=1).values.cpu()
    errors = {
        "sum": (relative(g.sum(1), wide.sum(1)), limit),
        "softmax": (relative(torch.softmax(g, 1), torch.softmax(wide, 1)), limit),
        "layer norm": (
            relative(torch.nn.functional.layer_norm(g, (1037,)), torch.nn.functional.layer_norm(wide, (1037,))),
            limit,
        ),
        "scatter": (
            relative(zeros.index_add_(0, where.to(probes.DEVICE), g), exact),
            limit,
        ),
        "sort": (float((order - torch.sort(x, dim=1).values).abs().max()), 0.0),
        "index": (float((g[where.to(probes.DEVICE)].cpu() - x[where]).abs().max()), 0.0),
    }
    return verdict("A reduction", errors)


@probe
def half_precision_formats(context: Context) -> Outcome:
    """The card has bf16 and, from sm_89 on, fp8; torch agrees."""
    import torch

    if probes.DEVICE != "cuda":
        return skip("Only a GPU can be asked.")
    said = torch.cuda.is_bf16_supported(including_emulation=False)
    if said != (context.sm >= 80):
        return fail(f"torch says bf16 support is {said} for sm_{context.sm}.", hint=FAULTY)
    have = [n for n, sm in (("fp16", 60), ("bf16", 80), ("tf32", 80), ("fp8", 89)) if context.sm >= sm]
    return pass_(f"sm_{context.sm}: {', '.join(have)}.")
