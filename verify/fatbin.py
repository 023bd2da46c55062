"""Reads CUDA fat binaries inside ELF files: which GPU code a library carries, and exactly where.

Layout, measured on the wheels of torch 2.8 (CUDA 12.8), cuDNN 9.10, bitsandbytes 0.50 (CUDA 11.8 … 13.2) and on what
nvcc 13.0 writes with every option; little-endian:

    container   +0 u32 magic 0xBA55ED50   +4 u16 version (1)   +6 u16 header size (16)   +8 u64 size of the entries
    entry       +0 u16 kind               +4 u32 header size   +8 u64 payload size, padded
                +16 u32 packed size       +24 u16 minor, +26 u16 major    +28 u32 arch (89)
                +32 u32, +36 u32 offset and length of the identifier      +40 u64 flags
                +56 u64 unpacked size     then options and names up to the header size

- kind 1 is PTX, 2 is SASS (a cubin), 8 is NVVM for link-time optimisation (`-dlto`).
- For PTX, major.minor is the ISA version of the text's `.version` line, so no payload is unpacked (checked: equal in
  9,441 PTX of these wheels, and a text edited to 7.8 and packed by fatbinary 13.0 says 7.8). For SASS it is the
  version of the ELF format.
- flags: 0x1 64-bit, 0x2 debug, 0x10 Linux, 0x2000 LZ4, 0x8000 zstd, 0x100000 architecture-specific ("sm_90a"),
  0x200000 family-specific ("sm_100f"), 0x1000000 set for the cubin format of sm_100 and later, 0x10000 LTO.
- Packed size is 0 for a payload that is not compressed.

Sections: `.nv_fatbin` holds what the CUDA runtime registers, `__nv_relfatbin` the parts of relocatable device code. A
library may keep more fat binaries in its own data and load them itself (`loose`): of CUDA 12.8 cuFFT does so with
23,531 in `.ldata` (its `.nv_fatbin` holds no kernel at all), cuBLASLt with 443, cuSPARSELt with 260 and cuDNN with 110
in `.cask_resource`, cuSPARSE with 34 in `.rodata`. They are found by their magic number.

Offsets are offsets in the file, so the same reader serves a tool that edits payloads in place. What is not understood
is a `Problem` with its place and length; it is never skipped in silence. Bare cubins and .fatbin files are not read.

Speed: only headers are read; data sections are searched at about 1 GB/s.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from verify import elf
from verify.elf import Buffer
from verify.fatentry import HEADER, Entry, Kind, Payload, decode, only_zeros

__all__ = ["Container", "Entry", "FatBinary", "Kind", "Payload", "Problem", "read", "read_file"]

MAGIC = 0xBA55ED50
MAGIC_BYTES = MAGIC.to_bytes(4, "little")
SECTIONS = (".nv_fatbin", "__nv_relfatbin")

_CONTAINER = struct.Struct("<IHHQ")
_BLOCK = 1 << 20


@dataclass(frozen=True)
class Container:
    """One fat binary: the same kernels for several GPUs; the driver picks one entry of it."""

    section: str
    offset: int
    size: int
    entries: tuple[Entry, ...]

    @property
    def loose(self) -> bool:
        """Whether the library loads it by its own code, so that it alone decides which card gets it."""
        return self.section not in SECTIONS


@dataclass(frozen=True)
class Problem:
    """Bytes that were not understood, and why. Never edited, never counted as code."""

    section: str
    offset: int
    size: int
    what: str


@dataclass(frozen=True)
class FatBinary:
    """All device code of one ELF file."""

    containers: tuple[Container, ...] = ()
    problems: tuple[Problem, ...] = ()


def read_file(path: str | os.PathLike[str]) -> FatBinary:
    """The device code of an ELF file; empty when it has none. Raises ElfError or OSError."""
    with elf.mapped(path) as data:
        return read(data, elf.read(data))


def read(data: Buffer, tables: elf.Elf) -> FatBinary:
    """The device code in every fat-binary section. Never raises on content: what is wrong becomes a `Problem`."""
    containers: list[Container] = []
    problems: list[Problem] = []
    for section in tables.sections:
        if section.size == 0 or not (section.name in SECTIONS or section.is_data):
            continue
        end = section.offset + section.size
        if end > len(data):
            missing = end - len(data)
            problems.append(Problem(section.name, section.offset, section.size, f"{missing} bytes are missing (cut?)"))
            end = len(data)
        walk = _walk if section.name in SECTIONS else _search
        for found in walk(data, section.name, section.offset, end):
            if isinstance(found, Problem):
                problems.append(found)
            else:
                containers.append(found)
    return FatBinary(tuple(containers), tuple(problems))


def _search(data: Buffer, section: str, start: int, end: int) -> Iterator[Container | Problem]:
    """Fat binaries inside other data. Four bytes alone prove nothing: a header that does not fit is no finding."""
    position = _find_magic(data, start, end)
    while position < end:
        if position + _CONTAINER.size <= end:
            _, version, header_size, size = _CONTAINER.unpack_from(data, position)
            stop = position + header_size + size
            if version == 1 and header_size == _CONTAINER.size and size > 0 and stop <= end:
                entries, problems = _entries(data, section, position + header_size, stop)
                yield Container(section, position, stop - position, entries)
                yield from problems
                position = _find_magic(data, stop, end)
                continue
        position = _find_magic(data, position + 1, end)


def _find_magic(data: Buffer, start: int, end: int) -> int:
    """Offset of the next magic number, or `end`. Searches copies: that is faster than searching a mapping."""
    at, step = start, 256  # they mostly follow each other closely, so begin small
    while at < end:
        found = bytes(data[at : min(at + step + 3, end)]).find(MAGIC_BYTES)
        if found >= 0:
            return at + found
        at, step = at + step, min(step * 4, 16 * _BLOCK)
    return end


def _walk(data: Buffer, section: str, start: int, end: int) -> Iterator[Container | Problem]:
    position = start
    while position < end:
        if data[position : position + 4] != MAGIC_BYTES:
            stop = _find_magic(data, position, end)
            if not only_zeros(data, position, stop):
                yield Problem(section, position, stop - position, "bytes between fat binaries that are no fat binary")
            position = stop
            continue
        if position + _CONTAINER.size > end:
            yield Problem(section, position, end - position, "a fat binary's header is cut off")
            return
        _, version, header_size, size = _CONTAINER.unpack_from(data, position)
        stop = position + header_size + size
        if version != 1 or header_size < _CONTAINER.size or stop > end:
            what = f"a fat binary of version {version}, header {header_size} and {size} bytes that does not fit"
            # Go on at the next magic number: one bad header must not hide what follows it.
            stop = _find_magic(data, position + 4, end)
            yield Problem(section, position, stop - position, what)
            position = stop
            continue
        entries, problems = _entries(data, section, position + header_size, stop)
        yield Container(section, position, stop - position, entries)
        yield from problems
        position = stop


def _entries(data: Buffer, section: str, start: int, end: int) -> tuple[tuple[Entry, ...], list[Problem]]:
    entries: list[Entry] = []
    problems: list[Problem] = []
    position = start
    while position < end:
        if position + HEADER.size > end:
            if not only_zeros(data, position, end):
                problems.append(Problem(section, position, end - position, "an entry's header is cut off"))
            break
        row = HEADER.unpack_from(data, position)
        kind, header_size, payload_size = row[0], row[2], row[3]
        stop = position + header_size + payload_size
        if header_size < HEADER.size or stop > end:
            if not only_zeros(data, position, end):
                what = f"an entry of kind {kind}, header {header_size} and {payload_size} bytes that does not fit"
                problems.append(Problem(section, position, end - position, what))
            break
        entry, doubts = decode(data, position, row)
        entries.append(entry)
        problems.extend(Problem(section, position, header_size + payload_size, doubt) for doubt in doubts)
        position = stop
    return tuple(entries), problems
