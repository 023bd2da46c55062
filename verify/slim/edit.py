"""Rewrites one file with parts of it zeroed or lines changed: whole or not at all, with the old mode and date."""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from verify.slim.decide import Span

_BLOCK = 4 << 20
Hashes = tuple[str, str]


def zeroed(
    path: Path, spans: Sequence[Span], announce: Callable[[str, str], None] = lambda _before, _after: None
) -> Hashes:
    """Replaces the file by a copy with the spans zeroed; SHA-256 before and after. One pass; zeros become holes.

    `announce` gets the hashes just before the new file takes the old one's place, so that a journal is always ahead.
    Raises OSError; the file is then what it was.
    """
    before, after = hashlib.sha256(), hashlib.sha256()

    def fill(out: BinaryIO) -> None:
        with path.open("rb") as source:
            at = 0
            for span in (*spans, Span(path.stat().st_size, 0)):
                if span.offset < at:
                    raise OSError(f"the parts to zero in {path.name} overlap")
                for block in _blocks(source, span.offset - at):
                    before.update(block)
                    after.update(block)
                    out.write(block)
                for block in _blocks(source, span.size):
                    before.update(block)
                    after.update(bytes(len(block)))
                out.seek(span.size, os.SEEK_CUR)
                at = span.offset + span.size
            out.truncate(at)

    replace(path, fill, lambda: announce(before.hexdigest(), after.hexdigest()))
    return before.hexdigest(), after.hexdigest()


def replace(path: Path, fill: Callable[[BinaryIO], None], last: Callable[[], None] = lambda: None) -> None:
    """Replaces the file by what `fill` writes, on the disk before it takes the name. Raises OSError."""
    status = path.stat()
    partial = path.with_name(f".{path.name}.slim")  # one name: what a killed run left is overwritten by the next
    try:
        with partial.open("wb") as out:
            fill(out)
            out.flush()
            with contextlib.suppress(PermissionError):
                os.fchown(out.fileno(), status.st_uid, status.st_gid)
            os.fchmod(out.fileno(), status.st_mode & 0o7777)
            os.fsync(out.fileno())
        os.utime(partial, ns=(status.st_atime_ns, status.st_mtime_ns))
        last()
        os.replace(partial, path)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise


def sha256(path: Path) -> str:
    """Of a file's content, as hex digits. Raises OSError."""
    digest = hashlib.sha256()
    with path.open("rb") as source:
        while block := source.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def compressed(path: Path) -> int | None:
    """Bytes of the file after `zstd -3`, as a registry would send it; None without the program zstd."""
    try:
        with subprocess.Popen(["zstd", "-3", "-T1", "-q", "-c", str(path)], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            count = 0
            while block := process.stdout.read(1 << 20):
                count += len(block)
        return count if process.returncode == 0 else None
    except OSError:
        return None


def _blocks(source: BinaryIO, size: int) -> Iterator[bytes]:
    while size > 0:
        block = source.read(min(size, _BLOCK))
        if not block:
            raise OSError("the file became shorter while it was read")
        size -= len(block)
        yield block
