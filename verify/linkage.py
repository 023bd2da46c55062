"""What the libraries of a Python environment link to, judged as plain data: nothing is loaded.

`Stack` is the environment once read; the functions below find what would not load, which torch an extension module was
built for, and which copy of a library a torch process gets. Tables hold what is expected to be missing, with reasons.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from verify import elf
from verify.audit import elf_files
from verify.loader import FROM_DRIVER, Closure, Missing, Search, closure, find, symbols_of, tables_of

# Files that may lack a library: start of the path below site-packages → why that is no fault.
OPTIONAL = {
    "bitsandbytes/libbitsandbytes_rocm": "for AMD cards",
    "bitsandbytes/libbitsandbytes_xpu": "for Intel cards",
    "bitsandbytes/libbitsandbytes_cuda": "bitsandbytes loads only the one made for torch's CUDA version",
    "nvidia/cufile/lib/libcufile_rdma.so": "cuFile loads it only where RDMA libraries are installed",
    "torchaudio/lib/_torchaudio_sox": "torchaudio does without when libsox is not installed",
    "torchaudio/lib/libtorchaudio_sox": "torchaudio does without when libsox is not installed",
    "torio/lib/_torio_ffmpeg": "torio tries one FFmpeg version after the other",
    "torio/lib/libtorio_ffmpeg": "torio tries one FFmpeg version after the other",
}
# Folders whose package loads its own libraries by path before the modules that need them.
LOADED_BY_PACKAGE = ("torchaudio/lib/", "torio/lib/")

# Symbols that tell for which torch an extension was built. Measured against torch 2.8.0; whole names only, as
# …SetDeviceEa is the beginning of …SetDeviceEab.
BUILT_FOR = {
    "_ZN3c104cuda9SetDeviceEi": "torch 2.2 or older",
    "_ZN3c104cuda9SetDeviceEa": "torch 2.3 to 2.7",
    "_ZN3c104cuda9SetDeviceEab": "torch 2.8 or newer",
    "_ZN3c104cuda29c10_cuda_check_implementationEiPKcS2_ib": "torch 2.9 or older",
    "_ZN3c104cuda29c10_cuda_check_implementationEiPKcS2_jb": "torch 2.10 or newer",
}
TORCH_NAME = re.compile(r"_Z(?:N[KVRO]*|T[IVSC]N|GVN)(?:3c10|2at|5torch|6caffe2)")
_ABI_CONSTRUCTOR = "_ZN3c105ErrorC2ENS_14SourceLocationE"
CXX11 = "NSt7__cxx1112basic_string"

# Two versions of one of these in a process have broken real stacks (duplicates under a private, hashed name do not).
FAMILIES = ("libcudart", "libcudnn", "libcublas", "libcublasLt", "libnvJitLink", "libgomp", "libstdc++")
SYSTEM = ("libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1", "libpthread.so.0", "libdl.so.2", "librt.so.1")
_VERSION = re.compile(rb"(?:GLIBC|GLIBCXX|CXXABI|GCC)_[A-Za-z0-9_.]+")
_HASHED = re.compile(r"[-.][0-9a-f]{8}(?=[-.])")


@dataclass(frozen=True)
class Stack:
    """A site-packages folder and what `import torch` loads from it; `torch` maps soname → path, empty without torch."""

    site: Path
    search: Search
    files: tuple[Path, ...]
    torch: Mapping[str, Path]
    torch_closure: Closure | None

    def name(self, path: Path) -> str:
        """The path below site-packages, or the whole path for a file elsewhere."""
        return str(path.relative_to(self.site)) if path.is_relative_to(self.site) else str(path)


def read_stack(site: Path, search: Search) -> Stack:
    """Reads every ELF file's tables below `site`; about 0.3 s for the image's whole stack."""
    first = site / "torch" / "lib" / "libtorch_global_deps.so"  # torch/__init__.py loads it before anything else
    module = next(iter(sorted((site / "torch").glob("_C.*.so"))), None)
    torch: Closure | None = None
    if module is not None:
        before = closure(first, search) if first.exists() else Closure({}, {}, ())
        after = closure(module, search, before.loaded)
        torch = Closure(after.loaded, {**before.via, **after.via}, before.missing + after.missing)
    return Stack(site, search, tuple(elf_files(site)), torch.loaded if torch else {}, torch)


def missing_libraries(stack: Stack, torch_cuda: str = "") -> list[Missing]:
    """Every library that something needs and the loader would not find, what is expected to be missing left out.

    A library is judged in the company that loads it, by itself only when no other file brings it in: one in scipy.libs
    lives on the RPATH of the module that needs it. A broken file below site-packages is left to the check that reads
    those files. `torch_cuda` ("12.8") tells which bitsandbytes library is the one that gets loaded.
    """
    files = [path for path in stack.files if not _optional(stack.name(path), torch_cuda)]
    closures = {path: closure(path, stack.search, stack.torch) for path in files}
    own = {path: set(made.via) for path, made in closures.items()}
    brought = set().union(set(stack.torch.values()), *own.values())
    judged = set(stack.torch.values())
    found = {(miss.name, miss.needed_by): miss for miss in torch_missing(stack)}
    # First those that nothing brings in; then what is left, which are libraries that only need each other.
    for path in sorted(files, key=lambda path: path in brought):
        if path in judged:
            continue
        judged |= own[path] | {path}
        for miss in closures[path].missing:
            if miss.name in FROM_DRIVER or _optional(stack.name(miss.needed_by), torch_cuda):
                continue
            if stack.name(path).startswith(LOADED_BY_PACKAGE) and (path.parent / miss.name).exists():
                continue
            found.setdefault((miss.name, miss.needed_by), miss)
    return [m for m in found.values() if not (m.broken and m.broken.is_relative_to(stack.site))]


def torch_missing(stack: Stack) -> list[Missing]:
    """What `import torch` would not find, the driver's libraries left out."""
    missing = stack.torch_closure.missing if stack.torch_closure else ()
    return [miss for miss in missing if miss.name not in FROM_DRIVER]


def unresolved(stack: Stack) -> dict[Path, tuple[str, ...]]:
    """Libraries of a torch process → symbols they need that nothing in it defines.

    This is how an nvJitLink or NCCL of another version shows: `__nvJitLinkCreate_12_8`, `ncclCommRegister`. Python's
    own symbols come from the interpreter; the system's C library is left to the distribution.
    """
    defined: set[str] = set(symbols_of(_loader_of(stack)).defined)
    for path in stack.torch.values():
        defined |= symbols_of(path).defined
    found = {}
    for path in stack.torch.values():
        if not path.is_relative_to(stack.site):
            continue
        lacking = {s for s in symbols_of(path).undefined - defined if not s.startswith(("Py", "_Py"))}
        if lacking:
            found[path] = tuple(sorted(lacking))
    return found


def too_new_for_system(stack: Stack, torch_cuda: str = "") -> dict[str, list[Path]]:
    """ "libc.so.6 GLIBC_2.32" → files that ask for it, where the system's library has no such version."""
    found: dict[str, list[Path]] = {}
    for path in stack.files:
        if _optional(stack.name(path), torch_cuda):
            continue
        for library, wanted in symbols_of(path).versions.items():
            place = find(library, path, (), stack.search) if library in SYSTEM else ""
            if isinstance(place, Path):
                for version in set(wanted) - versions_in(place):
                    found.setdefault(f"{library} {version}", []).append(path)
    return found


@lru_cache(maxsize=64)
def versions_in(path: Path) -> frozenset[str]:
    """The symbol versions a system library defines: the names of that form among its strings."""
    try:
        with elf.mapped(path) as data:
            return frozenset(match.decode() for match in _VERSION.findall(data))
    except OSError:
        return frozenset()


def foreign_extensions(stack: Stack, torch_cuda: str = "") -> dict[Path, tuple[str, ...]]:
    """Extension modules → c10/at/torch symbols they need that neither this torch nor their own libraries define."""
    exported: set[str] = set()
    for path in (stack.site / "torch" / "lib").glob("*.so*"):
        exported |= symbols_of(path).defined
    found = {}
    for path in stack.files:
        name = stack.name(path)
        if name.startswith("torch/") or _optional(name, torch_cuda):
            continue
        needed = {s for s in symbols_of(path).undefined if TORCH_NAME.match(s)}
        lacking = needed - exported
        if lacking:
            own = closure(path, stack.search, stack.torch).loaded.values()
            lacking -= {symbol for library in own for symbol in symbols_of(library).defined}
        if lacking:
            found[path] = tuple(sorted(lacking))
    return found


def built_for(symbols: Iterable[str]) -> str:
    """What the missing symbols say about the torch an extension was built for; "" when they do not tell."""
    return next((torch for symbol in symbols if (torch := BUILT_FOR.get(symbol))), "")


def old_abi(symbol: str) -> bool:
    """Whether the symbol is c10::Error's constructor with the std::string of the old (pre-C++11) ABI."""
    return symbol.startswith(_ABI_CONSTRUCTOR) and symbol.endswith("Ss")


def new_abi(symbol: str) -> bool:
    """The same with the C++11 std::string."""
    return symbol.startswith(_ABI_CONSTRUCTOR) and CXX11 in symbol


def torch_abi(stack: Stack) -> bool | None:
    """True when the installed torch has the C++11 ABI, False for the old one, None when it cannot be told."""
    defined = symbols_of(stack.site / "torch" / "lib" / "libc10.so").defined
    if any(new_abi(s) for s in defined):
        return True
    return False if any(old_abi(s) for s in defined) else None


def copies(stack: Stack) -> dict[str, dict[Path, str]]:
    """Family ("libcudart") → each copy that modules of this environment load after torch → one that loads it.

    A torch process holds torch's copy first, so a copy appears only where another file name or version is asked for.
    """
    found: dict[str, dict[Path, str]] = {family: {} for family in FAMILIES}

    def note(loaded: Mapping[str, Path], asker: Mapping[Path, Path], root: Path) -> None:
        for path in loaded.values():
            family = family_of(path.name)
            if family in found and path != root:  # a file that nothing asks for is not loaded
                found[family].setdefault(path.resolve(), stack.name(asker.get(path, root)))

    if stack.torch_closure:
        note(stack.torch, stack.torch_closure.via, stack.site / "torch")
    for path in stack.files:
        if not _optional(stack.name(path), ""):
            own = closure(path, stack.search, stack.torch)
            note(own.loaded, own.via, path)
    return found


def family_of(file_name: str) -> str:
    """libcudart for libcudart.so.12 and for the private libcudart.e8e8b82a.so.12."""
    return _HASHED.sub("", file_name, count=1).split(".so", 1)[0]


def is_private(path: Path) -> bool:
    """Whether a wheel carries the file under a hashed name of its own, so that it cannot stand in for another."""
    return bool(_HASHED.search(path.name))


def _optional(name: str, torch_cuda: str) -> bool:
    wanted = f"bitsandbytes/libbitsandbytes_cuda{torch_cuda.replace('.', '')}.so"
    return name.startswith(tuple(OPTIONAL)) and not (torch_cuda and name == wanted)


def _loader_of(stack: Stack) -> Path:
    name = "ld-linux-aarch64.so.1" if stack.search.machine == elf.AARCH64 else "ld-linux-x86-64.so.2"
    found = find(name, Path("/"), (), stack.search)
    return found if isinstance(found, Path) and not isinstance(tables_of(found), str) else Path("/")
