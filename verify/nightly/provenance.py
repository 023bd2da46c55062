"""What an image was built from, as an in-toto statement with SLSA's provenance 1.0.

It is stored beside the image, not in it: the manifest's digest is that of the contents alone. It is a record of this
pipeline, not a signed attestation.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def git(root: Path, *words: str) -> str:
    """What git says, "" when this is no checkout."""
    try:
        done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, timeout=30, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def commit(root: Path) -> str:
    """The commit, "-modified" behind it when files differ from it."""
    head = git(root, "rev-parse", "HEAD")
    return f"{head}-modified" if head and git(root, "status", "--porcelain") else head or "unknown"


def locks(root: Path) -> dict[str, str]:
    """Lock file → SHA-256."""
    return {
        f"docker/{path.name}": hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted((root / "docker").glob("requirements*.txt"))
    }


def statement(
    *, image: str, digest: str, base: str, labels: Mapping[str, str], root: Path, build: str, started: str
) -> str:
    """The statement as text. `base` is the base image's digest, "" when the image does not say."""
    materials: list[dict[str, Any]] = [{"uri": "git:HEAD", "digest": {"gitCommit": commit(root)}}]
    if base:
        name = labels.get("org.opencontainers.image.base.name", "base")
        materials.append({"uri": f"oci:{name}", "digest": {"sha256": base.removeprefix("sha256:")}})
    materials += [{"uri": f"file:{name}", "digest": {"sha256": value}} for name, value in locks(root).items()]
    made = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": image, "digest": {"sha256": digest.removeprefix("sha256:")}}],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "https://mobyproject.org/buildkit@v1",
                "externalParameters": {"command": build},
                "internalParameters": {},
                "resolvedDependencies": materials,
            },
            "runDetails": {"builder": {"id": "verify nightly"}, "metadata": {"startedOn": started}},
        },
    }
    return json.dumps(made, indent=1) + "\n"
