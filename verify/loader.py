"""Finds libraries the way the dynamic loader of glibc will, without loading anything.

Order for a name that some object needs (ld.so(8)): an object of that soname that is loaded already; the RPATH of the
object and of those that brought it in (only if the object has no RUNPATH); LD_LIBRARY_PATH; the object's RUNPATH;
ld.so.cache; the default folders. $ORIGIN is the folder of the object that carries the path. A candidate of another
machine type is passed over; one that is no ELF file stops the loader, and is reported as such.

torch's libraries have RPATHs to the nvidia-* wheels, and an extension module imported after torch finds libtorch.so,
libcudart.so.12 … because torch has loaded them: `closure` takes what is loaded already for that.
"""

from __future__ import annotations

import contextlib
import os
import platform
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from verify import elf, symbols

CACHE = Path("/etc/ld.so.cache")
PRELOAD_FILE = Path("/etc/ld.so.preload")
# Delivered by the driver when the container starts, so missing without a GPU.
FROM_DRIVER = ("libcuda.so.1", "libnvidia-ml.so.1", "libnvcuvid.so.1", "libnvidia-encode.so.1", "libcudadebugger.so.1")

_CACHE_MAGIC = b"glibc-ld.so.cache1.1"
_CACHE_ENTRY = struct.Struct("<iIIIQ")
_CACHE_HEADER = 48
_MACHINES = {"x86_64": (elf.X86_64, 0x0300, "x86_64-linux-gnu"), "aarch64": (elf.AARCH64, 0x0A00, "aarch64-linux-gnu")}


@dataclass(frozen=True)
class Search:
    """What the loader knows beside the objects themselves; folders in order, `cache` maps soname → path."""

    library_path: tuple[str, ...] = ()
    preload: tuple[str, ...] = ()
    cache: Mapping[str, str] = field(default_factory=dict)
    default: tuple[str, ...] = ()
    machine: int = elf.X86_64


@dataclass(frozen=True)
class Missing:
    """A library that would not load: who needs it, and why. `broken`: the file is there, but no whole ELF file."""

    name: str
    needed_by: Path
    reason: str
    broken: Path | None = None


@dataclass(frozen=True)
class Closure:
    """What loading one object loads. `loaded` maps soname → path in load order, `via` path → who asked first."""

    loaded: Mapping[str, Path]
    via: Mapping[Path, Path]
    missing: tuple[Missing, ...]


def present_search(environ: Mapping[str, str], cache: Path = CACHE, preload_file: Path = PRELOAD_FILE) -> Search:
    """The loader's knowledge for a process started with `environ` on this machine."""
    machine, flag, triple = _MACHINES.get(platform.machine(), _MACHINES["x86_64"])
    default = (f"/lib/{triple}", f"/usr/lib/{triple}", "/lib64", "/usr/lib64", "/lib", "/usr/lib")
    folders = environ.get("LD_LIBRARY_PATH", "").replace(";", ":")
    # An empty part means the current folder (ld.so(8)).
    library_path = tuple(part or "." for part in folders.split(":")) if folders else ()
    preload = environ.get("LD_PRELOAD", "").replace(":", " ").split()
    with contextlib.suppress(OSError):
        preload += preload_file.read_text().split()
    return Search(library_path, tuple(preload), read_cache(cache, flag), default, machine)


def read_cache(path: Path, flag: int = 0x0300) -> dict[str, str]:
    """Soname → path from ld.so.cache, first entry first; empty when it is missing or of another format."""
    try:
        data = path.read_bytes()
    except OSError:
        return {}
    start = data.find(_CACHE_MAGIC)
    if start < 0 or len(data) < start + _CACHE_HEADER:
        return {}
    count = int.from_bytes(data[start + 20 : start + 24], "little")
    found: dict[str, str] = {}
    for index in range(min(count, len(data) // _CACHE_ENTRY.size)):
        at = start + _CACHE_HEADER + index * _CACHE_ENTRY.size
        if at + _CACHE_ENTRY.size > len(data):
            break
        flags, key, value, _, _ = _CACHE_ENTRY.unpack_from(data, at)
        if flags & 0xFF00 == flag:
            found.setdefault(_text(data, start + key), _text(data, start + value))
    return found


def closure(start: Path, search: Search, loaded: Mapping[str, Path] | None = None) -> Closure:
    """Everything that loading `start` loads, breadth first as the loader does; never raises."""
    have: dict[str, Path] = dict(loaded or {})
    via: dict[Path, Path] = {}
    missing: list[Missing] = []
    chains: dict[Path, tuple[Path, ...]] = {start: ()}
    names = {path.name for path in have.values()}
    queue = [start]
    for path in queue:  # grows while it is walked
        tables = tables_of(path)
        if isinstance(tables, str):
            missing.append(Missing(path.name, via.get(path, path), tables, path))
            continue
        dynamic = tables.dynamic or elf.Dynamic()
        have.setdefault(dynamic.soname or path.name, path)
        names.add(path.name)
        for name in dynamic.needed:
            if name in have or name in names or name.startswith("ld-linux"):
                continue
            found = find(name, path, chains[path], search)
            if isinstance(found, str):
                missing.append(Missing(name, path, found))
                continue
            have[name] = found
            via.setdefault(found, path)
            if found not in chains:
                chains[found] = (path, *chains[path])
                queue.append(found)
    return Closure(have, via, tuple(missing))


def preloaded(search: Search) -> dict[str, Path]:
    """Soname → path of what LD_PRELOAD and /etc/ld.so.preload put first. Names that do not exist are ignored."""
    found: dict[str, Path] = {}
    for name in search.preload:
        path = Path(name) if "/" in name else find(name, Path("/"), (), search)
        if isinstance(path, str) or isinstance(tables_of(path), str):
            continue
        found |= closure(path, search, found).loaded
    return found


def find(name: str, asker: Path, chain: Iterable[Path], search: Search) -> Path | str:
    """Where the loader finds `name` for `asker`, brought in by `chain` (nearest first); or why it does not."""
    if "/" in name:
        return Path(name) if os.path.exists(name) else "no such file"
    for folder in _folders(asker, chain, search):
        usable = _usable(os.path.join(folder, name), search)
        if usable is not None:
            return usable
    if name in search.cache:
        usable = _usable(search.cache[name], search)
        if usable is not None:
            return usable
    for folder in search.default:
        usable = _usable(os.path.join(folder, name), search)
        if usable is not None:
            return usable
    return "in no folder the loader searches"


@lru_cache(maxsize=4096)
def tables_of(path: Path) -> elf.Elf | str:
    """The ELF tables of a file, or why it has none. Kept for the life of the process."""
    try:
        return elf.read_file(path)
    except OSError as error:
        return error.strerror or str(error)
    except elf.ElfError as error:
        return str(error)


@lru_cache(maxsize=1024)
def symbols_of(path: Path) -> symbols.Symbols:
    """The dynamic symbols of a file; none when it cannot be read. Kept for the life of the process."""
    tables = tables_of(path)
    if isinstance(tables, str):
        return symbols.Symbols()
    try:
        with elf.mapped(path) as data:
            return symbols.read(data, tables)
    except (OSError, elf.ElfError):
        return symbols.Symbols()


def _folders(asker: Path, chain: Iterable[Path], search: Search) -> Iterable[str]:
    runpath = _dynamic(asker).runpath
    if not runpath:
        for owner in (asker, *chain):
            dynamic = _dynamic(owner)
            if not dynamic.runpath:
                yield from (_expand(part, owner) for part in dynamic.rpath)
    yield from search.library_path
    yield from (_expand(part, asker) for part in runpath)


def _dynamic(path: Path) -> elf.Dynamic:
    tables = tables_of(path)
    return elf.Dynamic() if isinstance(tables, str) or tables.dynamic is None else tables.dynamic


def _expand(part: str, owner: Path) -> str:
    origin = str(owner.parent)
    return os.path.normpath(part.replace("${ORIGIN}", origin).replace("$ORIGIN", origin))


def _usable(candidate: str, search: Search) -> Path | None:
    if not os.path.isfile(candidate):
        return None
    tables = tables_of(Path(candidate))
    # One that is no ELF file stops the loader ("invalid ELF header"): hand it on, `closure` reports it.
    return None if not isinstance(tables, str) and tables.machine != search.machine else Path(candidate)


def _text(data: bytes, offset: int) -> str:
    end = data.find(b"\0", offset)
    return data[offset:end].decode("utf-8", "replace") if 0 <= offset < len(data) and end >= 0 else ""
