"""Bytes that a host with one image pulls for another: layers whose digest it lacks, and the configuration."""

from __future__ import annotations

from collections.abc import Sequence

from verify.core import UsageError
from verify.nightly import registry
from verify.nightly.changes import layer_table, megabytes, pulled
from verify.nightly.registry import Manifest, Registry
from verify.nightly.settings import Settings


def small(before: Manifest, after: Manifest) -> int:
    """Bytes of manifest and configuration, 0 when it is the same image."""
    if before.digest == after.digest:
        return 0
    return len(after.raw) + int((after.document.get("config") or {}).get("size", 0))


def counted(place: Registry, before: str, after: str) -> int:
    """The bytes from tag or digest `before` to `after`. UsageError when one is not in the registry."""
    old, new = find(place, before), find(place, after)
    return pulled(registry.sizes(place, old), registry.sizes(place, new)) + small(old, new)


def find(place: Registry, name: str) -> Manifest:
    """A manifest that has to be there."""
    found = registry.manifest(place, name)
    if found is None:
        raise UsageError(f"The registry {place.host} has no {place.repository}:{name}.")
    return found


def main(settings: Settings, names: Sequence[str]) -> int:
    """Print the layers and the bytes from the first name to the second."""
    if len(names) != 2:
        raise UsageError("delta takes two tags or digests of --repository: the image before and the one after.")
    place = registry.of(settings.repository)
    old, new = find(place, names[0]), find(place, names[1])
    for row in layer_table(registry.sizes(place, old), registry.sizes(place, new)).rows:
        print("  ".join(f"{cell:>12}" for cell in row))
    bytes_ = counted(place, names[0], names[1])
    print(f"A host with {names[0]} pulls {megabytes(bytes_)} ({bytes_} bytes) for {names[1]}.")
    return 0
