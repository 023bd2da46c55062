"""FlashAttention-2: every feature right, or refused in clear words where the image leaves it out."""

from __future__ import annotations

from verify.core import Outcome, check
from verify.gpu.ask import TIMEOUT, ask
from verify.machine import Machine


@check(needs=("gpu", "torch", "flash_attn"), timeout=2 * TIMEOUT)
def fixed(m: Machine) -> Outcome:
    """flash_attn_func is right, forward and backward, fp16 and bf16, head dims 32 to 256."""
    return ask(m, "attention_flash", "fixed")


@check(needs=("gpu", "torch", "flash_attn"), timeout=2 * TIMEOUT)
def varlen(m: Machine) -> Outcome:
    """flash_attn_varlen_func is right on ragged sequences, forward and backward."""
    return ask(m, "attention_flash", "varlen")


@check(needs=("gpu", "torch", "flash_attn"), timeout=2 * TIMEOUT)
def grouped(m: Machine) -> Outcome:
    """Grouped and multi-query attention are right."""
    return ask(m, "attention_flash", "grouped")


@check(needs=("gpu", "torch", "flash_attn"), timeout=2 * TIMEOUT)
def window(m: Machine) -> Outcome:
    """Sliding windows are right, or refused where the image leaves them out."""
    return ask(m, "attention_flash", "window")


@check(needs=("gpu", "torch", "flash_attn"), timeout=2 * TIMEOUT)
def softcap(m: Machine) -> Outcome:
    """Capped scores (softcap) are right, or refused where the image leaves them out."""
    return ask(m, "attention_flash", "softcap")


@check(needs=("gpu", "torch", "flash_attn"), timeout=2 * TIMEOUT)
def alibi(m: Machine) -> Outcome:
    """ALiBi is right, or refused where the image leaves it out."""
    return ask(m, "attention_flash", "alibi")


@check(needs=("gpu", "torch", "flash_attn"), timeout=2 * TIMEOUT)
def dropout(m: Machine) -> Outcome:
    """Dropout is repeatable and keeps the mean, or is refused where the image leaves it out."""
    return ask(m, "attention_flash", "dropout")


@check(needs=("gpu", "torch", "flash_attn"), timeout=2 * TIMEOUT)
def kv_cache(m: Machine) -> Outcome:
    """Decoding with a key-value cache is right and appends in place."""
    return ask(m, "attention_flash", "kv_cache")
