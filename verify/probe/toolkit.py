"""Compilers: nvcc and the host compiler it takes, gcc, g++."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from verify import child
from verify.facts import Toolkit
from verify.probe import Problems, attempt


def version(program: str, flag: str, pattern: str) -> str:
    """What `program flag` prints after `pattern` (one group); OSError or ValueError when it does not."""
    ended = child.run([program, flag], timeout=20, env={**os.environ, "LC_ALL": "C"})
    if ended.ending[0]:
        raise ValueError(f"{program} {flag} ended by {ended.ending[1]}: {ended.tail[-200:]}")
    found = re.search(pattern, ended.stdout)
    if not found:
        raise ValueError(f"{program} {flag} printed no version")
    return found[1]


def find_nvcc(env: Mapping[str, str]) -> str:
    """nvcc as torch.utils.cpp_extension finds it: CUDA_HOME or CUDA_PATH, then PATH, then /usr/local/cuda."""
    home = env.get("CUDA_HOME") or env.get("CUDA_PATH")
    on_path = shutil.which("nvcc", path=env.get("PATH"))
    places = [f"{home}/bin/nvcc" if home else "", on_path or "", "/usr/local/cuda/bin/nvcc"]
    return next((p for p in places if p and os.access(p, os.X_OK)), "")


def find_host_compiler(nvcc: str, env: Mapping[str, str]) -> str:
    """The C++ compiler nvcc calls: NVCC_CCBIN, a compiler-bindir in its profile, a g++ beside it, else g++ on PATH."""
    given = env.get("NVCC_CCBIN", "")
    beside = Path(nvcc).resolve().parent
    if not given:
        text = ""
        for name in (Path(nvcc).parent / "nvcc.profile", beside / "nvcc.profile"):
            if name.is_file():
                text = name.read_text()
                break
        found = re.search(r"compiler-bindir\s*=\s*(\S+)", text)
        given = found[1] if found else ""
    if given:
        place = Path(given)
        return str(place / "g++") if place.is_dir() else shutil.which(given) or given
    for folder in (Path(nvcc).parent, beside):
        if (folder / "g++").exists():
            return str(folder / "g++")
    return shutil.which("g++", path=env.get("PATH")) or ""


def newest_gcc(nvcc: str) -> int | None:
    """The newest GCC major this nvcc accepts, read from the check in its own crt/host_config.h; None when not found."""
    for folder in dict.fromkeys((Path(nvcc).parent.parent, Path(nvcc).resolve().parent.parent)):
        for header in (folder / "include/crt/host_config.h", folder / "targets/x86_64-linux/include/crt/host_config.h"):
            if header.is_file() and (found := re.search(r"#if __GNUC__ > (\d+)", header.read_text(errors="replace"))):
                return int(found[1])
    return None


def read(problems: Problems, env: Mapping[str, str] | None = None) -> Toolkit:
    """The compilers on this machine."""
    env = os.environ if env is None else env
    nvcc = find_nvcc(env)
    home = str(Path(nvcc).resolve().parent.parent) if nvcc else ""
    ptxas = str(Path(nvcc).parent / "ptxas") if nvcc else ""
    gcc = shutil.which(env.get("CC") or "gcc", path=env.get("PATH")) or ""
    gxx = shutil.which(env.get("CXX") or "g++", path=env.get("PATH")) or ""
    host = find_host_compiler(nvcc, env) if nvcc else ""

    def ask(name: str, program: str, flag: str, pattern: str) -> str:
        return attempt(problems, f"toolkit.{name}", lambda: version(program, flag, pattern), "") if program else ""

    number = r"^(\d+(?:\.\d+)*)"
    return Toolkit(
        home=home,
        nvcc=nvcc,
        version=ask("nvcc", nvcc, "--version", r", V([\d.]+)"),
        ptxas=ask("ptxas", ptxas if os.access(ptxas, os.X_OK) else "", "--version", r", V([\d.]+)"),
        host_compiler=host,
        host_compiler_version=ask("host_compiler", host, "-dumpfullversion", number),
        host_compiler_limit=attempt(problems, "toolkit.host_config", lambda: newest_gcc(nvcc), None) if nvcc else None,
        gcc=gcc,
        gcc_version=ask("gcc", gcc, "-dumpfullversion", number),
        gxx=gxx,
        gxx_version=ask("gxx", gxx, "-dumpfullversion", number),
    )
