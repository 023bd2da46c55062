"""Two builds that should be the same bytes: which layer differs, and which files in it, by the two OCI layouts."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import subprocess
import tarfile
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any

from verify.core import UsageError

SHOWN = 10  # files named of a layer
Entry = tuple[Any, ...]
FIELDS = ("type", "mode", "owner", "size", "time", "link", "attributes", "contents")


@contextmanager
def unpacked(stream: IO[bytes], media: str) -> Iterator[IO[bytes]]:
    """A layer as a plain tar. Python before 3.14 has no zstd, so the program unpacks it, into a scratch file."""
    with tempfile.TemporaryFile() as made:
        if "zstd" in media:
            program = shutil.which("zstd")
            if not program:
                raise UsageError("The layers are zstd and the program zstd is not installed: apt-get install zstd.")
            with tempfile.TemporaryFile() as packed:
                shutil.copyfileobj(stream, packed, 1 << 20)
                packed.seek(0)
                subprocess.run([program, "-dc"], stdin=packed, stdout=made, check=True)
        elif "gzip" in media:
            machine = zlib.decompressobj(wbits=31)
            while chunk := stream.read(1 << 20):
                made.write(machine.decompress(chunk))
            made.write(machine.flush())
        else:
            shutil.copyfileobj(stream, made, 1 << 20)
        made.seek(0)
        yield made


def entries(stream: IO[bytes]) -> dict[str, Entry]:
    """Path → FIELDS of a tar's members, in the tar's order."""
    found: dict[str, Entry] = {}
    with tarfile.open(fileobj=stream, mode="r:") as archive:
        for member in archive:
            digest = ""
            if member.isfile() and (data := archive.extractfile(member)):
                made = hashlib.sha256()
                while chunk := data.read(1 << 20):
                    made.update(chunk)
                digest = made.hexdigest()
            pax = {k: v for k, v in member.pax_headers.items() if k.startswith("SCHILY.xattr")}
            owner = f"{member.uid}:{member.gid}"
            found[member.name] = (
                member.type, oct(member.mode), owner, member.size, member.mtime, member.linkname,
                sorted(pax.items()), digest,
            )  # fmt: skip
    return found


def between(first: dict[str, Entry], second: dict[str, Entry]) -> list[str]:
    """One line per path that differs, in the first tar's order; a mere difference in order is said too."""
    lines = []
    for path in [*first, *(path for path in second if path not in first)]:
        old, new = first.get(path), second.get(path)
        if old is None or new is None:
            lines.append(f"{path}: only in the {'second' if old is None else 'first'}")
        elif old != new:
            odd = [
                name if name == "contents" else f"{name} {a} → {b}"
                for name, a, b in zip(FIELDS, old, new, strict=True)
                if a != b
            ]
            lines.append(f"{path}: {', '.join(odd)}")
    if not lines and list(first) != list(second):
        at = next(a for a, b in zip(first, second, strict=True) if a != b)
        lines.append(f"{at}: the same files in another order")
    return lines or ["the same files: the tar headers or the compression differ"]


def read_json(archive: tarfile.TarFile, name: str) -> dict[str, Any]:
    """A small document of a layout."""
    member = archive.extractfile(name)
    if member is None:
        raise UsageError(f"{name} in the OCI layout is no file.")
    found: dict[str, Any] = json.load(member)
    return found


def blob(digest: str) -> str:
    """Where a layout keeps a digest."""
    return f"blobs/{digest.replace(':', '/')}"


def image_of(archive: tarfile.TarFile) -> tuple[str, dict[str, Any]]:
    """Digest and manifest of the one image (no attestation) in a layout."""
    pending = list(read_json(archive, "index.json")["manifests"])
    while pending:
        entry = pending.pop(0)
        if "vnd.docker.reference.type" in (entry.get("annotations") or {}):
            continue
        document = read_json(archive, blob(entry["digest"]))
        if "layers" in document:
            return entry["digest"], document
        pending += document.get("manifests") or []
    raise UsageError("The OCI layout holds no image.")


def layer_files(archive: tarfile.TarFile, layer: dict[str, Any]) -> dict[str, Entry]:
    """The members of one layer."""
    stream = archive.extractfile(blob(layer["digest"])) or io.BytesIO()
    with unpacked(stream, layer["mediaType"]) as plain:
        return entries(plain)


def explain(first: str, second: str) -> list[str]:
    """Why two layouts hold different images; empty when they hold the same one. UsageError: one cannot be read."""
    try:
        with tarfile.open(first) as a, tarfile.open(second) as b:
            (old_digest, old), (new_digest, new) = image_of(a), image_of(b)
            if old_digest == new_digest:
                return []
            lines = [f"{old_digest} and {new_digest}"]
            history = [
                h for h in read_json(a, blob(old["config"]["digest"])).get("history") or () if not h.get("empty_layer")
            ]
            for place, (one, two) in enumerate(zip(old["layers"], new["layers"], strict=False)):
                if one["digest"] == two["digest"]:
                    continue
                made_by = (
                    " ".join(str(history[place].get("created_by", "")).split())[:80] if place < len(history) else ""
                )
                files = between(layer_files(a, one), layer_files(b, two))
                lines.append(f"layer {place + 1} ({made_by}): {len(files)} difference(s)")
                lines += [f"  {line}" for line in files[:SHOWN]]
            if len(old["layers"]) != len(new["layers"]):
                lines.append(f"{len(old['layers'])} and {len(new['layers'])} layers")
            if len(lines) == 1:
                x, y = (read_json(t, blob(m["config"]["digest"])) for t, m in ((a, old), (b, new)))
                odd = [key for key in sorted({*x, *y}) if x.get(key) != y.get(key)]
                lines.append(f"all layers are equal; the configuration differs in: {', '.join(odd) or 'its form'}")
            return lines
    except (OSError, KeyError, ValueError, tarfile.TarError, subprocess.CalledProcessError) as error:
        raise UsageError(f"{first} and {second} cannot be compared ({type(error).__name__}: {error}).") from error


def main(names: Sequence[str]) -> int:
    """0 when the two layouts hold the same image, else 1 with the differences."""
    if len(names) != 2:
        raise UsageError("diff takes two OCI layouts as tar files (docker buildx build --output type=oci,dest=F).")
    lines = explain(*names)
    print("\n".join(lines) if lines else "Both hold the same image.")
    return 1 if lines else 0
