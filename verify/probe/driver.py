"""The NVIDIA driver: kernel module, device files, and what two child processes learn from libcuda and NVML.

Loading a hostile or half-updated libcuda may abort, and NVML hangs on a wedged driver: never in this process.
"""

from __future__ import annotations

import ctypes
import dataclasses
import errno
import os
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from verify import child
from verify.facts import DeviceNode, Driver, Gpu
from verify.probe import Problems, attempt
from verify.probe.folders import mount_table, under
from verify.xid import numbers

TIMEOUT = 25.0  # cuInit takes up to 10 s on eight GPUs without persistence mode


def module(proc: Path = Path("/proc/driver/nvidia")) -> tuple[str, bool | None]:
    """(version of the loaded kernel module, whether it is the open one); ("", None) without a module."""
    path = proc / "version"
    if not path.exists():
        return "", None
    first = path.read_text().splitlines()[0]
    found = re.search(r"\s(\d+\.\d+(?:\.\d+)?)\s", first)
    return (found[1] if found else ""), "Open Kernel Module" in first


def nodes(dev: Path = Path("/dev")) -> tuple[DeviceNode, ...]:
    """The device files, each really opened: EPERM is a cgroup rule, EACCES a mode or a label, ENXIO a stale node."""
    found = []
    for path in sorted(dev.glob("nvidia*")):
        if path.is_dir():
            continue
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC))
            access = "ok"
        except OSError as error:
            access = errno.errorcode.get(error.errno or 0, "?")
        number = path.stat().st_rdev
        found.append(DeviceNode(str(path), access, os.major(number), os.minor(number)))
    return tuple(found)


def ldconfig() -> str:
    """The loader's cache as text."""
    program = next((p for p in ("/sbin/ldconfig", "/usr/sbin/ldconfig") if os.path.exists(p)), "ldconfig")
    return child.run([program, "-p"], timeout=10).stdout


def linkable(cache: str, libcuda: str, env: dict[str, str]) -> bool:
    """Whether `-lcuda` will link for Triton: an unversioned libcuda.so in the loader's cache or in a given folder."""
    if re.search(r"^\s*libcuda\.so \(", cache, re.MULTILINE):
        return True
    places = [*env.get("LD_LIBRARY_PATH", "").split(":"), *env.get("LIBRARY_PATH", "").split(":")]
    places += [env.get("TRITON_LIBCUDA_PATH", ""), os.path.dirname(libcuda)]
    return any(place and os.path.exists(f"{place}/libcuda.so") for place in places)


def kernel_log() -> str:
    """The kernel's log: for root on the host, or with CAP_SYSLOG in a container. OSError where it is not shown."""
    read_all, size = 3, 10  # actions of syslog(2)
    libc = ctypes.CDLL(None, use_errno=True)
    length = libc.klogctl(size, None, 0)
    buffer = ctypes.create_string_buffer(max(length, 1))
    got = libc.klogctl(read_all, buffer, length) if length >= 0 else -1
    if got < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return buffer.raw[:got].decode(errors="replace")


def ask(name: str, problems: Problems, timeout: float = TIMEOUT) -> dict[str, Any]:
    """What `verify.probe.<name>` answers from its child process; whatever it said before it died is kept."""
    ended = child.run([sys.executable, "-m", f"verify.probe.{name}"], timeout=timeout, env=child.environment())
    said = child.last_answer(ended)
    kind, phrase = ended.ending
    if kind:
        problems[f"driver.{name}"] = f"the process that asked ended by {phrase}"
    elif isinstance(said, dict) and said.get("problem"):
        problems[f"driver.{name}"] = said["problem"]
    return said if isinstance(said, dict) else {}


def merge(cuda: list[dict[str, Any]], nvml: list[dict[str, Any]]) -> tuple[Gpu, ...]:
    """The GPUs CUDA shows, completed by NVML through the PCI address; NVML's own list when CUDA shows none.

    The address itself is dropped: a record is made to be shared.
    """
    by_address = {g["address"]: g for g in nvml}
    known = {f.name for f in dataclasses.fields(Gpu)}
    found = []
    for index, gpu in enumerate(cuda or nvml):
        facts = {
            **gpu,
            **{k: v for k, v in by_address.get(gpu["address"], {}).items() if v is not None},
            "index": index,
        }
        facts["throttle"] = tuple(facts.get("throttle", ()))
        found.append(Gpu(**{k: v for k, v in facts.items() if k in known}))
    return tuple(found)


def read(problems: Problems) -> tuple[Driver, tuple[Gpu, ...]]:
    """The driver and the GPUs this process may use."""
    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(ask, name, problems) for name in ("cuda", "nvml")]
        version, is_open = attempt(problems, "driver.kernel_module", module, ("", None))
        devices = attempt(problems, "driver.nodes", nodes, ())
        cache = attempt(problems, "driver.ldconfig", ldconfig, "")
        cuda, nvml = (a.result() for a in asked)
    libcuda = cuda.get("libcuda", "")
    preload = os.environ.get("LD_PRELOAD", "").replace(":", " ").split()
    listed = Path("/etc/ld.so.preload")
    if listed.exists():
        preload += attempt(problems, "driver.preload", lambda: listed.read_text().split(), [])
    table = attempt(problems, "driver.mounts", mount_table, {})
    driver = Driver(
        kernel_module=version,
        open_module=is_open,
        nodes=devices,
        libcuda=libcuda,
        libcuda_size=attempt(problems, "driver.libcuda_size", lambda: os.path.getsize(libcuda) if libcuda else 0, 0),
        libcuda_mounted=under(libcuda, table) != "/" if libcuda else None,
        libcuda_in_ldconfig="libcuda.so.1 " in cache,
        libcuda_linkable=linkable(cache, libcuda, dict(os.environ)),
        cuda=cuda.get("version"),
        cuinit=cuda.get("cuinit"),
        devices=cuda.get("devices"),
        nvml_library=nvml.get("library", ""),
        nvml_code=nvml.get("code"),
        version=nvml.get("driver", ""),
        preload=tuple(preload),
        xids=attempt(problems, "driver.xids", lambda: numbers(kernel_log()), None),
    )
    return driver, merge(cuda.get("gpus", []), nvml.get("gpus", []))
