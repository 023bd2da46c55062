"""Bytes of an image per layer: compressed as a registry would send them, unpacked as they lie on the disk.

Compressed sizes are read from the blobs the engine exports (``docker save`` of a containerd image store keeps them as
built); an engine with the classic store exports layers uncompressed, and the column says so.
"""

from __future__ import annotations

import io
import json
import sys
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from typing import IO, Any

from verify.plain import decode
from verify.slim.cli import table as libraries
from verify.slim.manifest import Manifest


@dataclass(frozen=True)
class Layer:
    """One layer: digest, bytes compressed (None if the store keeps none), bytes unpacked, what made it."""

    digest: str
    compressed: int | None
    unpacked: int
    made_by: str


class _Stream:
    """A readable file over an iterator of byte chunks, which is what the Docker SDK hands out."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._rest = b""

    def read(self, size: int) -> bytes:
        parts, have = [self._rest], len(self._rest)
        while have < size:
            chunk = next(self._chunks, b"")
            if not chunk:
                break
            parts.append(chunk)
            have += len(chunk)
        data = b"".join(parts)
        self._rest = data[size:]
        return data[:size]


def exported_blobs(stream: IO[bytes]) -> tuple[dict[str, int], dict[str, bytes]]:
    """Sizes of all blobs of an exported OCI layout by digest, and the contents of the small (JSON) ones."""
    sizes, documents = {}, {}
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in archive:
            name = member.name
            if name.startswith("blobs/sha256/") and member.isfile():
                digest = "sha256:" + name.rsplit("/", 1)[1]
                sizes[digest] = member.size
            elif name == "index.json":
                digest = name
            else:
                continue
            if member.size < 4_000_000 and (extracted := archive.extractfile(member)):
                documents[digest] = extracted.read()
    return sizes, documents


def manifest_of(documents: dict[str, bytes]) -> dict[str, Any]:
    """The image manifest (not an attestation) that the exported index leads to."""
    pending = list(json.loads(documents["index.json"])["manifests"])
    while pending:
        descriptor = pending.pop(0)
        if descriptor.get("annotations", {}).get("vnd.docker.reference.type") == "attestation-manifest":
            continue
        document = json.loads(documents.get(descriptor["digest"], b"{}"))
        if "layers" in document:
            return dict(document)
        pending += document.get("manifests", [])
    raise ValueError("the exported image holds no image manifest")


def layers(manifest: dict[str, Any], history: list[dict[str, Any]]) -> list[Layer]:
    """Pair the manifest's layers (oldest first) with the history's (newest first, with unpacked sizes)."""
    made = [entry for entry in reversed(history) if entry["Size"] > 0]
    descriptors = manifest["layers"]
    if len(made) != len(descriptors):  # an empty layer has no size in the history: no pairing can be trusted then
        made = [{"Size": 0, "CreatedBy": "?"}] * len(descriptors)
    result = []
    for descriptor, entry in zip(descriptors, made, strict=True):
        compressed = descriptor["size"] if descriptor["mediaType"].endswith(("zstd", "gzip")) else None
        result.append(Layer(descriptor["digest"], compressed, entry["Size"], entry["CreatedBy"]))
    return result


def table(found: list[Layer]) -> str:
    """The layers as text, sizes in MB (10^6 bytes), sums last."""

    def row(compressed: str, unpacked: str, made_by: str) -> str:
        return f"{compressed:>12}  {unpacked:>11}  {made_by}"

    lines = [row("compressed", "unpacked", "made by")]
    for layer in found:
        made_by = " ".join(layer.made_by.split()).removeprefix("RUN /bin/sh -c ").split(" # buildkit")[0]
        packed = "-" if layer.compressed is None else f"{layer.compressed / 1e6:.1f} MB"
        lines.append(
            row(packed, f"{layer.unpacked / 1e6:.1f} MB", made_by if len(made_by) <= 70 else made_by[:69] + "…")
        )
    known = [layer.compressed for layer in found if layer.compressed is not None]
    total = f"{sum(known) / 1e9:.2f} GB" if len(known) == len(found) else "not known"
    lines.append(row(total, f"{sum(layer.unpacked for layer in found) / 1e9:.2f} GB", "in all"))
    return "\n".join(lines)


def description(client: Any, image: str) -> dict[str, Any]:
    """The image's /opt/verify/image.json, taken out of a container that is never started; {} when it has none."""
    from docker.errors import DockerException

    container = client.containers.create(image, ["true"])
    try:
        chunks, _ = container.get_archive("/opt/verify/image.json")
        with tarfile.open(fileobj=io.BytesIO(b"".join(chunks))) as archive:
            file = archive.extractfile("image.json")
            return dict(json.loads(file.read())) if file else {}
    except DockerException:
        return {}
    finally:
        container.remove(force=True)


def main(argv: list[str]) -> int:
    """``python -m verify.size IMAGE``: 0, or 2 with one sentence."""
    if len(argv) != 1:
        print("usage: python -m verify.size IMAGE", file=sys.stderr)
        return 2
    try:
        import docker
        from docker.errors import DockerException

        client = docker.from_env(timeout=600)
    except (ImportError, AttributeError):
        print("error: the Docker SDK is missing: pip install docker.", file=sys.stderr)
        return 2
    except DockerException as problem:
        print(f"error: no Docker engine answers ({problem}): run 'make image', or start Docker.", file=sys.stderr)
        return 2
    try:
        image = client.images.get(argv[0])
        sizes_and_documents = exported_blobs(_Stream(image.save(chunk_size=8 << 20, named=True)))  # type: ignore[arg-type]
    except DockerException as problem:
        print(f"error: {argv[0]} cannot be read ({problem}): run 'make image' first.", file=sys.stderr)
        return 2
    print(table(layers(manifest_of(sizes_and_documents[1]), image.history())))
    if slimmed := description(client, argv[0]).get("slim"):
        print(f"\nLibraries, MB (10^6 bytes):\n{libraries(decode(Manifest, slimmed))}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
