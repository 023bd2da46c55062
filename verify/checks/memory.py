"""What saves memory really saves it, as ratios of the allocator's peaks."""

from __future__ import annotations

from verify.core import Outcome, check
from verify.gpu.ask import TIMEOUT, ask
from verify.machine import Machine


@check(needs=("gpu", "torch"), timeout=2 * TIMEOUT)
def checkpointing(m: Machine) -> Outcome:
    """Gradient checkpointing saves at least half of the memory and changes no gradient."""
    return ask(m, "memory", "checkpointing")


@check(needs=("gpu", "torch"), timeout=2 * TIMEOUT)
def mixed_precision(m: Machine) -> Outcome:
    """bf16 autocast saves at least a quarter of the memory, gradients stay right."""
    return ask(m, "memory", "mixed_precision")


@check(needs=("gpu", "torch"), timeout=2 * TIMEOUT)
def loss_scaling(m: Machine) -> Outcome:
    """GradScaler skips a step that overflows."""
    return ask(m, "memory", "loss_scaling")


@check(needs=("gpu", "torch", "bitsandbytes"), timeout=2 * TIMEOUT)
def adam_8bit(m: Machine) -> Outcome:
    """8-bit Adam's state takes a third of the memory at most, and the weights go the same way."""
    return ask(m, "memory", "adam_8bit")
