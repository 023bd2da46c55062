"""xFormers: memory_efficient_attention, the op it dispatches to named."""

from __future__ import annotations

from verify.core import Outcome, check
from verify.gpu.ask import TIMEOUT, ask
from verify.machine import Machine


@check(needs=("gpu", "torch", "xformers"), timeout=2 * TIMEOUT)
def dense(m: Machine) -> Outcome:
    """memory_efficient_attention is right, forward and backward, plain and causal, with an op for this card."""
    return ask(m, "attention_xformers", "dense")


@check(needs=("gpu", "torch", "xformers"), timeout=2 * TIMEOUT)
def varlen(m: Machine) -> Outcome:
    """memory_efficient_attention is right on packed sequences of several lengths."""
    return ask(m, "attention_xformers", "varlen")


@check(needs=("gpu", "torch", "xformers"), timeout=2 * TIMEOUT)
def bias(m: Machine) -> Outcome:
    """memory_efficient_attention is right with an additive bias."""
    return ask(m, "attention_xformers", "bias")
