"""What the installed libraries link to: found by the loader's own rules, and made for this torch."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from verify import audit, linkage, loader
from verify.core import Outcome, check, fail, pass_, skip, warn
from verify.machine import Machine
from verify.wording import some

_RECORDED = "The libraries of a recorded machine are not here to be read."


@check(timeout=120)
def needed_libraries_are_found(m: Machine) -> Outcome:
    """Every library that a module of the Python stack needs is where the loader will look for it.

    Judged for modules imported after torch. The driver's libcuda.so.1 comes with the container's start and may be
    missing here.
    """
    if m.recorded:
        return skip(_RECORDED)
    stack = _stack(m)
    missing = linkage.missing_libraries(stack, m.python.torch_cuda)
    if missing:
        names = some(f"{stack.name(miss.needed_by)} needs {miss.name} ({miss.reason})" for miss in missing)
        wheels = ", ".join(dict.fromkeys(_wheel_hint(miss.name) for miss in missing))
        return fail(
            f"The loader would not find what modules need: {names}.",
            hint=f"Reinstall what provides them at the version torch asks for: {wheels}.",
            data={stack.name(miss.needed_by): miss.name for miss in missing},
        )
    return pass_(f"{len(stack.files)} libraries, everything they need is found; torch brings in {len(stack.torch)}.")


@check(timeout=120)
def system_libraries_are_new_enough(m: Machine) -> Outcome:
    """The C and C++ libraries of this distribution have every version that the installed modules ask for."""
    if m.recorded:
        return skip(_RECORDED)
    stack = _stack(m)
    found = linkage.too_new_for_system(stack, m.python.torch_cuda)
    if found:
        names = some(f"{version} (for {stack.name(paths[0])})" for version, paths in sorted(found.items()))
        packages = ", ".join(dict.fromkeys(_package(stack, path) for paths in found.values() for path in paths))
        return fail(
            f"Modules were built on a newer distribution than this one, which does not have {names}.",
            hint=f"Use a newer base image, or install a build of {packages} made for an older one.",
            data={version: [stack.name(path) for path in paths] for version, paths in found.items()},
        )
    return pass_(f"The system's libraries have every version that {len(stack.files)} files ask for.")


@check(needs="torch", timeout=120)
def torch_symbols_are_defined(m: Machine) -> Outcome:
    """Every symbol that torch and the CUDA libraries need from each other is defined by the versions installed.

    An nvJitLink older than cuSPARSE, or a NCCL older than torch, shows here before any import.
    """
    if m.recorded:
        return skip(_RECORDED)
    stack = _stack(m)
    if not stack.torch:
        return skip("torch's libraries were not found.")
    if absent := sorted({miss.name for miss in linkage.torch_missing(stack)}):
        return skip(f"Symbols cannot be judged while {some(absent)} cannot be found.")
    found = linkage.unresolved(stack)
    if found:
        names = some(f"{stack.name(path)} needs {', '.join(symbols[:3])}" for path, symbols in found.items())
        return fail(
            f"torch cannot load: {names}, which no installed library defines.",
            hint="Reinstall the nvidia-* wheels at the versions torch pins "
            f"({_blamed(symbol for symbols in found.values() for symbol in symbols)}).",
            data={stack.name(path): list(symbols[:20]) for path, symbols in found.items()},
        )
    return pass_(f"All symbols of the {len(stack.torch)} libraries of a torch process are defined.")


@check(needs="torch", timeout=120)
def extensions_were_built_for_this_torch(m: Machine) -> Outcome:
    """Every extension module finds the symbols it needs in the installed torch, so it was built for this one."""
    if m.recorded:
        return skip(_RECORDED)
    stack = _stack(m)
    found = _foreign(stack, m)
    wrong = {path: [s for s in symbols if not linkage.old_abi(s)] for path, symbols in found.items()}
    wrong = {path: symbols for path, symbols in wrong.items() if symbols}
    if wrong:
        installed = m.package("torch") or "installed"
        parts = []
        for path, symbols in wrong.items():
            torch = linkage.built_for(symbols)
            parts.append(f"{stack.name(path)} ({symbols[0]}{', built for ' + torch if torch else ''})")
        packages = ", ".join(dict.fromkeys(_package(stack, path) for path in wrong))
        return fail(
            f"Extension modules need symbols that torch {installed} does not have: {some(parts)}.",
            hint=f"Install the build of {packages} for torch {installed} (pip install --no-cache-dir --force-reinstall "
            "--no-deps), or build it with --no-build-isolation.",
            data={stack.name(path): symbols[:20] for path, symbols in wrong.items()},
        )
    return pass_(f"No extension module needs a c10, at or torch symbol that is not there ({len(stack.files)} files).")


@check(needs="torch", timeout=120)
def extensions_share_the_cxx_abi(m: Machine) -> Outcome:
    """Every extension module uses the same C++ string ABI as torch."""
    if m.recorded:
        return skip(_RECORDED)
    stack = _stack(m)
    ours = linkage.torch_abi(stack)
    if ours is None:
        return skip("torch's libc10.so does not tell its C++ ABI.")
    strange = linkage.old_abi if ours else linkage.new_abi
    wrong = [path for path, symbols in _foreign(stack, m).items() if any(strange(s) for s in symbols)]
    name = "TRUE" if ours else "FALSE"
    if wrong:
        return fail(
            f"Built with the {'old' if ours else 'C++11'} string ABI, unlike torch: {some(map(stack.name, wrong))}.",
            hint=f"Take the wheel whose file name says cxx11abi{name}, or build it from source against this torch.",
            data={"modules": [stack.name(path) for path in wrong]},
        )
    return pass_(f"torch was built with cxx11abi{name}, and no extension module with the other.")


@check(needs="torch", timeout=120)
def torch_uses_its_own_libraries(m: Machine) -> Outcome:
    """torch gets its CUDA libraries from its wheels, and no second version of one joins them in a process."""
    if m.recorded:
        return skip(_RECORDED)
    stack = _stack(m)
    families = linkage.copies(stack)
    outside = {
        soname: path
        for soname, path in stack.torch.items()
        if linkage.family_of(path.name) in families
        and not soname.startswith("libstdc++")
        and not path.resolve().is_relative_to(stack.site.resolve())
    }
    if outside:
        names = some(f"{soname} from {path}" for soname, path in outside.items())
        return fail(
            f"torch would load {names} instead of the copy of its own wheels.",
            hint=f"Reinstall {', '.join(dict.fromkeys(_wheel_hint(n) for n in outside))} at the version torch pins.",
            data={soname: str(path) for soname, path in outside.items()},
        )
    doubles, private = [], 0
    for family, copies in families.items():
        public = [path for path in copies if not linkage.is_private(path)]
        private += len(copies) - len(public)
        if len(public) > 1:
            who = " and ".join(f"{stack.name(path)} (for {copies[path]})" for path in public)
            doubles.append(f"{family}: {who}")
    if doubles:
        return warn(
            f"A torch process would load two versions of {some(doubles)}.",
            hint="Install builds made for torch's CUDA version; two copies of one library do not share their state.",
            data={
                family: {stack.name(path): who for path, who in copies.items()} for family, copies in families.items()
            },
        )
    note = f" ({private} private copies under names of their own are harmless)" if private else ""
    return pass_(f"One copy of each CUDA and run-time library joins a torch process{note}.")


def _stack(m: Machine) -> linkage.Stack:
    return _read_stack(Path(m.python.site))


@lru_cache(maxsize=4)
def _read_stack(site: Path) -> linkage.Stack:
    # Without LD_LIBRARY_PATH and LD_PRELOAD: these checks judge what is installed, another one the environment.
    return linkage.read_stack(site, loader.present_search({}, preload_file=Path("/nonexistent")))


def _foreign(stack: linkage.Stack, m: Machine) -> dict[Path, tuple[str, ...]]:
    return linkage.foreign_extensions(stack, m.python.torch_cuda)


def _package(stack: linkage.Stack, path: Path) -> str:
    """The wheel that brought a file, else the module's name."""
    owner, _ = audit.owners_of(stack.site).get(path, ("", ""))
    return owner.split(" ")[0] or stack.name(path).split("/")[0].split(".")[0]


def _wheel_hint(library: str) -> str:
    """The wheel that brings a CUDA library, else the library's own name."""
    stem = re.sub(r"^lib|\.so.*$", "", library)
    known = {
        "cudart": "cuda-runtime", "cublasLt": "cublas", "nvJitLink": "nvjitlink", "cusparseLt": "cusparselt",
        "nvrtc": "cuda-nvrtc", "cupti": "cuda-cupti", "cusolverMg": "cusolver",
    }  # fmt: skip
    named = known.get(stem, stem)
    cuda = named in {*known.values(), "cublas", "cudnn", "cufft", "curand", "cusolver", "cusparse", "nccl", "cufile"}
    return f"nvidia-{named}-cu12" if cuda or named.startswith("cudnn") else library


def _blamed(symbols: Iterable[str]) -> str:
    known = {"__nvJitLink": "nvidia-nvjitlink-cu12", "nccl": "nvidia-nccl-cu12", "cudnn": "nvidia-cudnn-cu12"}
    found = [wheel for s in symbols for start, wheel in known.items() if s.startswith(start)]
    return ", ".join(dict.fromkeys(found)) or "pip check names those that differ"
