"""Which digest was promoted when and why, apart from the measurements: JSONL, ordered as written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from verify import history
from verify.core import UsageError
from verify.nightly import registry, state
from verify.nightly.registry import Registry
from verify.nightly.settings import Settings

Record = dict[str, Any]


def records(path: str) -> list[Record]:
    """All whole lines, oldest first; a line that a killed writer left is no record."""
    try:
        lines = Path(path).read_bytes().splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from error
    found = []
    for line in lines:
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict) and "digest" in record:
            found.append(record)
    return found


def stack(all_records: Sequence[Record]) -> list[Record]:
    """The promotions that still count, the present one last: a rollback takes away what it went back behind."""
    held: list[Record] = []
    for record in all_records:
        if record.get("kind") == "rollback":
            while held and held[-1]["digest"] != record["digest"]:
                held.pop()
        elif not held or held[-1]["digest"] != record["digest"]:
            held.append(record)
    return held


def rejected(all_records: Sequence[Record]) -> dict[str, str]:
    """Digest → when it was taken back."""
    held = {r["digest"] for r in stack(all_records)}
    gone: dict[str, str] = {}
    for record in all_records:
        if record.get("kind") == "rollback" and record.get("from") not in held:
            gone[str(record["from"])] = str(record.get("when"))
    return gone


def rollback(settings: Settings, why: str = "") -> str:
    """Point `latest` and the version tags at the last verified digest before; one sentence. UsageError without one."""
    past = records(settings.promotions)
    held = stack(past)
    if len(held) < 2:
        raise UsageError(f"There is nothing to go back to: {settings.promotions} knows {len(held)} promoted digest(s).")
    place = registry.of(settings.repository)
    present = held.pop()["digest"]
    while held:
        record = held.pop()
        target = registry.manifest(place, record["digest"])
        if target is None:
            continue
        # The intent is on the disk before the first tag moves: a rollback that is cut is repeated by the same command.
        for tag in (*settings.tags, "latest"):
            registry.point(place, tag, target)
        when = state.now().isoformat(timespec="seconds")
        reason = why or "rollback was asked for"
        history.append(
            settings.promotions,
            {"kind": "rollback", "digest": target.digest, "from": present, "when": when, "why": reason,
             "tags": [*settings.tags, "latest"], "verified_by": record.get("verified_by")},
        )  # fmt: skip
        return f"latest is {target.digest} again, promoted {record['when']}; {present} was taken back."
    raise UsageError(f"No verified digest before {present} is in the registry any more: raise --keep for later nights.")


def expired(settings: Settings, present: str) -> list[str]:
    """Digests that may go: candidates that were not promoted, and promoted ones beyond the newest `keep`."""
    held = [r["digest"] for r in stack(records(settings.promotions))]
    keep = {present, *held[-settings.keep :]}
    there: dict[str, bool] = {str(r["digest"]): True for r in records(settings.promotions)}
    for record in records(settings.candidates):
        there[str(record["digest"])] = record.get("kind") != "deleted"
    return [digest for digest, here in there.items() if here and digest not in keep]


def prune(settings: Settings, place: Registry, present: str) -> str:
    """Delete what `expired` names; one sentence that also says what could not be deleted."""
    gone, problems = 0, list[str]()
    for digest in expired(settings, present):
        if problem := registry.delete(place, digest):
            problems.append(problem)
            break
        history.append(settings.candidates, {"kind": "deleted", "digest": digest, "when": str(state.now())})
        gone += 1
    text = f"{gone} image(s) removed from the registry, the newest {settings.keep} verified ones kept"
    return text + (f"; nothing more was removed: {problems[0]}." if problems else ".")
