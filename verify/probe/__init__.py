"""Reads this machine into a Machine. Each file reads one subject, and none of them raises."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TypeVar

from verify.machine import Machine

IMAGE = Path("/opt/verify/image.json")
T = TypeVar("T")

# Variables that change how the stack behaves. No token, no index address: a record may be shown to others.
ENV_STARTS = (
    *("BNB_", "CUBLAS_", "CUDA", "CUDNN_", "FLASH_ATTENTION_", "LD_", "NCCL_", "NVCC_", "NVIDIA_", "OMP_"),
    *("PYTHON", "PYTORCH_", "TORCH", "TRITON_", "VERIFY_", "XDG_", "XFORMERS_"),
)
ENV_NAMES = {
    *(
        "CC",
        "CPATH",
        "CXX",
        "HF_HOME",
        "HOME",
        "LANG",
        "LIBRARY_PATH",
        "LNAME",
        "LOGNAME",
        "MAX_JOBS",
        "MKL_NUM_THREADS",
    ),
    *("PATH", "PGID", "PIP_CACHE_DIR", "PIP_CONSTRAINT", "PUID", "SHELL", "TMPDIR", "USER", "USERNAME", "VIRTUAL_ENV"),
}
Problems = dict[str, str]  # fact → why it could not be read; filled while probing only


def attempt(problems: Problems, name: str, read: Callable[[], T], default: Any) -> T:
    """`read()`, or `default` and a note under `name` when it raises anything at all."""
    try:
        return read()
    except Exception as error:
        problems[name] = reason(error)
        fallback: T = default
        return fallback


def reason(error: Exception) -> str:
    """An exception as the end of a sentence."""
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror}"
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def environment(env: Mapping[str, str]) -> dict[str, str]:
    """The variables that matter to the stack, sorted."""
    return {k: v for k, v in sorted(env.items()) if k in ENV_NAMES or k.startswith(ENV_STARTS)}


def image(path: Path = IMAGE) -> Mapping[str, Any]:
    """What the image knows about itself. OSError or ValueError when it is not there or not readable."""
    data = json.loads(path.read_text())
    if not isinstance(data, dict):
        raise TypeError(f"{path} holds {type(data).__name__}, not an object")
    return data


def probe() -> Machine:
    """This machine, now. The parts are read side by side: most of the time goes into waiting for child processes."""
    from verify.facts import Container, Driver, Python, System, Toolkit
    from verify.probe import container, driver, folders, software, system, toolkit

    problems: Problems = {}
    with ThreadPoolExecutor(6) as pool:
        gpu = pool.submit(lambda: attempt(problems, "driver", lambda: driver.read(problems), (Driver(), ())))
        tools = pool.submit(lambda: attempt(problems, "toolkit", lambda: toolkit.read(problems), Toolkit()))
        python = pool.submit(lambda: attempt(problems, "python", lambda: software.read(problems), Python()))
        base = pool.submit(lambda: attempt(problems, "system", lambda: system.read(problems), System()))
        box = pool.submit(lambda: attempt(problems, "container", lambda: container.read(problems), Container()))
        disks = pool.submit(lambda: attempt(problems, "disks", lambda: folders.read(dict(os.environ)), ()))
        mounts = attempt(problems, "mounts", folders.mounts, ())
        about = attempt(problems, "image", image, None)
        found, gpus = gpu.result()
        return Machine(
            taken=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            system=base.result(),
            container=box.result(),
            disks=disks.result(),
            mounts=mounts,
            env=environment(os.environ),
            driver=found,
            gpus=gpus,
            toolkit=tools.result(),
            python=python.result(),
            image=about,
            problems=dict(sorted(problems.items())),
        )
