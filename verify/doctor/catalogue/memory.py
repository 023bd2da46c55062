"""The GPU's memory is full: by the program itself, by others, or in pieces."""

from __future__ import annotations

import re
from collections.abc import Mapping

from verify.doctor import facts
from verify.doctor.entry import Entry

UNITS = {
    "bytes": 1 / (1 << 30),
    "KiB": 1 / (1 << 20),
    "MiB": 1 / 1024,
    "GiB": 1.0,
    "TiB": 1024.0,
    "MB": 1 / 1024,
    "GB": 1.0,
}
AMOUNT = r"(\d{1,9}(?:\.\d{1,4})?) (bytes|[KMGT]i?B)"
# The parts of PyTorch's message, since 2.1 and before: what was asked for, what there is, and who has it.
PARTS = {
    "asked": rf"tried to allocate (?:more than )?{AMOUNT}",
    "total": rf"(?:total capacity of|;) {AMOUNT}(?: total capacity| of which)",
    "free": rf"{AMOUNT} (?:is )?free",
    "mine": rf"this process has {AMOUNT} memory in use",
    "allocated": rf"{AMOUNT} (?:is allocated by PyTorch|already allocated)",
    "reserved": rf"{AMOUNT} reserved in total",
    "unused": rf"{AMOUNT} is reserved by PyTorch but unallocated",
}


def sizes(line: str) -> dict[str, float]:
    """The parts that the message names, GiB."""
    found = {}
    for name, part in PARTS.items():
        if m := re.search(part, line, re.IGNORECASE):
            found[name] = float(m[1]) * next(v for k, v in UNITS.items() if k.lower() == m[2].lower())
    if "reserved" in found and "allocated" in found:
        found.setdefault("unused", found["reserved"] - found["allocated"])
        found.setdefault("mine", found["reserved"])
    return found


def others(line: str) -> float:
    """GiB on the card that are neither free nor this process's; 0 when the message does not tell."""
    s = sizes(line)
    # A context of its own takes about half a GiB, which older messages count nowhere.
    return max(0.0, s["total"] - s.get("free", 0.0) - s["mine"] - 0.6) if {"total", "mine"} <= s.keys() else 0.0


def by_others(line: str) -> Mapping[str, str] | None:
    """Somebody else holds a good part of the card."""
    s, held = sizes(line), others(line)
    return {"held": f"{held:.1f} of {s['total']:.1f} GiB"} if held > 1 and held > 0.1 * s["total"] else None


def in_pieces(line: str) -> Mapping[str, str] | None:
    """PyTorch holds enough memory that it does not use, in pieces too small."""
    s = sizes(line)
    if (
        by_others(line)
        or not {"asked", "unused"} <= s.keys()
        or s["unused"] < max(s["asked"], 0.1 * s.get("total", 5.0))
    ):
        return None
    return {"unused": f"{s['unused']:.1f} GiB"}


def own(line: str) -> Mapping[str, str] | None:
    """The program's own use, or nothing that tells otherwise."""
    if by_others(line) or in_pieces(line):
        return None
    s = sizes(line)
    words = {"asked": f" for {s['asked']:.2f} GiB more"} if "asked" in s else {"asked": ""}
    if "total" in s:
        words["total"] = f" of {s['total']:.1f} GiB"
        if s.get("asked", 0) > s["total"]:
            words["more"] = " A single tensor larger than the whole card was asked for: look for a wrong size first."
    return {"total": "", "more": "", **words}


# What fails before this process has allocated anything.
AT_START = (
    r"error 2: out of memory",
    r"free memory on device \S{0,20} ?\([\d.]{1,8}/[\d.]{1,8} GiB\) on startup is less than",
)
OOM = (
    r"CUDA out of memory",
    r"torch\.(?:cuda\.)?OutOfMemoryError",
    r"CUDA error: out of memory",
    r"CUDA_ERROR_OUT_OF_MEMORY",
    r"cudaErrorMemoryAllocation",
    r"RESOURCE_EXHAUSTED: (?:failed to allocate|out of memory)",
    r"cudaMalloc\S{0,12} failed: out of memory",
    r"no available memory for the cache blocks",
)
ENTRIES = (
    Entry(
        id="gpu-memory-held-by-others",
        title="Others hold the GPU's memory",
        layer="resources",
        rank=1,
        cause="Other processes hold {held|a large part} of the card, in other containers or left over from a crash; "
        "from inside a container nvidia-smi does not list them.",
        fix="On the host find and end them (`nvidia-smi`, `sudo fuser -v /dev/nvidia*`); restart a notebook's "
        "kernel that still holds memory.",
        command="sudo fuser -v /dev/nvidia*",
        text=(r"CUDA out of memory.{0,20}tried to allocate", *AT_START),
        weak=OOM,
        beside=(
            r"\bdefunct\b",
            r"\d{4,5}MiB ?/ {0,4}\d{4,6}MiB.{0,40}\b0%",
            r"memory.used.{0,40}[1-9]\d{4}",
        ),
        read=lambda line: by_others(line) if "tried to allocate" in line.lower() else {},
        facts=facts.held_by_others,
        hides=("gpu-memory-own", "gpu-memory-in-pieces", "cublas-failed"),
        source=("docker/for-linux#1531", "NVIDIA/nvidia-docker#179"),
    ),
    Entry(
        id="gpu-memory-in-pieces",
        title="The GPU's memory is full in pieces too small",
        layer="program",
        rank=20,
        cause="PyTorch holds {unused|memory} on the card that it does not use, in pieces smaller than what was "
        "asked for.",
        fix="Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True before the program starts; then use sizes that "
        "change less.",
        command="export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        text=OOM[:2],
        read=in_pieces,
        hides=("gpu-memory-own", "cublas-failed"),
        fault="program",
    ),
    Entry(
        id="gpu-memory-own",
        title="The program needs more GPU memory than the card has",
        layer="program",
        rank=21,
        cause="The program itself filled the card{total|} and asked{asked|} in vain: batch, sequence or model are "
        "too large for it. The GPU, the container and the stack are well.{more|}",
        fix="Halve the batch size (gradient accumulation keeps the effect), use bfloat16, torch.no_grad() for "
        "inference, activation checkpointing, or 8-bit weights; PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True "
        "helps when the last bit is missing.",
        command="export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        text=OOM,
        read=own,
        hides=("cublas-failed", "cudnn-no-engine"),
        fault="program",
    ),
)
