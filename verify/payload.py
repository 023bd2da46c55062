"""Looks inside small device-code payloads to tell code from empty shells.

nvcc writes a fat binary for every translation unit, also for one without a kernel, for whatever GPU was its default:
libcufftw of CUDA 12.8 holds one cubin of 872 bytes for sm_52 and not one kernel. Such a shell must not count as "code
only for other cards". Only small payloads are unpacked: the largest shell seen has 1976 bytes.
"""

from __future__ import annotations

from verify import elf
from verify.elf import Buffer
from verify.fatbin import Container, Entry, Kind, Payload

SHELL_LIMIT = 4096  # bytes, unpacked


def is_empty(data: Buffer, container: Container) -> bool:
    """Whether no entry of the container holds a kernel or function. False whenever that cannot be proved."""
    return all(holds_code(data, entry) is False for entry in container.entries)


def holds_code(data: Buffer, entry: Entry) -> bool | None:
    """Whether the entry holds device code; None when that cannot be seen: big, packed with zstd, damaged, zeroed."""
    if (
        entry.payload is not Payload.PRESENT
        or not 0 < entry.unpacked_size <= SHELL_LIMIT
        or entry.compression == "zstd"
    ):
        return None
    content = bytes(data[entry.payload_offset : entry.payload_offset + entry.payload_size])
    if entry.compression == "lz4":
        unpacked = unpack_lz4(content, entry.unpacked_size)
        if unpacked is None:
            return None
        content = unpacked
    if entry.kind is Kind.PTX:
        return b".entry" in content or b".func" in content
    if entry.kind is not Kind.SASS:
        return None
    try:
        return any(section.name.startswith(".text") for section in elf.read(content).sections)
    except elf.ElfError:
        return None


def unpack_lz4(packed: bytes, size: int) -> bytes | None:
    """The first `size` bytes of an LZ4 block (bytes after its end are padding); None when it is damaged.

    Source: the LZ4 block format: token, literals, two-byte offset, match; lengths of 15 go on in further bytes.
    """
    out = bytearray()
    at = 0
    try:
        while len(out) < size:
            token = packed[at]
            literals, at = _length(packed, at + 1, token >> 4)
            if at + literals > len(packed):
                return None
            out += packed[at : at + literals]
            at += literals
            if len(out) >= size:
                break
            distance = packed[at] | packed[at + 1] << 8
            match, at = _length(packed, at + 2, token & 15)
            if not 0 < distance <= len(out):
                return None
            start = len(out) - distance
            for index in range(min(match + 4, size - len(out))):  # byte by byte: a match may overlap its own output
                out.append(out[start + index])
    except IndexError:
        return None
    return bytes(out[:size])


def _length(packed: bytes, at: int, length: int) -> tuple[int, int]:
    if length == 15:
        while True:
            more = packed[at]
            at += 1
            length += more
            if more != 255:
                break
    return length, at
