"""The Python stack by its metadata and text files alone; nothing of it is imported."""

from __future__ import annotations

import importlib.util
import json
import platform
import re
import sys
import sysconfig
from collections.abc import Iterable
from functools import partial
from importlib import metadata
from pathlib import Path

from verify.facts import Python
from verify.probe import Problems, attempt

# The packages whose versions must fit each other; their requirement lines are kept for the pairing rules.
MATCHED = ("torch", "torchvision", "torchaudio", "triton", "xformers", "flash-attn", "bitsandbytes")


def normalise(name: str) -> str:
    """A distribution's name as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def installed() -> dict[str, metadata.Distribution]:
    """Normalised name → distribution, the first on sys.path as an import would take it."""
    found: dict[str, metadata.Distribution] = {}
    for dist in metadata.distributions():
        name = dist.metadata["Name"]
        if name:
            found.setdefault(normalise(name), dist)
    return found


def conflicts(dists: Iterable[tuple[str, Iterable[str]]], versions: dict[str, str]) -> tuple[str, ...]:
    """What `pip check` would say: each unmet requirement of the installed distributions, one sentence each.

    `dists` is (name, requirement lines). ImportError without the package `packaging`.
    """
    from packaging.requirements import Requirement
    from packaging.version import InvalidVersion

    found = []
    for name, lines in dists:
        for line in lines:
            requirement = Requirement(line)
            if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
                continue
            other = normalise(requirement.name)
            if other not in versions:
                found.append(f"{name} {versions.get(name, '')} requires {other}, which is not installed")
                continue
            try:
                fits = requirement.specifier.contains(versions[other], prereleases=True)
            except InvalidVersion:
                fits = False
            if not fits:
                needs = f"{name} {versions.get(name, '')} requires {other}{requirement.specifier}"
                found.append(f"{needs}, but {versions[other]} is installed")
    return tuple(sorted(found))


def package_folder(name: str) -> Path | None:
    """Where an import package lies, found without importing it."""
    spec = importlib.util.find_spec(name)
    return Path(spec.origin).parent if spec and spec.origin else None


def search(path: Path | None, pattern: str) -> str:
    """The first group of `pattern` in a text file, "" when file or pattern is absent."""
    if path is None or not path.is_file():
        return ""
    found = re.search(pattern, path.read_text())
    return found[1] if found else ""


def bound(flash: Path | None, name: str) -> str:
    """A bound of the FlashAttention versions xFormers accepts: parse_version("2.8.2"), or (2, 8, 0) up to 0.0.31."""
    return ".".join(re.findall(r"\d+", search(flash, rf"{name} = (?:parse_version)?\((.*?)\)")))


def read(problems: Problems) -> Python:
    """The running interpreter and what is installed for it."""
    dists = attempt(problems, "python.packages", installed, {})
    versions = {name: dist.version for name, dist in sorted(dists.items())}
    lines = {name: tuple(dist.requires or ()) for name, dist in dists.items()}
    folders = {}
    for name in ("torch", "xformers", "bitsandbytes"):
        folders[name] = attempt(problems, f"python.{name}", partial(package_folder, name), None)
    torch, xformers, bnb = folders["torch"], folders["xformers"], folders["bitsandbytes"]
    built = {}
    if xformers and (xformers / "cpp_lib.json").is_file():
        built = attempt(problems, "python.xformers", lambda: json.loads((xformers / "cpp_lib.json").read_text()), {})
    flash = xformers / "ops/fmha/flash.py" if xformers else None
    include = sysconfig.get_paths()["include"]
    return Python(
        version=platform.python_version(),
        executable=sys.executable,
        prefix=sys.prefix,
        include=include,
        header=(Path(include) / "Python.h").is_file(),
        packages=versions,
        requires={name: lines[name] for name in MATCHED if name in lines},
        conflicts=attempt(problems, "python.conflicts", lambda: conflicts(lines.items(), versions), ()),
        site=sysconfig.get_paths()["purelib"],
        torch_cuda=search(torch / "version.py" if torch else None, r"\ncuda\b[^=]*= '([\d.]+)'"),
        xformers_torch=built.get("version", {}).get("torch", ""),
        xformers_archs=built.get("env", {}).get("TORCH_CUDA_ARCH_LIST") or "",
        xformers_flash_min=bound(flash, "FLASH_VER_MIN"),
        xformers_flash_max=bound(flash, "FLASH_VER_LAST"),
        bitsandbytes_cuda=tuple(
            sorted(p.stem.removeprefix("libbitsandbytes_cuda") for p in bnb.glob("libbitsandbytes_cuda*.so"))
            if bnb
            else ()
        ),
    )
