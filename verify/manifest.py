"""Writes /opt/verify/image.json while the image is built: what the image knows about itself.

Everything that can be read off the finished tree is read off it; only what the tree cannot know (the base's name and
digest, the revision, the declared targets) is handed in as ``--facts``.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

SCHEMA = 1
NVCC = Path("/usr/local/cuda-12.4/bin/nvcc")

# What a lean FlashAttention build leaves out; docker/flash-attn.sh passes the same names to the sources' own switches.
LEAN_DISABLED = ["alibi", "dropout", "local", "softcap"]
WHEEL_NAME = re.compile(r"flash_attn-(?P<version>[^-]+)-1(?P<variant>full|lean)(?P<archs>(?:sm\d+[af]?)+)-")


def normalise(name: str) -> str:
    """A distribution's name as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def locked_packages(lock: str) -> dict[str, str]:
    """Name → version of the lines of a requirements lock whose environment markers hold here."""
    from packaging.requirements import Requirement

    found = {}
    for line in lock.splitlines():
        if not re.match(r"[A-Za-z0-9]", line):
            continue
        requirement = Requirement(line.rstrip("\\ "))
        if requirement.marker is None or requirement.marker.evaluate():
            found[normalise(requirement.name)] = next(iter(requirement.specifier)).version
    return found


def flash_attention(wheelhouse: Path) -> dict[str, Any]:
    """What the wheel in ``wheelhouse`` (one, or none) is, told by its name and its bytes."""
    wheels = sorted(wheelhouse.glob("*.whl"))
    if not wheels:
        return {"version": None, "variant": "none", "archs": [], "disabled": [], "wheel": None, "sha256": None}
    match = WHEEL_NAME.match(wheels[0].name)
    if len(wheels) > 1 or match is None:
        held = ", ".join(wheel.name for wheel in wheels)
        sys.exit(f"error: the wheelhouse of a build holds one FlashAttention wheel named by variant, not: {held}.")
    return {
        "version": match["version"],
        "variant": match["variant"],
        "archs": [f"sm_{number}" for number in re.findall(r"sm(\d+[af]?)", match["archs"])],
        "disabled": LEAN_DISABLED if match["variant"] == "lean" else [],
        "wheel": wheels[0].name,
        "sha256": hashlib.sha256(wheels[0].read_bytes()).hexdigest(),
    }


def toolkit_version(nvcc: Path = NVCC) -> str | None:
    """The version nvcc reports, or None where there is no nvcc."""
    if not nvcc.exists():
        return None
    text = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout
    match = re.search(r", V([\d.]+)", text)
    return match[1] if match else None


def slimming(place: Path | None, targets: list[str]) -> dict[str, Any] | None:
    """What `verify slim` wrote at ``place``; None when it did not run. Other targets stop the build."""
    if place is None or not place.exists():
        return None
    made: dict[str, Any] = json.loads(place.read_text())
    if made["targets"] != targets:
        found = ", ".join(made["targets"])
        sys.exit(f"error: the stack was slimmed for {found} and the image is declared for {', '.join(targets)}.")
    return made


def describe(
    target: str, lock: str, wheelhouse: Path, facts: dict[str, Any], slim: Path | None = None
) -> dict[str, Any]:
    """The contents of image.json for ``target`` (devel or runtime)."""
    targets = facts.get("targets", ["sm_89"])
    packages = locked_packages(lock)
    attention = flash_attention(wheelhouse)
    if attention["version"]:
        packages["flash-attn"] = attention["version"]
    for name, wanted in packages.items():
        installed = metadata.version(name).split("+")[0]
        if installed != wanted.split("+")[0]:
            sys.exit(f"error: {name} {installed} is installed where the lock says {wanted}: something replaced it.")
    return {
        "schema": SCHEMA,
        "name": "pytorch-workspace",
        "version": packages["torch"],
        "created": facts.get("created", ""),
        "revision": facts.get("revision", "unknown"),
        "base": facts.get("base", {"name": "", "digest": "", "origin": ""}),
        "target": target,
        "targets": targets,
        "driver": facts.get("driver", "550.90.07"),
        "python": platform.python_version(),
        "toolkit": toolkit_version() if target == "devel" else None,
        "lock": {"sha256": hashlib.sha256(lock.encode()).hexdigest(), "packages": dict(sorted(packages.items()))},
        "flash_attn": attention,
        "slim": slimming(slim, targets),
    }


def main(argv: list[str] | None = None) -> None:
    """Command line of the build step."""
    parser = argparse.ArgumentParser(prog="verify.manifest", description=__doc__)
    parser.add_argument("--target", choices=["devel", "runtime"], required=True)
    parser.add_argument("--lock", type=Path, required=True)
    parser.add_argument("--wheelhouse", type=Path, required=True)
    parser.add_argument("--facts", type=json.loads, default={}, help="JSON: created, revision, base, targets, driver")
    parser.add_argument("--slim", type=Path, help="the manifest of `verify slim`; no such file: it did not run")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(argv)
    made = describe(options.target, options.lock.read_text(), options.wheelhouse, options.facts, options.slim)
    text = json.dumps(made, indent=1)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
