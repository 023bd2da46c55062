"""Reads the tables of ELF64 files: sections, segments and what the dynamic loader is told.

Little-endian ELF64 only (the only kind an x86_64 or aarch64 Linux wheel holds). Every offset is checked against the
length of the file, every table has a bounded number of entries, so a truncated or hostile file ends in `ElfError`
with one sentence, never in a crash or an endless loop. Source of the layout: the System V gABI and `elf.h`.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

Buffer = bytes | mmap.mmap

MAGIC = b"\x7fELF"
SHARED = 3  # e_type ET_DYN: shared objects and position-independent programs
X86_64, AARCH64, CUDA = 62, 183, 190  # e_machine

_SHT_PROGBITS, _SHT_NOBITS = 1, 8
_SHF_ALLOC, _SHF_EXECINSTR = 0x2, 0x4
_PT_LOAD, _PT_DYNAMIC, _PT_INTERP = 1, 2, 3
_DT_NEEDED, _DT_STRTAB, _DT_STRSZ, _DT_SONAME, _DT_RPATH, _DT_RUNPATH = 1, 5, 10, 14, 15, 29
_NAME_LIMIT = 1 << 16  # bytes; the longest mangled name in torch 2.8 has 9 KB

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_PROGRAM = struct.Struct("<IIQQQQQQ")
_DYNAMIC = struct.Struct("<qQ")


class ElfError(ValueError):
    """The file is not an ELF64 file this reader understands; the text says what is wrong with it."""


@dataclass(frozen=True)
class Section:
    """One section; offset and size in bytes of the file (size 0 in the file for a section without content)."""

    name: str
    kind: int
    offset: int
    size: int
    link: int = 0
    flags: int = 0

    @property
    def is_data(self) -> bool:
        """Loaded into memory, has content in the file and is not machine code of the host."""
        return self.kind == _SHT_PROGBITS and bool(self.flags & _SHF_ALLOC) and not self.flags & _SHF_EXECINSTR


@dataclass(frozen=True)
class Segment:
    """One program header: where `size` bytes at file `offset` appear in memory."""

    kind: int
    offset: int
    address: int
    size: int


@dataclass(frozen=True)
class Dynamic:
    """What the loader reads: sonames it needs and where it is told to search. Search paths are split at ':'."""

    soname: str = ""
    needed: tuple[str, ...] = ()
    rpath: tuple[str, ...] = ()
    runpath: tuple[str, ...] = ()


@dataclass(frozen=True)
class Elf:
    """An ELF file's tables, without its content. `dynamic` is None when it is not dynamically linked."""

    kind: int
    machine: int
    sections: tuple[Section, ...] = ()
    segments: tuple[Segment, ...] = ()
    dynamic: Dynamic | None = None
    interpreter: str = ""  # not empty for a program that the loader starts

    def section(self, name: str) -> Section | None:
        return next((s for s in self.sections if s.name == name), None)


def is_elf(path: str | os.PathLike[str]) -> bool:
    """Whether the file starts like a little-endian ELF64 file; False when it cannot be read."""
    try:
        with open(path, "rb") as handle:
            return handle.read(6) == MAGIC + b"\x02\x01"
    except OSError:
        return False


@contextmanager
def mapped(path: str | os.PathLike[str]) -> Iterator[Buffer]:
    """The file's bytes, mapped read-only, so that a 1 GB library costs no memory. Raises OSError."""
    with open(path, "rb") as handle:
        if os.fstat(handle.fileno()).st_size == 0:
            yield b""  # an empty file cannot be mapped
            return
        with mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield data


def read(data: Buffer) -> Elf:
    """The tables of an ELF64 file. Raises ElfError."""
    if len(data) < _HEADER.size or data[:4] != MAGIC:
        raise ElfError("not an ELF file, or shorter than an ELF header")
    if data[4] != 2 or data[5] != 1:
        raise ElfError("not a little-endian 64-bit ELF file")
    header = _HEADER.unpack_from(data, 0)
    kind, machine, phoff, shoff = header[1], header[2], header[5], header[6]
    phentsize, phnum, shentsize, shnum, shstrndx = header[9:14]
    segments = _read_segments(data, phoff, phentsize, phnum)
    sections = _read_sections(data, shoff, shentsize, shnum, shstrndx)
    return Elf(kind, machine, sections, segments, _read_dynamic(data, segments), _interpreter(data, segments))


def read_file(path: str | os.PathLike[str]) -> Elf:
    """`read` on a file. Raises ElfError or OSError."""
    with mapped(path) as data:
        return read(data)


def _read_sections(data: Buffer, offset: int, entry_size: int, count: int, names_index: int) -> tuple[Section, ...]:
    if offset == 0:
        return ()
    if entry_size != _SECTION.size:
        raise ElfError(f"a section header of {entry_size} bytes instead of {_SECTION.size}")
    if count == 0:  # more than 65279 sections: the count is in the first header (gABI, extended numbering)
        count = _SECTION.unpack_from(take(data, offset, _SECTION.size, "the section table"), 0)[5]
    table = take(data, offset, count * _SECTION.size, "the section table")
    rows = list(_SECTION.iter_unpack(table))
    if names_index == 0xFFFF and rows:
        names_index = rows[0][6]
    names = b""
    if 0 < names_index < len(rows):
        names = take(data, rows[names_index][4], rows[names_index][5], "the section names")
    return tuple(
        Section(text_at(names, r[0], "a section name"), r[1], r[4], 0 if r[1] == _SHT_NOBITS else r[5], r[6], r[2])
        for r in rows
    )


def _read_segments(data: Buffer, offset: int, entry_size: int, count: int) -> tuple[Segment, ...]:
    if offset == 0 or count == 0:
        return ()
    if entry_size != _PROGRAM.size:
        raise ElfError(f"a program header of {entry_size} bytes instead of {_PROGRAM.size}")
    table = take(data, offset, count * _PROGRAM.size, "the program headers")
    return tuple(Segment(r[0], r[2], r[3], r[5]) for r in _PROGRAM.iter_unpack(table))


def _read_dynamic(data: Buffer, segments: tuple[Segment, ...]) -> Dynamic | None:
    segment = next((s for s in segments if s.kind == _PT_DYNAMIC), None)
    if segment is None or segment.size == 0:
        return None
    table = take(data, segment.offset, segment.size - segment.size % _DYNAMIC.size, "the dynamic section")
    entries: list[tuple[int, int]] = []
    for tag, value in _DYNAMIC.iter_unpack(table):
        if tag == 0:
            break
        entries.append((tag, value))
    first: dict[int, int] = {}
    for tag, value in entries:
        first.setdefault(tag, value)
    if _DT_STRTAB not in first:
        return Dynamic()
    start = _file_offset(segments, first[_DT_STRTAB])
    strings = take(data, start, first.get(_DT_STRSZ, 0), "the dynamic strings")

    def text(value: int) -> str:
        return text_at(strings, value, "a dynamic string")

    def paths(tag: int) -> tuple[str, ...]:
        return tuple(p for p in text(first[tag]).split(":") if p) if tag in first else ()

    needed = tuple(text(value) for tag, value in entries if tag == _DT_NEEDED)
    soname = text(first[_DT_SONAME]) if _DT_SONAME in first else ""
    return Dynamic(soname, needed, paths(_DT_RPATH), paths(_DT_RUNPATH))


def _interpreter(data: Buffer, segments: tuple[Segment, ...]) -> str:
    segment = next((s for s in segments if s.kind == _PT_INTERP), None)
    if segment is None:
        return ""
    raw = take(data, segment.offset, segment.size, "the interpreter's name")
    return raw.split(b"\0", 1)[0].decode("utf-8", "replace")


def _file_offset(segments: tuple[Segment, ...], address: int) -> int:
    for segment in segments:
        if segment.kind == _PT_LOAD and segment.address <= address < segment.address + segment.size:
            return address - segment.address + segment.offset
    raise ElfError(f"address {address:#x} lies in no loaded segment")


def take(data: Any, offset: int, size: int, what: str) -> bytes:
    """`size` bytes at `offset`. Raises ElfError, naming `what`, when they are not all there."""
    if offset < 0 or size < 0 or offset + size > len(data):
        raise ElfError(f"{what} ends at byte {offset + size}, but only {len(data)} bytes are there (truncated?)")
    return bytes(data[offset : offset + size])


def text_at(strings: bytes, offset: int, what: str) -> str:
    """The name at `offset` of a string table. Raises ElfError, naming `what`, when it lies outside."""
    if offset == 0 and not strings:
        return ""
    if offset >= len(strings):
        raise ElfError(f"{what} lies outside its string table")
    limit = min(len(strings), offset + _NAME_LIMIT)
    end = strings.find(b"\0", offset, limit)
    return strings[offset : end if end >= 0 else limit].decode("utf-8", "replace")
