"""The wheels of a site-packages: whose file is whose, what the licence says, and RECORD files that stay true.

A site-packages may lie in parts (an image's layers before they meet): every part has the same paths below it, and the
*.dist-info folders may be in another part than the files.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from verify.slim.edit import replace

# Wheels whose GPU code may be edited, if their own metadata names a licence that allows it.
EDITABLE = ("torch", "torchvision", "torchaudio", "xformers", "flash-attn", "bitsandbytes", "triton")
_PERMISSIVE = re.compile(r"\b(BSD|MIT|Apache)\b")
_PROPRIETARY = re.compile(r"NVIDIA|Proprietary", re.IGNORECASE)
# NVIDIA's own libraries, also where another wheel carries them.
_NVIDIA_FILE = re.compile(r"^(lib(cu|nv|nccl|checkpoint|pcsampling)|ptxas|nvdisasm|cuobjdump|nvlink|fatbinary)")


@dataclass(frozen=True)
class Wheel:
    """An installed distribution: its name and version ("torch 2.8.0"), licence as its metadata says, and RECORD."""

    name: str
    title: str
    licence: str
    record: Path

    def forbids(self, path: str) -> str:
        """Why the file at `path` of this wheel must not be edited; "" when it may."""
        if self.name not in EDITABLE:
            return f"{self.title} is not among the packages that are edited ({self.licence or 'no licence named'})"
        if _PROPRIETARY.search(self.licence) or not _PERMISSIVE.search(self.licence):
            return f"the licence of {self.title} is not known to allow it ({self.licence or 'none named'})"
        if _NVIDIA_FILE.match(path.rsplit("/", 1)[-1]):
            return "NVIDIA's own file"
        return ""


def owners(parts: Iterable[Path]) -> dict[str, Wheel]:
    """Path below site-packages → the wheel whose RECORD lists it."""
    found: dict[str, Wheel] = {}
    for part in parts:
        for record in sorted(part.glob("*.dist-info/RECORD")):
            wheel = _wheel(record)
            for line in record.read_text("utf-8", "replace").splitlines():
                found[_path(line)] = wheel
    return found


def update(record: Path, changed: Mapping[str, tuple[str, int]], gone: Sequence[str] = ()) -> bool:
    """Makes RECORD true again: path → (SHA-256 as hex digits, size), and paths that are no more. False: it was true."""
    before = record.read_bytes().decode("utf-8", "surrogateescape").splitlines(keepends=True)
    after = []
    for line in before:
        path = _path(line)
        if path in gone:
            continue
        if path in changed:
            digest, size = changed[path]
            code = base64.urlsafe_b64encode(bytes.fromhex(digest)).rstrip(b"=").decode()
            head = line.rstrip("\r\n")
            after.append(f"{head.rsplit(',', 2)[0]},sha256={code},{size}{line[len(head) :]}")
        else:
            after.append(line)
    if after == before:
        return False
    content = "".join(after).encode("utf-8", "surrogateescape")

    def fill(out: BinaryIO) -> None:
        out.write(content)

    replace(record, fill)
    return True


def _path(line: str) -> str:
    return line.rstrip("\r\n").rsplit(",", 2)[0].strip('"')


def _wheel(record: Path) -> Wheel:
    name, _, version = record.parent.name.removesuffix(".dist-info").partition("-")
    try:
        text = (record.parent / "METADATA").read_text("utf-8", "replace")
    except OSError:
        text = ""
    fields = text.split("\n\n", 1)[0]
    said = re.findall(
        r"^(?:License|License-Expression|Classifier: License ::(?: OSI Approved ::)?):? *(.+)$", fields, re.M
    )
    licence = ", ".join(dict.fromkeys(s.strip() for s in said if s.strip() not in ("UNKNOWN", "")))
    normal = re.sub(r"[-_.]+", "-", name).lower()
    return Wheel(normal, f"{normal} {version}", licence, record)
