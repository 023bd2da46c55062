"""Which kernels ran, by name, through torch's profiler; and which attention implementation a name belongs to."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

# Kernel names of torch 2.8 … 2.11, xFormers 0.0.32 … 0.0.35, flash-attn 2.8 and cuDNN 9. The first that fits counts.
FAMILIES: tuple[tuple[str, str], ...] = (
    ("fa3", r"FlashAttn(?:Fwd|Bwd)Sm90|enable_sm90|flash::.*sm90|hopper.*flash"),
    ("cudnn", r"cudnn.*(?:sdpa|flash|fort|mha|attention)"),
    ("efficient", r"fmha_cutlass|AttentionKernel|AttentionBackwardKernel|mem_eff"),
    ("flash", r"flash_(?:fwd|bwd)|flash::|FlashAttention"),
    ("triton splitK", r"_fwd_kernel_splitK|_splitK_reduce"),
)


def family(name: str) -> str:
    """The attention implementation a kernel belongs to, "" for any other kernel."""
    return next((kind for kind, pattern in FAMILIES if re.search(pattern, name, re.IGNORECASE)), "")


def families(names: Iterable[str]) -> set[str]:
    """The attention implementations among kernels."""
    return {kind for name in names if (kind := family(name))}


def record(call: Callable[[], Any]) -> tuple[Any, list[str]]:
    """`call()` and the names of the GPU kernels it launched; no name at all when the profiler is not allowed to see."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as seen:
        made = call()
        torch.cuda.synchronize()
    on_gpu = [e.name for e in seen.events() or () if "cuda" in str(e.device_type).lower()]
    return made, sorted({n for n in on_gpu if not re.match(r"(?:Memcpy|Memset|cuda[A-Z])", n)})


def short(name: str) -> str:
    """A kernel's name without its template arguments and return type."""
    bare = re.sub(r"^(?:void|std::enable_if\S*)\s+", "", name).replace("(anonymous namespace)", "anonymous")
    return re.split(r"[<(]", bare, maxsplit=1)[0][:60]
