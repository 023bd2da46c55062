"""torch.compile, Triton and nvcc: what they make runs on this card and is right."""

from __future__ import annotations

from verify.core import Outcome, check
from verify.gpu.ask import TIMEOUT, ask
from verify.machine import Machine


@check(needs=("gpu", "torch", "gcc"), timeout=2 * TIMEOUT)
def default(m: Machine) -> Outcome:
    """torch.compile gives the same output and gradients, in one graph."""
    return ask(m, "compile", "default")


@check(needs=("gpu", "torch", "gcc"), timeout=2 * TIMEOUT)
def reduce_overhead(m: Machine) -> Outcome:
    """mode="reduce-overhead" gives the same output when replayed."""
    return ask(m, "compile", "reduce_overhead")


@check(needs=("gpu", "torch", "gcc"), timeout=2 * TIMEOUT)
def max_autotune(m: Machine) -> Outcome:
    """mode="max-autotune" gives the same output with the products it tuned, replayed as a CUDA graph."""
    return ask(m, "compile", "max_autotune")


@check(needs=("gpu", "torch", "gcc"), timeout=2 * TIMEOUT)
def dynamic_shapes(m: Machine) -> Outcome:
    """dynamic=True compiles once for several lengths, dynamic=False once for each."""
    return ask(m, "compile", "dynamic_shapes")


@check(needs=("gpu", "torch", "gcc"), timeout=2 * TIMEOUT)
def fallback_ladder(m: Machine) -> Outcome:
    """Each step of the fallback ladder works: mode lowered, dynamic off, a submodule excluded."""
    return ask(m, "compile", "fallback_ladder")


@check(needs=("gpu", "torch", "gcc"), timeout=2 * TIMEOUT)
def triton_kernel(m: Machine) -> Outcome:
    """A Triton kernel compiled here runs and is right."""
    return ask(m, "compile", "triton_kernel")


@check(needs=("gpu", "torch", "nvcc"), timeout=2 * TIMEOUT)
def nvcc_extension(m: Machine) -> Outcome:
    """A kernel compiled by nvcc for this card runs on torch's memory."""
    return ask(m, "compile", "nvcc_extension")
