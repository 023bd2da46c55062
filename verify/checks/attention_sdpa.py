"""torch's scaled_dot_product_attention, each implementation forced and proven by the kernel that ran."""

from __future__ import annotations

from verify.core import Outcome, check
from verify.gpu.ask import TIMEOUT, ask
from verify.machine import Machine


@check(needs=("gpu", "torch"), timeout=2 * TIMEOUT)
def flash(m: Machine) -> Outcome:
    """SDPA's flash implementation is right, forward and backward, and is what ran."""
    return ask(m, "attention_sdpa", "flash")


@check(needs=("gpu", "torch"), timeout=2 * TIMEOUT)
def efficient(m: Machine) -> Outcome:
    """SDPA's memory-efficient implementation is right, forward and backward, and is what ran."""
    return ask(m, "attention_sdpa", "efficient")


@check(needs=("gpu", "torch"), timeout=2 * TIMEOUT)
def cudnn(m: Machine) -> Outcome:
    """SDPA's cuDNN implementation is right, forward and backward, and is what ran."""
    return ask(m, "attention_sdpa", "cudnn")


@check(needs=("gpu", "torch"), timeout=2 * TIMEOUT)
def math(m: Machine) -> Outcome:
    """SDPA's plain implementation is right, forward and backward, and no fused kernel ran."""
    return ask(m, "attention_sdpa", "math")


@check(needs=("gpu", "torch"), timeout=2 * TIMEOUT)
def planted(m: Machine) -> Outcome:
    """The tolerance of the attention checks rejects planted errors."""
    return ask(m, "attention_sdpa", "planted")
