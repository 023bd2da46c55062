"""The distribution API, as far as tags need it: read a manifest, point a tag at it, delete it.

Plain HTTP on loopback only.
Credentials are those of `docker login`: Docker's config.json and its credential helpers.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import re
import subprocess
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verify import reference
from verify.core import UsageError
from verify.registry_push import MANIFESTS

TIMEOUT = 60.0  # seconds for one request


@dataclass(frozen=True)
class Answer:
    """Status, headers in lower case, body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class Manifest:
    """A manifest as it lies in the registry: its digest is that of `raw`."""

    digest: str
    media: str
    raw: bytes

    @property
    def document(self) -> dict[str, Any]:
        """The parsed JSON."""
        found: dict[str, Any] = json.loads(self.raw)
        return found


@dataclass(frozen=True)
class Registry:
    """A repository of a registry."""

    host: str
    repository: str


def of(name: str) -> Registry:
    """The Registry of registry/name."""
    host = reference.parse(name).registry
    if not host:
        return Registry("registry-1.docker.io", name if "/" in name else f"library/{name}")
    return Registry(host, name.removeprefix(f"{host}/"))


def loopback(host: str) -> bool:
    """Whether Docker too takes this host without TLS."""
    return bool(re.fullmatch(r"(localhost|127\.\d+\.\d+\.\d+|\[::1\])(:\d+)?", host))


def credentials(host: str) -> tuple[str, str] | None:
    """User and password that `docker login` left for `host`."""
    folder = Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker")
    try:
        config = json.loads((folder / "config.json").read_text())
        names = [host, f"https://{host}"] + ["https://index.docker.io/v1/"] * (host == "registry-1.docker.io")
        helpers = config.get("credHelpers") or {}
        for name in names:
            if helper := helpers.get(name) or config.get("credsStore"):
                words = [f"docker-credential-{helper}", "get"]
                done = subprocess.run(words, input=name, capture_output=True, text=True, timeout=30, check=False)
                if done.returncode == 0:
                    said = json.loads(done.stdout)
                    return said["Username"], said["Secret"]
            if auth := ((config.get("auths") or {}).get(name) or {}).get("auth"):
                user, _, password = base64.b64decode(auth).decode().partition(":")
                return user, password
    except (OSError, ValueError, KeyError, subprocess.TimeoutExpired):
        return None
    return None


def once(host: str, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> Answer:
    """One request. OSError when the line fails."""
    kind = http.client.HTTPConnection if loopback(host) else http.client.HTTPSConnection
    connection = kind(host, timeout=TIMEOUT)
    try:
        connection.request(method, path, body=body, headers=dict(headers))
        answer = connection.getresponse()
        return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
    except http.client.HTTPException as error:
        raise OSError(f"unexpected EOF ({type(error).__name__})") from error
    finally:
        connection.close()


def authorization(host: str, challenge: str) -> str:
    """The header that answers a 401, "" when none can be had."""
    known, scheme = credentials(host), challenge.partition(" ")[0].lower()
    basic = "Basic " + base64.b64encode(":".join(known).encode()).decode() if known else ""
    if scheme != "bearer":
        return basic
    asked = dict(re.findall(r'(\w+)="([^"]*)"', challenge))
    realm = urllib.parse.urlsplit(asked.pop("realm", ""))
    query = urllib.parse.urlencode(asked)
    if not realm.netloc or (realm.scheme != "https" and not loopback(realm.netloc)):
        return ""
    answer = once(realm.netloc, "GET", f"{realm.path}?{query}", None, {"Authorization": basic} if basic else {})
    if answer.status != 200:
        return ""
    said = json.loads(answer.body)
    return f"Bearer {said.get('token') or said.get('access_token')}"


def ask(place: Registry, method: str, path: str, body: bytes | None = None, media: str = "") -> Answer:
    """One request to /v2/<repository>/`path`; UsageError when the registry is away, or does not let this user."""
    headers = {"Accept": ", ".join(MANIFESTS)} | ({"Content-Type": media} if media else {})
    whole = f"/v2/{place.repository}/{path}"
    try:
        answer = once(place.host, method, whole, body, headers)
        if answer.status == 401 and (value := authorization(place.host, answer.headers.get("www-authenticate", ""))):
            answer = once(place.host, method, whole, body, {**headers, "Authorization": value})
    except (OSError, ValueError) as error:
        raise UsageError(
            f"The registry {place.host} cannot be reached, or hangs up ({error}): check that it runs, and the network."
        ) from error
    if answer.status in (401, 403):
        raise UsageError(
            f"The registry {place.host} does not let this user {method} {place.repository}: the login is missing, "
            f"wrong or expired; `docker login {place.host}`."
        )
    if answer.status >= 500:
        raise UsageError(
            f"The registry {place.host} answers {method} with {answer.status}: is its disk full? See its log."
        )
    return answer


def manifest(place: Registry, name: str) -> Manifest | None:
    """What a tag or a digest names, None when the registry has no such thing."""
    answer = ask(place, "GET", f"manifests/{name}")
    if answer.status == 404:
        return None
    if answer.status != 200:
        raise UsageError(f"The registry {place.host} answers {answer.status} for {place.repository}:{name}.")
    digest = answer.headers.get("docker-content-digest", "")
    return Manifest(digest, answer.headers.get("content-type", ""), answer.body)


def point(place: Registry, tag: str, target: Manifest) -> None:
    """Move a tag to a manifest that is there, and see that it is so. Nothing is uploaded but the manifest itself."""
    answer = ask(place, "PUT", f"manifests/{tag}", target.raw, target.media)
    if answer.status not in (200, 201):
        raise UsageError(f"The registry {place.host} refuses the tag {tag} ({answer.status}: {answer.body[:200]!r}).")
    found = manifest(place, tag)
    if found is None or found.digest != target.digest:
        raise UsageError(f"The tag {tag} does not name {target.digest} after it was moved: another writer is at work.")


def delete(place: Registry, digest: str) -> str:
    """Delete a manifest with all its tags: "" when it is gone, else the reason why not."""
    answer = ask(place, "DELETE", f"manifests/{digest}")
    if answer.status in (200, 202, 404):
        return ""
    if answer.status == 405:
        return f"the registry {place.host} has deleting switched off (REGISTRY_STORAGE_DELETE_ENABLED=true allows it)"
    return f"the registry {place.host} answers {answer.status}"


def sizes(place: Registry, found: Manifest) -> list[tuple[str, int]]:
    """The layers of an image as (digest, bytes compressed), lowest first."""
    document = found.document
    for inner in document.get("manifests") or ():
        if "vnd.docker.reference.type" not in (inner.get("annotations") or {}):
            below = manifest(place, inner["digest"])
            return sizes(place, below) if below else []
    return [(layer["digest"], int(layer["size"])) for layer in document.get("layers") or ()]
