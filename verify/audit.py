"""Takes stock of the GPU code in every ELF file of the Python stack and the CUDA toolkit.

The result is plain data (`Inventory`, JSON round trip); `coverage.py` judges it. Equal containers of one file are
counted, not listed: libcufft alone holds 23,532. Static archives (.a) are link-time input and are not read.

Cache: one JSON file under the XDG cache folder. A file's entry is good while the SHA-256 of its wheel's RECORD, its
size and its modification time are what they were (files outside wheels: size and time only; RECORD alone would miss
a library that was overwritten in place). A cache that cannot be read or written costs time, never the result.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sysconfig
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from verify import elf, fatbin, payload
from verify.plain import decode

SCHEMA = 1
CACHE_NAME = "binaries.json"
_NOT_BINARIES = (".py", ".sh", ".pyc", ".txt", ".json", ".md", ".h", ".js")

Progress = Callable[[int, int, str], None]  # files done, files in all, the file at hand


@dataclass(frozen=True, order=True)
class Code:
    """Code for one GPU in a container: "sass" 90 "a" is sm_90a; `isa` of PTX is (major, minor), or None: unknown."""

    kind: str
    arch: int
    variant: str = ""
    isa: tuple[int, int] | None = None
    present: bool = True  # False: the header is there, the code is zeros or damaged

    @property
    def short(self) -> str:
        """sm_90a, or "PTX compute_80"."""
        return (
            f"sm_{self.arch}{self.variant}"
            if self.kind == "sass"
            else f"{self.kind.upper()} compute_{self.arch}{self.variant}"
        )

    @property
    def label(self) -> str:
        """sm_90a, or "PTX compute_80 (ISA 8.7)"."""
        if self.kind == "sass":
            return self.short
        version = f" (ISA {self.isa[0]}.{self.isa[1]})" if self.isa else " (ISA unknown)" if self.kind == "ptx" else ""
        return f"{self.short}{version}"


@dataclass(frozen=True)
class Group:
    """`count` containers of one file that hold code for the same GPUs. `offset`: the first one's place in the file."""

    codes: tuple[Code, ...]
    count: int
    section: str
    offset: int
    loose: bool = False  # the library loads it itself and chooses it by the card
    empty: bool = False  # holds no kernel for any card


@dataclass(frozen=True)
class Library:
    """One ELF file with device code. `name` is its path below the root it was found in."""

    path: str
    name: str
    owner: str  # the wheel, "torch 2.8.0"; empty for a file no wheel claims
    size: int
    groups: tuple[Group, ...]
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class Inventory:
    """Every ELF file with device code below `roots`, and every one that could not be read (path, reason)."""

    roots: tuple[str, ...]
    libraries: tuple[Library, ...]
    unreadable: tuple[tuple[str, str], ...] = ()
    files: int = 0  # ELF files looked at
    cached: int = 0  # of these, answered by the cache
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return {"schema": SCHEMA, **asdict(self)}

    @staticmethod
    def from_json(data: dict[str, Any]) -> Inventory:
        """The inverse of `to_json`. Raises ValueError or TypeError on data of another shape."""
        if data.get("schema") != SCHEMA:
            raise ValueError(f"an inventory of schema {data.get('schema')}, this program reads schema {SCHEMA}")
        made: Inventory = decode(Inventory, data)
        return made


def default_roots() -> tuple[Path, ...]:
    """This Python's site-packages and the CUDA toolkit, those of them that exist, without doubles."""
    paths = [sysconfig.get_paths()[key] for key in ("purelib", "platlib")]
    paths.append(os.environ.get("CUDA_HOME") or "/usr/local/cuda")
    return tuple(dict.fromkeys(Path(p).resolve() for p in paths if Path(p).is_dir()))


def scan(roots: Iterable[Path], *, progress: Progress | None = None, cache: Path | None = None) -> Inventory:
    """Reads every ELF file below the roots. Never raises on their content; `cache` None keeps none."""
    started = time.monotonic()
    roots = tuple(Path(root).resolve() for root in roots)
    known = _load_cache(cache)
    fresh: dict[str, Any] = {}
    libraries: list[Library] = []
    unreadable: list[tuple[str, str]] = []
    files = [(root, path) for root in roots for path in elf_files(root)]
    owners = {root: owners_of(root) for root in roots}
    hits = 0
    for done, (root, path) in enumerate(files):
        if progress:
            progress(done, len(files), path.name)
        owner, record = owners[root].get(path, ("", ""))
        try:
            status = path.stat()
            key = [record, status.st_size, status.st_mtime_ns]
            library = _from_cache(known, path, key)
            if library is None:
                library = read_library(path, root, owner)
            else:
                hits += 1
            fresh[str(path)] = {"key": key, "library": asdict(library)}
        except (elf.ElfError, OSError) as error:
            unreadable.append((str(path), str(error)))
            continue
        if library.groups or library.problems:
            libraries.append(library)
    if progress:
        progress(len(files), len(files), "")
    if hits < len(files):
        _save_cache(cache, known | fresh)
    seconds = round(time.monotonic() - started, 3)
    names = tuple(str(root) for root in roots)
    return Inventory(names, tuple(libraries), tuple(unreadable), len(files), hits, seconds)


def read_library(path: Path, root: Path, owner: str = "") -> Library:
    """The device code of one ELF file, equal containers counted. Raises ElfError or OSError."""
    counts: dict[tuple[Any, ...], tuple[int, int]] = {}
    with elf.mapped(path) as data:
        found = fatbin.read(data, elf.read(data))
        size = len(data)
        for container in found.containers:
            codes = tuple(sorted({code_of(entry) for entry in container.entries}, key=_order))
            empty = payload.is_empty(data, container)
            key = (codes, container.section, container.loose, empty)
            count, first = counts.get(key, (0, container.offset))
            counts[key] = (count + 1, first)
    groups = tuple(
        Group(codes, count, section, offset, loose, empty)
        for (codes, section, loose, empty), (count, offset) in counts.items()
    )
    problems = tuple(f"{p.section} at {p.offset:#x}, {p.size} bytes: {p.what}" for p in found.problems)
    return Library(str(path), os.path.relpath(path, root), owner, size, groups, problems)


def elf_files(root: Path) -> Iterator[Path]:
    """Shared libraries and programs below a folder, links not followed, in a stable order."""
    for folder, folders, names in os.walk(root):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(folder, name)
            if not (".so" in name or (not name.endswith(_NOT_BINARIES) and os.access(path, os.X_OK))):
                continue
            if not os.path.islink(path) and os.path.isfile(path) and elf.is_elf(path):
                yield Path(path)


def owners_of(root: Path) -> dict[Path, tuple[str, str]]:
    """File → (wheel and version, SHA-256 of the wheel's RECORD), from the *.dist-info folders of a site-packages."""
    owners: dict[Path, tuple[str, str]] = {}
    for record in sorted(root.glob("*.dist-info/RECORD")):
        try:
            content = record.read_bytes()
        except OSError:
            continue
        name = record.parent.name.removesuffix(".dist-info").replace("-", " ")
        digest = hashlib.sha256(content).hexdigest()
        for line in content.decode("utf-8", "replace").splitlines():
            file = line.rsplit(",", 2)[0].strip('"')
            owners[root / file] = (name, digest)
    return owners


def cache_file() -> Path:
    """Where the audit keeps its results: $XDG_CACHE_HOME/verify, or ~/.cache/verify."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(home) / "verify" / CACHE_NAME


def code_of(entry: fatbin.Entry) -> Code:
    """What the audit notes of an entry."""
    present = entry.payload is fatbin.Payload.PRESENT
    return Code(entry.kind.value, entry.arch, entry.variant, entry.isa, present)


def _order(code: Code) -> tuple[Any, ...]:
    return (code.kind, code.arch, code.variant, code.isa or (0, 0), code.present)


def _reader() -> str:
    """Changes with every change of the code that reads files, so that an old cache is not believed."""
    sources = [Path(str(module.__file__)) for module in (elf, fatbin, payload)] + [Path(__file__)]
    digest = hashlib.sha256()
    for source in sources:
        with contextlib.suppress(OSError):
            digest.update(source.read_bytes())
    return digest.hexdigest()


def _load_cache(cache: Path | None) -> dict[str, Any]:
    if cache is None:
        return {}
    try:
        data = json.loads(cache.read_text())
        return dict(data["files"]) if data["reader"] == _reader() else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _from_cache(known: dict[str, Any], path: Path, key: list[Any]) -> Library | None:
    try:
        entry = known[str(path)]
        library: Library | None = decode(Library, entry["library"]) if entry["key"] == key else None
    except (KeyError, TypeError, ValueError):
        return None
    return library


def _save_cache(cache: Path | None, files: dict[str, Any]) -> None:
    if cache is None:
        return
    partial = cache.with_name(f"{cache.name}.{os.getpid()}")
    try:
        cache.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(json.dumps({"reader": _reader(), "files": files}))
        partial.replace(cache)
    except OSError:
        with contextlib.suppress(OSError):
            partial.unlink()
