"""Checks that end badly, each its own way; tests run them in child processes."""

from __future__ import annotations

import os
import signal
import time

from verify.core import Outcome, pass_
from verify.machine import Machine


def well(m: Machine) -> Outcome:
    """Ends well."""
    print("noise on stdout")
    return pass_(f"{len(m.gpus)} GPU.", data={"pid": os.getpid()})


def segfault(m: Machine) -> Outcome:
    """Reads address 0."""
    import ctypes

    ctypes.string_at(0)
    return pass_("?")


def abort(m: Machine) -> Outcome:
    """Gives up as cuDNN does."""
    os.write(2, b"Could not load symbol cudnnGetVersion\n")
    os.abort()


def hang(m: Machine) -> Outcome:
    """Never answers."""
    time.sleep(60)
    return pass_("?")


def killed(m: Machine) -> Outcome:
    """Is killed as the kernel does for lack of memory."""
    os.kill(os.getpid(), signal.SIGKILL)
    return pass_("?")


def sticky(m: Machine) -> Outcome:
    """Leaves CUDA unusable."""
    raise RuntimeError("CUDA error: an illegal memory access was encountered\nCompile with TORCH_USE_CUDA_DSA")


def raises(m: Machine) -> Outcome:
    """Has a bug."""
    raise KeyError("clock")


def leaves(m: Machine) -> Outcome:
    """Calls exit."""
    raise SystemExit(0)


def vanishes(m: Machine) -> Outcome:
    """Ends the process with success and no answer."""
    os._exit(0)


def nothing(m: Machine) -> Outcome:
    """Returns no Outcome."""
    return None  # type: ignore[return-value]
