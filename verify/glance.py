"""The machine at a glance: the command `gpu`, and the message of the day in login shells.

Neither imports the Python stack nor runs nvidia-smi: versions are read from text files, GPUs are asked for through NVML
in a child process, which a driver that hangs cannot keep longer than its timeout.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

GIB = 2**30
PATIENCE = 1.5  # seconds a login may wait for the driver
WORKSPACE = "/workspace"
USAGE = "usage: gpu\n\nEvery GPU of this container in one line, through NVML. Exit code 1 when there is none.\n"


def gib(size: float | None) -> str:
    """Bytes in GiB, one decimal below 100."""
    return "–" if size is None else f"{size / GIB:.1f}" if size < 100 * GIB else f"{size / GIB:.0f}"


def figure(value: float | None) -> str:
    """A whole number, "–" when the card does not say."""
    return "–" if value is None else f"{value:.0f}"


def cuda(version: int | None) -> str:
    """ " (CUDA 12.4)" of 12040, "" of None."""
    return f" (CUDA {version // 1000}.{version % 1000 // 10})" if version else ""


def row(index: int, gpu: Mapping[str, Any]) -> list[str]:
    """One GPU's cells, below those of HEAD."""
    return [
        str(index),
        str(gpu.get("name", "")),
        str(gpu.get("sm", "")),
        f"{gib(gpu.get('memory_used'))} of {gib(gpu.get('memory'))} GiB",
        f"{figure(gpu.get('busy'))} %",
        f"{figure(gpu.get('clock'))} of {figure(gpu.get('clock_max'))} MHz",
        f"{figure(gpu.get('power'))} of {figure(gpu.get('power_limit'))} W",
        f"{figure(gpu.get('temperature'))} °C",
        figure(gpu.get("processes")),
    ]


HEAD = ["GPU", "name", "target", "memory in use", "busy", "SM clock", "power", "heat", "processes"]


def table(gpus: Sequence[Mapping[str, Any]]) -> str:
    """A header, one line for each GPU, and one for each that is being slowed down."""
    rows = [HEAD, *(row(index, gpu) for index, gpu in enumerate(gpus))]
    widths = [max(len(line[column]) for line in rows) for column in range(len(HEAD))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in rows]
    slowed = [(index, gpu["throttle"]) for index, gpu in enumerate(gpus) if gpu.get("throttle")]
    lines += [f"GPU {index} is slowed down by: {', '.join(why)}" for index, why in slowed]
    return "\n".join(lines)


def gpu(arguments: Sequence[str]) -> int:
    """Print the table; the reason and what to do on stderr when there is no GPU. Gives the exit code."""
    if arguments:
        asked = arguments[0] in {"-h", "--help"}
        print(
            USAGE if asked else f"error: gpu takes no arguments, not {arguments[0]}.",
            end="" if asked else "\n",
            file=sys.stdout if asked else sys.stderr,
        )
        return 0 if asked else 2
    from dataclasses import asdict

    from verify.machine import Machine
    from verify.probe import Problems, attempt, driver, image

    problems: Problems = {}
    said = driver.ask("nvml", problems)
    gpus, version = said.get("gpus", []), said.get("driver", "")
    if not gpus:  # why, or what CUDA shows where NVML does not answer
        facts, found = driver.read(problems)
        m = Machine(driver=facts, gpus=found, image=attempt(problems, "image", image, None))
        if not found:
            print(f"{m.unmet('gpu')} {m.remedy('gpu')} `verify run visibility` says more.", file=sys.stderr)
            return 1
        gpus, version = [asdict(one) for one in found], facts.version or facts.kernel_module
    print(f"driver {version or 'unknown'}{cuda(said.get('cuda'))}")
    print(table(gpus))
    if "driver.nvml" in problems:
        print(f"warning: {problems['driver.nvml']}", file=sys.stderr)
    return 0


def cards(gpus: Sequence[Mapping[str, Any]]) -> str:
    """The GPUs in one line, equal models counted."""
    if not gpus:
        return "none: the command gpu says why"
    names: dict[str, list[Mapping[str, Any]]] = {}
    for one in gpus:
        names.setdefault(f"{one.get('name')} · {one.get('sm')}", []).append(one)
    parts = []
    for name, same in names.items():
        free = [(g["memory"] - g["memory_used"]) for g in same if g.get("memory") and g.get("memory_used") is not None]
        parts.append(
            (f"{len(same)} × " if len(same) > 1 else "")
            + f"{name} · {gib(same[0].get('memory'))} GiB"
            + (f", {gib(min(free))} free" if free else "")
        )
    return "; ".join(parts)


def space(path: str = WORKSPACE) -> str:
    """Free space of the workspace, and whether it outlives the container."""
    try:
        disk = os.statvfs(path)
    except OSError as error:
        return f"{path}: {error.strerror}"
    lost = "" if os.path.ismount(path) else "; no volume: what is written here goes with the container"
    return f"{gib(disk.f_bavail * disk.f_frsize)} of {gib(disk.f_blocks * disk.f_frsize)} GiB free{lost}"


def message(about: Mapping[str, Any], torch: tuple[str, str], said: Mapping[str, Any]) -> list[str]:
    """The message's lines, at most six. `torch` is (version, runtime CUDA version); `said` is NVML's answer."""
    driver = said.get("driver")
    versions = [
        f"toolkit {about['toolkit']}" if about.get("toolkit") else "no toolkit",
        f"runtime {torch[1] or 'unknown'}",
        f"driver {driver}{cuda(said.get('cuda'))}" if driver else "no driver",
    ]
    name = f"{about.get('name', 'workspace')} {about.get('version', '')}".strip()
    return [
        f"{name} · PyTorch {torch[0] or 'missing'} · Python {about.get('python') or sys.version.split()[0]}",
        f"CUDA       {' · '.join(versions)}",
        f"GPU        {cards(said.get('gpus', []))}",
        f"/workspace {space()}",
        "Start      less /workspace/README.md · verify run · gpu      (touch ~/.hushlogin hides this)",
    ]


def motd() -> int:
    """Print the message of the day."""
    from verify.probe import driver, image
    from verify.probe.software import package_folder, search

    about: Mapping[str, Any] = {}
    with suppress(OSError, ValueError, TypeError):
        about = image()
    folder = package_folder("torch")
    text = folder / "version.py" if folder else None
    torch = search(text, r"__version__ = '([^']+)'"), search(text, r"\ncuda\b[^=]*= '([\d.]+)'")
    said = driver.ask("nvml", {}, timeout=PATIENCE) if os.path.exists("/dev/nvidiactl") else {}
    print("\n".join(message(about, torch, said)))
    return 0


if __name__ == "__main__":
    sys.exit(motd() if sys.argv[1:] == ["motd"] else gpu(sys.argv[1:]))
