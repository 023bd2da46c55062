"""What the card computes, against float64 on the CPU, and the run-time behaviour programs rely on."""

from __future__ import annotations

from verify.core import Outcome, check
from verify.gpu.ask import TIMEOUT, ask
from verify.machine import Machine


@check(needs=("gpu", "torch"), timeout=2 * TIMEOUT)
def formats(m: Machine) -> Outcome:
    """torch knows which number formats this card has."""
    return ask(m, "computes", "half_precision_formats")


@check(needs=("gpu", "torch"), timeout=2 * TIMEOUT)
def matmul(m: Machine) -> Outcome:
    """Matrix products are right in fp32, TF32, fp16, bf16, int8 and, where the card has it, fp8."""
    return ask(m, "computes", "matmul")


@check(needs=("gpu", "torch"), timeout=2 * TIMEOUT)
def convolution(m: Machine) -> Outcome:
    """Convolutions and their gradients are right."""
    return ask(m, "computes", "convolution")


@check(needs=("gpu", "torch"), timeout=2 * TIMEOUT)
def linear_algebra(m: Machine) -> Outcome:
    """Solve, Cholesky, QR, SVD and eigenvalues are right."""
    return ask(m, "computes", "linear_algebra")


@check(needs=("gpu", "torch"), timeout=2 * TIMEOUT)
def fourier(m: Machine) -> Outcome:
    """Fourier transforms are right."""
    return ask(m, "computes", "fourier")


@check(needs=("gpu", "torch"), timeout=2 * TIMEOUT)
def random_numbers(m: Machine) -> Outcome:
    """Random numbers are repeatable by seed and follow their law."""
    return ask(m, "computes", "random_numbers")


@check(needs=("gpu", "torch"), timeout=2 * TIMEOUT)
def reductions(m: Machine) -> Outcome:
    """Sums, softmax, layer norm, sort, scatter and index operations are right."""
    return ask(m, "computes", "reductions")


@check(needs=("gpu", "torch"), timeout=2 * TIMEOUT)
def copies(m: Machine) -> Outcome:
    """Data copied to the GPU and back, pinned and pageable, comes back unchanged."""
    return ask(m, "runtime", "copies")


@check(needs=("gpu", "torch"), timeout=2 * TIMEOUT)
def streams(m: Machine) -> Outcome:
    """Streams wait for each other's events."""
    return ask(m, "runtime", "streams")


@check(needs=("gpu", "torch"), timeout=2 * TIMEOUT)
def graphs(m: Machine) -> Outcome:
    """CUDA graphs replay with new input."""
    return ask(m, "runtime", "graphs")


@check(needs=("gpu", "torch"), timeout=2 * TIMEOUT)
def out_of_memory(m: Machine) -> Outcome:
    """Running out of GPU memory raises, and the memory comes back."""
    return ask(m, "runtime", "out_of_memory")


@check(needs=("gpu", "torch"), timeout=2 * TIMEOUT)
def errors_are_raised(m: Machine) -> Outcome:
    """An error inside a kernel is raised at the next synchronisation."""
    return ask(m, "runtime", "errors_are_raised")
