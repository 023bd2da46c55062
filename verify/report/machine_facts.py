"""The machine as a table of facts for a report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from verify.core import Run
from verify.report.group import cuda, gib

PACKAGES = ("torch", "triton", "xformers", "flash-attn", "transformers", "diffusers", "bitsandbytes")


def card(g: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What is known of one GPU."""
    rows = [("GPU", f"{g.get('name', '?')} ({g['sm']})" if g.get("sm") else str(g.get("name", "?")))]
    rows += [("SMs", str(g["sm_count"]))] if g.get("sm_count") else []
    rows += [("Memory", gib(g["memory"]))] if g.get("memory") else []
    rows += [("Highest SM clock", f"{g['clock_max']} MHz")] if g.get("clock_max") else []
    if g.get("power_limit"):
        default = f", {g['power_default']:g} W by default" if g.get("power_default") else ""
        rows.append(("Power limit", f"{g['power_limit']:g} W{default}"))
    if g.get("pcie_gen_max") and g.get("pcie_width_max"):
        rows.append(("PCIe at most", f"gen {g['pcie_gen_max']} × {g['pcie_width_max']}"))
    return rows


def table(run: Run) -> list[tuple[str, list[tuple[str, str]]]]:
    """(heading, rows) per group; what is not known is left out."""
    m, image = run.machine, run.image or {}
    driver, toolkit, python = m.get("driver", {}), m.get("toolkit", {}), m.get("python", {})
    system, box = m.get("system", {}), m.get("container", {})
    gpus = m.get("gpus") or []
    graphics = [row for g in gpus[:1] for row in card(g)] or [("GPU", "none")]
    graphics += [("Cards", str(len(gpus)))] if len(gpus) > 1 else []
    cudas = [
        ("Driver", str(driver.get("version") or driver.get("kernel_module") or "none")),
        ("Driver CUDA version", cuda(driver["cuda"]) if driver.get("cuda") else ""),
        ("Runtime CUDA version", str(python.get("torch_cuda") or "")),
        ("Toolkit version", str(toolkit.get("version") or "")),
    ]
    packages = python.get("packages", {})
    stack = [("Python", str(python.get("version", "")))]
    stack += [(name, str(packages[name])) for name in PACKAGES if name in packages]
    base = image.get("base", {})
    cores = box.get("cpu_limit") or system.get("cpus_usable")
    memory = box.get("memory_limit") or system.get("memory")
    host = [
        ("Processor", str(system.get("cpu_model", ""))),
        ("Cores", f"{cores:g}" if cores else ""),
        ("Memory", gib(memory) if memory else ""),
        ("System", f"{system.get('os_id', '')} {system.get('os_version', '')}".strip()),
        ("Kernel", str(system.get("kernel", ""))),
        ("Container", str(box.get("engine", ""))),
    ]
    ours = [
        ("Image", f"{image.get('name', '')} {image.get('version', '')}".strip()),
        ("Target", str(image.get("target", ""))),
        ("Code for", " ".join(image.get("targets", []))),
        ("Base", str(base.get("name", "") if isinstance(base, Mapping) else base)),
    ]
    groups = [("Graphics card", graphics), ("CUDA", cudas), ("Python", stack), ("Image", ours), ("Host", host)]
    kept = [(name, [(k, v) for k, v in rows if v]) for name, rows in groups]
    return [(name, rows) for name, rows in kept if rows]
