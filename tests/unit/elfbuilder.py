"""Small ELF files, fat binaries and loader caches, made byte by byte for the tests of their readers."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path

BASE = 0x1000  # address of the first byte of the file in memory
PROGBITS, STRTAB, DYNAMIC, DYNSYM, VERNEED = 1, 3, 6, 11, 0x6FFFFFFE
ALLOC, EXEC = 0x2, 0x4
PTX_TEXT = b"\n.version 8.7\n.target sm_80\n.address_size 64\n.visible .entry k()\n{ ret; }\n"
EMPTY_PTX = b"\n.version 8.7\n.target sm_80\n.address_size 64\n"
LZ4, ZSTD, ARCH, FAMILY = 0x2000, 0x8000, 0x100000, 0x200000


@dataclass(frozen=True)
class Strings:
    """A string table under construction."""

    data: bytearray = field(default_factory=lambda: bytearray(b"\0"))

    def add(self, text: str) -> int:
        at = len(self.data)
        self.data.extend(text.encode() + b"\0")
        return at


def shared_object(
    *,
    soname: str = "",
    needed: tuple[str, ...] = (),
    rpath: str = "",
    runpath: str = "",
    defined: tuple[str, ...] = (),
    undefined: tuple[str, ...] = (),
    weak: tuple[str, ...] = (),
    versions: dict[str, tuple[str, ...]] | None = None,
    sections: dict[str, bytes] | None = None,
    machine: int = 62,
) -> bytes:
    """A little-endian ELF64 shared object with a dynamic section, symbols and the given data sections."""
    strings = Strings()
    dynamic = [(1, strings.add(name)) for name in needed]
    dynamic += [(tag, strings.add(text)) for tag, text in ((14, soname), (15, rpath), (29, runpath)) if text]
    symbols = bytes(24)
    for names, info, index in ((defined, 0x12, 1), (undefined, 0x12, 0), (weak, 0x22, 0)):
        for name in names:
            symbols += struct.pack("<IBBHQQ", strings.add(name), info, 0, index, 0, 0)
    requires = _requirements(versions or {}, strings)

    out = bytearray(64 + 2 * 56)
    rows: list[tuple[str, int, int, int, int, int]] = []  # name, type, flags, offset, size, link

    def add(name: str, kind: int, flags: int, content: bytes, link: int = 0) -> int:
        out.extend(bytes(-len(out) % 8))
        rows.append((name, kind, flags, len(out), len(content), link))
        out.extend(content)
        return rows[-1][3]

    strings_at = add(".dynstr", STRTAB, ALLOC, bytes(strings.data))
    add(".dynsym", DYNSYM, ALLOC, symbols, 1)
    if requires:
        add(".gnu.version_r", VERNEED, ALLOC, requires, 1)
    entries = [*dynamic, (5, BASE + strings_at), (10, len(strings.data)), (0, 0)]
    dynamic_at = add(".dynamic", DYNAMIC, ALLOC, b"".join(struct.pack("<qQ", *entry) for entry in entries), 1)
    for name, content in (sections or {}).items():
        add(name, PROGBITS, ALLOC | (EXEC if name.startswith(".text") else 0), content)
    return _finish(out, rows, 3, machine, [(1, 0, BASE, -1), (2, dynamic_at, BASE + dynamic_at, len(entries) * 16)])


def cubin(kernels: tuple[str, ...] = ("k",)) -> bytes:
    """An ELF file as ptxas makes it for a GPU, with one section of code per kernel."""
    rows: list[tuple[str, int, int, int, int, int]] = []
    out = bytearray(64)
    for name in kernels:
        rows.append((f".text.{name}", PROGBITS, ALLOC | EXEC, len(out), 16, 0))
        out += bytes(range(1, 17))
    return _finish(out, rows, 2, 190, [])


def entry(
    kind: int,
    arch: int,
    payload: bytes,
    *,
    flags: int = 0x11,
    isa: tuple[int, int] = (8, 7),
    unpacked: int = 0,
    header: int = 64,
    pad: int = 8,
) -> bytes:
    """One entry of a fat binary; `unpacked` is the size before compression."""
    packed = len(payload) if flags & (LZ4 | ZSTD) else 0
    payload += bytes(-len(payload) % pad)
    head = struct.pack("<HHIQIIHHIIIQ", kind, 0x101, header, len(payload), packed, 0, isa[1], isa[0], arch, 0, 0, flags)
    head += bytes(8) + unpacked.to_bytes(8, "little")
    return head + bytes(header - len(head)) + payload


def sass(arch: int, payload: bytes | None = None, *, flags: int = 0) -> bytes:
    return entry(2, arch, cubin() if payload is None else payload, flags=0x11 | flags, isa=(1, 7))


def ptx(arch: int, isa: tuple[int, int] = (8, 7), payload: bytes = PTX_TEXT, *, flags: int = 0) -> bytes:
    return entry(1, arch, payload, flags=0x11 | flags, isa=isa, header=80)


def container(*entries: bytes) -> bytes:
    body = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def lz4_literals(content: bytes) -> bytes:
    """An LZ4 block that holds its content as literals only."""
    length = len(content)
    if length < 15:
        return bytes([length << 4]) + content
    rest = length - 15
    return b"\xf0" + b"\xff" * (rest // 255) + bytes([rest % 255]) + content


def library(*containers: bytes, section: str = ".nv_fatbin") -> bytes:
    """A shared object with these containers in one section."""
    return shared_object(sections={section: b"".join(containers)})


def write(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def loader_cache(libraries: dict[str, str], flags: int = 0x0303) -> bytes:
    """An ld.so.cache of the format that glibc writes since 2.32."""
    start = 48 + 24 * len(libraries)
    text = bytearray()
    rows = b""
    for name, path in libraries.items():
        key = start + len(text)
        text += name.encode() + b"\0"
        value = start + len(text)
        text += path.encode() + b"\0"
        rows += struct.pack("<iIIIQ", flags, key, value, 0, 0)
    head = b"glibc-ld.so.cache1.1" + struct.pack("<II", len(libraries), len(text))
    return head + bytes(48 - len(head)) + rows + bytes(text)


def _requirements(versions: dict[str, tuple[str, ...]], strings: Strings) -> bytes:
    out = b""
    for number, (file, names) in enumerate(versions.items()):
        last = number == len(versions) - 1
        size = 16 + 16 * len(names)
        out += struct.pack("<HHIII", 1, len(names), strings.add(file), 16, 0 if last else size)
        for index, name in enumerate(names):
            following = 0 if index == len(names) - 1 else 16
            out += struct.pack("<IHHII", 0, 0, 2, strings.add(name), following)
    return out


def _finish(
    out: bytearray,
    rows: list[tuple[str, int, int, int, int, int]],
    kind: int,
    machine: int,
    programs: list[tuple[int, int, int, int]],
) -> bytes:
    names = Strings()
    numbers = [names.add(row[0]) for row in rows]
    own = names.add(".shstrtab")
    names_at = len(out)
    out += names.data
    out += bytes(-len(out) % 8)
    table = len(out)
    out += bytes(64)
    for number, (_, sort, flags, offset, size, link) in zip(numbers, rows, strict=True):
        address = BASE + offset if flags & ALLOC else 0
        out += struct.pack("<IIQQQQIIQQ", number, sort, flags, address, offset, size, link, 0, 8, 0)
    out += struct.pack("<IIQQQQIIQQ", own, STRTAB, 0, 0, names_at, len(names.data), 0, 0, 1, 0)
    at = 64
    for sort, offset, address, size in programs:
        length = len(out) if size < 0 else size
        out[at : at + 56] = struct.pack("<IIQQQQQQ", sort, 6, offset, address, address, length, length, 8)
        at += 56
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    out[:64] = struct.pack(
        "<16sHHIQQQIHHHHHH", ident, kind, machine, 1, 0, 64 if programs else 0, table, 0, 64, 56, len(programs), 64,
        len(rows) + 2, len(rows) + 1,
    )  # fmt: skip
    return bytes(out)
