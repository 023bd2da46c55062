"""A folder in which code can be compiled and loaded, for the checks that really compile."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from verify.machine import Machine

CANDIDATES = ("tmp", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "XDG_CACHE_HOME", "output", "home", "shm")
RECORDED = "A recorded machine cannot be asked to do this."
NOWHERE = "No folder here is writable and lets code run from it; container.temporary_folder says more."
ROOM = 64 << 20


def place(m: Machine) -> str:
    """The first folder that exists, is writable, lets code run from it and has room; "" when none does."""
    disks = (m.disk(name) for name in CANDIDATES)
    good = (d for d in disks if d and d.exists and d.writable and not d.noexec and d.free > ROOM)
    return next((d.path for d in good), "")


@contextmanager
def folder(m: Machine) -> Iterator[str]:
    """A fresh folder in `place(m)`, removed afterwards."""
    path = tempfile.mkdtemp(prefix="verify-", dir=place(m) or None)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
