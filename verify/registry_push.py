"""Put a hand-made image into a registry on loopback (plain HTTP): blobs and a manifest, by the registry's own API."""

from __future__ import annotations

import hashlib
import http.client
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
MANIFESTS = (
    MANIFEST,
    "application/vnd.docker.distribution.manifest.v2+json",
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"


@dataclass(frozen=True)
class Blob:
    """A file of a registry: its media type, digest and bytes."""

    media: str
    digest: str
    size: int

    def descriptor(self) -> dict[str, Any]:
        """As a manifest lists it."""
        return {"mediaType": self.media, "digest": self.digest, "size": self.size}


def call(
    address: str,
    method: str,
    path: str,
    body: bytes | Iterable[bytes] | None = None,
    headers: Mapping[str, str] | None = None,
) -> tuple[http.client.HTTPMessage, bytes]:
    """One request to `address` (host:port), an iterable sent in chunks: headers and body; OSError unless it is 2xx."""
    connection = http.client.HTTPConnection(address, timeout=600)
    try:
        chunked = body is not None and not isinstance(body, bytes)
        more = {"Transfer-Encoding": "chunked"} if chunked else {}
        connection.request(method, path, body=body, headers={**(headers or {}), **more}, encode_chunked=chunked)
        answer = connection.getresponse()
        said = answer.read()
        if answer.status // 100 != 2:
            raise OSError(f"the registry answers {method} {path} with {answer.status}: {said[:200]!r}")
        return answer.headers, said
    finally:
        connection.close()


def put_blob(address: str, repository: str, media: str, parts: Iterable[bytes]) -> Blob:
    """Upload what `parts` give, which is hashed on its way: nothing needs to be kept."""
    made, size = hashlib.sha256(), 0

    def counted() -> Iterable[bytes]:
        nonlocal size
        for part in parts:
            made.update(part)
            size += len(part)
            yield part

    def place(headers: http.client.HTTPMessage) -> str:
        found = urlsplit(headers["Location"])
        return f"{found.path}?{found.query}" if found.query else found.path

    where = place(call(address, "POST", f"/v2/{repository}/blobs/uploads/")[0])
    where = place(call(address, "PATCH", where, counted(), {"Content-Type": "application/octet-stream"})[0])
    digest = f"sha256:{made.hexdigest()}"
    call(address, "PUT", f"{where}{'&' if '?' in where else '?'}digest={digest}", b"")
    return Blob(media, digest, size)


def put_image(
    address: str, repository: str, tag: str, layers: Sequence[Blob], diff_ids: Sequence[str], config: Mapping[str, Any]
) -> str:
    """Upload config and manifest of `layers` that are there, `diff_ids` their digests unpacked; the image's digest."""
    whole = {**config, "rootfs": {"type": "layers", "diff_ids": list(diff_ids)}}
    head = put_blob(address, repository, CONFIG, [json.dumps(whole).encode()])
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": head.descriptor(),
        "layers": [layer.descriptor() for layer in layers],
    }
    body = json.dumps(manifest).encode()
    call(address, "PUT", f"/v2/{repository}/manifests/{tag}", body, {"Content-Type": MANIFEST})
    return f"sha256:{hashlib.sha256(body).hexdigest()}"


def read_manifest(address: str, repository: str, tag: str) -> dict[str, Any]:
    """The image manifest behind a tag; of an index, its first real image."""
    answer = call(address, "GET", f"/v2/{repository}/manifests/{tag}", None, {"Accept": ", ".join(MANIFESTS)})
    found: dict[str, Any] = json.loads(answer[1])
    for inner in found.get("manifests") or ():
        if "vnd.docker.reference.type" not in (inner.get("annotations") or {}):
            return read_manifest(address, repository, inner["digest"])
    return found


def read_blob(address: str, repository: str, digest: str) -> bytes:
    """A small blob, whole."""
    return call(address, "GET", f"/v2/{repository}/blobs/{digest}")[1]
