"""A stream of bytes in blocks of whole lines, whatever its encoding and however long its lines."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from typing import BinaryIO

BLOCK = 1 << 20
PIECE = 4000  # bytes; longer lines are cut into pieces


def blocks(stream: BinaryIO) -> Iterator[bytes]:
    """Blocks of whole lines; UTF-16 (PowerShell's redirection) becomes UTF-8."""
    first = stream.read(BLOCK)
    decoder = None
    if first[:2] in (b"\xff\xfe", b"\xfe\xff"):
        decoder = codecs.getincrementaldecoder("utf-16")(errors="replace")
    carry = b""
    block = first
    while block:
        text = decoder.decode(block).encode(errors="replace") if decoder else block
        text = carry + text.replace(b"\r\n", b"\n")
        cut = text.rfind(b"\n") + 1
        if not cut and len(text) > BLOCK:
            cut = len(text)  # no line is this long; cutting it keeps the memory bounded
        if cut:
            yield text[:cut]
        carry = text[cut:]
        block = stream.read(BLOCK)
    if carry:
        yield carry


def pieces(raw: bytes) -> Iterator[bytes]:
    """A raw line, or pieces of a long one; they overlap, so that an error across a cut is whole in one of them."""
    for at in range(0, max(1, len(raw) - 300), PIECE - 300):
        yield raw[at : at + PIECE]
