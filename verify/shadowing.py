"""Finds files that would be loaded in place of the right ones: stubs, cuda-compat, folders on LD_LIBRARY_PATH."""

from __future__ import annotations

import re
from pathlib import Path

from verify.loader import Search, find

_STUB_SIZE = 200_000  # bytes; the real libcuda has more than 20 MB, the stub of CUDA 12 about 60 KB


def shadows(folder: Path) -> tuple[str, ...]:
    """Libraries in a folder on LD_LIBRARY_PATH that a torch process would really take from there.

    Measured with torch 2.8: its RPATH makes copies of cudart, cuBLAS, cuSPARSE, nvJitLink, NCCL and libcudnn.so.9 there
    harmless; cuDNN's sub-libraries, libcuda and libstdc++ are taken.
    """
    try:
        names = sorted(p.name for p in folder.iterdir())
    except OSError:
        return ()
    return tuple(n for n in names if re.match(r"libcudnn_\w+\.so\.9$|libcuda\.so\.1$|libstdc\+\+\.so\.6$", n))


def wrong_driver_library(search: Search) -> tuple[Path, str] | None:
    """The libcuda.so.1 the loader would take and what it is, "stub" or "compat"; None for the driver's own or none."""
    found = find("libcuda.so.1", Path("/"), (), search)
    if isinstance(found, str):
        return None
    parts = {*found.parts, *found.resolve().parts}
    if "compat" in parts:
        return found, "compat"
    return (found, "stub") if "stubs" in parts or found.stat().st_size < _STUB_SIZE else None


def compat_libraries(root: Path = Path("/usr/local")) -> tuple[Path, ...]:
    """libcuda files of the cuda-compat package below the CUDA toolkits."""
    return tuple(sorted(root.glob("cuda*/compat/libcuda.so*")))
