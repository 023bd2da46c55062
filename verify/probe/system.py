"""Kernel, distribution, processor, memory."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from verify.facts import System
from verify.probe import Problems, attempt


def pairs(text: str, separator: str) -> dict[str, str]:
    """Lines of `key<separator>value`, quotes stripped, the first of a repeated key."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        key, given, value = line.partition(separator)
        if given:
            found.setdefault(key.strip(), value.strip().strip('"'))
    return found


def read(problems: Problems) -> System:
    """The system below the container."""
    release = attempt(problems, "system.os", lambda: pairs(Path("/etc/os-release").read_text(), "="), {})
    cpu = attempt(problems, "system.cpu", lambda: pairs(Path("/proc/cpuinfo").read_text(), ":"), {})
    memory = attempt(problems, "system.memory", lambda: pairs(Path("/proc/meminfo").read_text(), ":"), {})

    def amount(key: str) -> int:
        return int(memory.get(key, "0 kB").split()[0]) * 1024

    return System(
        kernel=platform.release(),
        os_id=release.get("ID", ""),
        os_version=release.get("VERSION_ID", ""),
        libc=attempt(problems, "system.libc", lambda: os.confstr("CS_GNU_LIBC_VERSION") or "", ""),
        arch=platform.machine(),
        cpu_model=cpu.get("model name", ""),
        cpus=os.cpu_count() or 0,
        cpus_usable=attempt(problems, "system.cpus_usable", lambda: len(os.sched_getaffinity(0)), 0),
        memory=amount("MemTotal"),
        memory_available=amount("MemAvailable"),
    )
