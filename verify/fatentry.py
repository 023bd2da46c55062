"""One entry of a CUDA fat binary: its header, and whether its payload is there. `fatbin.py` describes the layout."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import Enum

from verify import elf
from verify.elf import Buffer

HEADER = struct.Struct("<HHIQIIHHIIIQ")  # 48 bytes: up to and with the flags
_WITH_UNPACKED_SIZE = 64  # header size from which +56 holds the unpacked size

_LZ4, _ZSTD = 0x2000, 0x8000
_ARCH_SPECIFIC, _FAMILY_SPECIFIC = 0x100000, 0x200000
_KNOWN_FLAGS = 0x1 | 0x2 | 0x10 | _LZ4 | _ZSTD | 0x10000 | _ARCH_SPECIFIC | _FAMILY_SPECIFIC | 0x1000000
_ZSTD_FRAME = b"\x28\xb5\x2f\xfd"
_BLOCK = 1 << 20


class Kind(str, Enum):
    PTX = "ptx"
    SASS = "sass"
    LTO = "lto"
    OTHER = "other"  # a kind this reader does not know; always reported as a problem too


_KINDS = {1: Kind.PTX, 2: Kind.SASS, 8: Kind.LTO}


class Payload(str, Enum):
    """What lies where the header says the code is."""

    PRESENT = "present"
    ZEROED = "zeroed"  # only zeros: the code was taken out, or never written
    DAMAGED = "damaged"  # bytes that cannot be what the header announces


@dataclass(frozen=True)
class Entry:
    """One piece of code for one GPU. Offsets and sizes in bytes, offsets from the start of the file."""

    kind: Kind
    arch: int  # 89 for sm_89
    variant: str  # "", "a" (architecture-specific) or "f" (family-specific)
    isa: tuple[int, int] | None  # PTX ISA version; None for anything but PTX, and for PTX that does not say
    compression: str  # "none", "lz4" or "zstd"
    header_offset: int
    payload_offset: int
    payload_size: int  # in the file, with padding
    unpacked_size: int  # 0 when the header does not say
    flags: int
    payload: Payload


def decode(data: Buffer, position: int, row: tuple[int, ...]) -> tuple[Entry, list[str]]:
    """The entry whose header, unpacked as `row`, starts at `position`; and what about it was not understood."""
    number, _, header_size, payload_size, packed, _, minor, major, arch, _, _, flags = row
    doubts = []
    kind = _KINDS.get(number, Kind.OTHER)
    if kind is Kind.OTHER:
        doubts.append(f"an entry of the unknown kind {number} for arch {arch}")
    if flags & ~_KNOWN_FLAGS:
        doubts.append(f"an entry for arch {arch} with unknown flags {flags & ~_KNOWN_FLAGS:#x}")
    if flags & _LZ4 and flags & _ZSTD:
        doubts.append(f"an entry for arch {arch} that claims two kinds of compression")
    if packed > payload_size:
        doubts.append(f"an entry for arch {arch} whose packed size {packed} exceeds its payload of {payload_size}")
    compression = "zstd" if flags & _ZSTD else "lz4" if flags & _LZ4 else "none"
    variant = "a" if flags & _ARCH_SPECIFIC else "f" if flags & _FAMILY_SPECIFIC else ""
    isa = (major, minor) if kind is Kind.PTX and major > 0 else None
    at = position + header_size
    unpacked = payload_size
    if compression != "none":
        unpacked = (
            int.from_bytes(data[position + 56 : position + 64], "little") if header_size >= _WITH_UNPACKED_SIZE else 0
        )
    payload = _payload(data, kind, compression, at, payload_size)
    if payload is Payload.DAMAGED:
        doubts.append(f"the {kind.value} for arch {arch} does not start like {compression} {kind.value}")
    entry = Entry(kind, arch, variant, isa, compression, position, at, payload_size, unpacked, flags, payload)
    return entry, doubts


def _payload(data: Buffer, kind: Kind, compression: str, start: int, size: int) -> Payload:
    head = bytes(data[start : start + min(size, 16)])
    if not any(head):
        return Payload.ZEROED if only_zeros(data, start, start + size) else Payload.DAMAGED
    good = True  # text and LZ4 of text have no fixed start, and NVVM has a packing of its own
    if kind in (Kind.PTX, Kind.SASS) and compression == "zstd":
        good = head.startswith(_ZSTD_FRAME)
    elif kind is Kind.SASS:
        at = 0
        if compression == "lz4":  # a token with the number of literals, perhaps more bytes of it, then the literals
            at = 1
            if head[0] >> 4 == 15:
                at += len(head[1:]) - len(head[1:].lstrip(b"\xff")) + 1
        good = head[at : at + 4] == elf.MAGIC[: len(head) - at]
    return Payload.PRESENT if good else Payload.DAMAGED


def only_zeros(data: Buffer, start: int, end: int) -> bool:
    """Whether every byte from `start` to `end` is zero."""
    for at in range(start, end, _BLOCK):
        block = bytes(data[at : min(at + _BLOCK, end)])
        if block.count(0) != len(block):
            return False
    return True
