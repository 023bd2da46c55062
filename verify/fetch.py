"""Bring an image to this host by its digest, over a line that breaks, and say in one sentence why it cannot be had.

An engine with the containerd image store drops all it has downloaded when a pull fails, and keeps it for eight hours
when the caller goes away (moby's `withLease`; measured with 26.1: after 100 of 160 MB a failed pull began at 0, a
cancelled one went on at 100). So the pull is cancelled and asked for again at checkpoints: a cut costs what came since.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from verify.core import UsageError
from verify.engine import describe, explain, sdk
from verify.reference import Reference, kind_of, reason, sentence

ATTEMPTS = 5  # failures in a row without a checkpoint in between
CHECKPOINT = 60.0  # seconds of downloading between two checkpoints
CHECKPOINT_LAYER = 20.0  # the same when a layer has just become whole
STALL = 120.0  # seconds without one more byte, after which the pull is asked for again
SILENCE = 1800.0  # seconds without a word of the engine: it says nothing while it unpacks
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}  # Docker's words for the engine's host and for an image


def host_of(info: Mapping[str, Any]) -> str:
    """The engine's architecture in the words of images: amd64, arm64."""
    found = str(info.get("Architecture") or "")
    return MACHINES.get(found, found)


def resolve(client: Any, reference: Reference) -> str:
    """The digest behind a reference, asked of the registry by the engine; UsageError in one sentence without one."""
    docker = sdk()
    machine = host_of(client.info())
    try:
        found = client.images.get_registry_data(reference.text)
    except (docker.errors.DockerException, OSError) as error:
        raise UsageError(sentence(describe(error), reference)) from error
    offered = {str(p.get("architecture")) for p in found.attrs.get("Platforms") or ()} - {"unknown", ""}
    if offered and machine not in offered:
        raise UsageError(
            sentence("no match for platform", reference, machine=f"{machine}; it is for {', '.join(sorted(offered))}")
        )
    return reference.digest or str(found.id)


@dataclass
class Progress:
    """What of an image is here: layer → bytes, and the bytes it will have (unknown until its download begins)."""

    have: dict[str, int] = field(default_factory=dict)
    size: dict[str, int] = field(default_factory=dict)
    whole: set[str] = field(default_factory=set)
    layers: set[str] = field(default_factory=set)

    def take(self, event: Mapping[str, Any]) -> None:
        """One event of the engine."""
        layer, status, detail = (
            str(event.get("id", "")),
            str(event.get("status", "")),
            event.get("progressDetail") or {},
        )
        if status == "Pulling fs layer" or status in ("Already exists", "Download complete", "Pull complete"):
            self.layers.add(layer)
        if status == "Downloading" and detail.get("total"):
            self.have[layer], self.size[layer] = int(detail["current"]), int(detail["total"])
        elif status in ("Already exists", "Download complete", "Pull complete"):
            self.whole.add(layer)
            self.have[layer] = self.size.get(layer, self.have.get(layer, 0))

    @property
    def bytes(self) -> int:
        """Bytes that are here, of the layers whose size was told."""
        return sum(self.have.values())

    @property
    def downloading(self) -> bool:
        """Whether a layer is still to come."""
        return bool(self.layers - self.whole) or not self.layers

    def text(self, rate: float) -> str:
        """ "3 of 9 layers, 1.20 of 4.10 GB, 45.0 MB/s"; the sum is told once every layer's size is."""
        told = self.layers <= set(self.size) | self.whole
        total = f" of {sum(self.size.values()) / 1e9:.2f}" if told and self.size else ""
        speed = f", {rate / 1e6:.1f} MB/s" if rate > 0 else ""
        rest = speed if self.downloading else ", unpacking"
        return f"{len(self.whole)} of {len(self.layers)} layers, {self.bytes / 1e9:.2f}{total} GB{rest}"


class Interrupted(Exception):
    """An attempt ended early; the text is the engine's, "" for a checkpoint."""


def attempt(events: Iterator[Mapping[str, Any]], seen: Progress, show: Callable[[str], None], *, save: bool) -> None:
    """Follow one pull to its end. Interrupted: it failed, stands still, or (with `save`) has reached a checkpoint."""
    started = moved = time.monotonic()
    before, whole, first = seen.bytes, len(seen.whole), None
    for event in events:
        if event.get("error"):
            raise Interrupted(str((event.get("errorDetail") or {}).get("message") or event["error"]))
        seen.take(event)
        now, here = time.monotonic(), seen.bytes
        first = here if first is None and here else first
        if here != before:
            moved, before = now, here
        if seen.downloading and seen.layers:
            if now - moved > STALL:
                raise Interrupted(f"timeout: no byte came for {STALL:g} s")
            limit = CHECKPOINT_LAYER if len(seen.whole) > whole else CHECKPOINT
            if save and now - started > limit and here > (first or 0):
                raise Interrupted("")
        show(seen.text((here - (first or 0)) / max(now - started, 0.1)))


@contextmanager
def pulling(client: Any, name: str, digest: str) -> Iterator[Iterator[Mapping[str, Any]]]:
    """The events of one pull. Leaving ends the request for certain, which the SDK's own generator does not do."""
    docker = sdk()
    auth = docker.auth.get_config_header(client.api, docker.auth.resolve_repository_name(name)[0])
    answer = client.api.post(
        f"{client.api.base_url}/v{client.api.api_version}/images/create",
        params={"fromImage": name, "tag": digest},
        headers={"X-Registry-Auth": auth} if auth else {},
        stream=True,
        timeout=SILENCE,
    )
    try:
        if answer.status_code >= 400:
            raise docker.errors.APIError(str(answer.status_code), answer, answer.json().get("message"))
        yield (json.loads(line) for line in answer.iter_lines(chunk_size=None) if line.strip())
    finally:
        answer.close()


def fetch(client: Any, reference: Reference, digest: str, *, attempts: int = ATTEMPTS, wait: float = 2.0) -> None:
    """Pull name@digest; UsageError in one sentence when that fails for good, or `attempts` times in a row."""
    docker = sdk()
    info, failures, seen = client.info(), 0, Progress()
    save = any("containerd.snapshotter" in str(part) for part in info.get("DriverStatus") or ())
    machine = host_of(info)
    show, end = shower()
    while True:
        ours = False
        try:
            with pulling(client, reference.name, digest) as events:
                attempt(events, seen, show, save=save)
            end("")
            return
        except Interrupted as stop:
            said = str(stop)
        except docker.errors.APIError as error:
            said = describe(error)
        except (docker.errors.DockerException, OSError) as error:  # the engine itself went away
            said, ours = describe(error), True
        if not said:  # a checkpoint
            failures = 0
            continue
        failures += 1
        if failures >= attempts or not (ours or kind_of(said) in ("away", "damaged")):
            end("")
            raise UsageError(explain(said) if ours else sentence(said, reference, machine=machine, room=room(info)))
        pause = min(30.0, wait * 2 ** (failures - 1))
        end(f"The pull broke off ({reason(said)}); attempt {failures + 1} of {attempts} in {pause:g} s.")
        seen = Progress()
        time.sleep(pause)


def room(info: Mapping[str, Any]) -> str:
    """How much is free below Docker's folder, where it is on this machine."""
    try:
        place = str(info["DockerRootDir"])
        return f" ({place} has {shutil.disk_usage(place).free / 1e9:.1f} GB left)"
    except (OSError, KeyError):
        return ""


def shower() -> tuple[Callable[[str], None], Callable[[str], None]]:
    """(show, end): progress on stderr, a line that rewrites itself on a terminal, a line every 10 s elsewhere."""
    terminal = sys.stderr.isatty()
    last = [time.monotonic()]

    def show(text: str) -> None:
        now = time.monotonic()
        if now - last[0] < (0.5 if terminal else 10.0):
            return
        last[0] = now
        sys.stderr.write(f"\r\x1b[2K  {text}" if terminal else f"  {text}\n")
        sys.stderr.flush()

    def end(text: str) -> None:
        sys.stderr.write(("\r\x1b[2K" if terminal else "") + (f"{text}\n" if text else ""))
        sys.stderr.flush()

    return show, end
