"""What the image says about itself (/opt/verify/image.json) against what is in it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from verify.core import Outcome, check, fail, pass_, skip
from verify.machine import Machine
from verify.probe.folders import WORKSPACE
from verify.scratch import RECORDED

SKELETON = Path("/opt/verify/skeleton")
KEYS = ("name", "version", "base", "target", "targets", "driver", "python", "toolkit", "lock", "flash_attn")
REBUILD = "Build the image again (make image); nothing in it should be changed by hand."


@check()
def description(m: Machine) -> Outcome:
    """The image describes itself in a form this program understands."""
    if m.image is None:
        reason = m.problems.get("image", "")
        if not reason or "No such file" in reason:
            return skip(m.unmet("image") or "Not inside the built image.", hint=m.remedy("image"))
        return fail(f"The image's description cannot be read: {reason}.", hint=REBUILD)
    if m.image.get("schema") != 1:
        found = m.image.get("schema")
        return fail(f"The image's description has schema {found!r}, this program reads 1.", hint=REBUILD)
    missing = [k for k in KEYS if k not in m.image]
    if missing:
        return fail(f"The image's description lacks {', '.join(missing)}.", hint=REBUILD)
    odd = [t for t in m.image["targets"] if not re.fullmatch(r"sm_\d{2,3}[af]?", str(t))]
    if odd or not m.image["targets"] or m.image["target"] not in {"devel", "runtime"}:
        return fail(
            f"The image is declared for {m.image['targets']} as {m.image['target']!r}, which is no GPU target.",
            hint="Declare targets as sm_89 and build the image again (make image).",
        )
    base = m.image["base"].get("name", "?")
    return pass_(
        f"{m.image['name']} {m.image['version']}, {m.image['target']}, on {base}, for {m.image['targets'][0]}."
    )


def _image(m: Machine) -> Mapping[str, Any]:
    return m.image or {}


@check(needs="image")
def python(m: Machine) -> Outcome:
    """The Python that runs is the one the image was built with."""
    declared = _image(m).get("python")
    if m.python.version != declared:
        return fail(
            f"Python {m.python.version} ({m.python.executable}) runs, the image was built with {declared}.",
            hint="Run /opt/venv/bin/python; if that is it, the base changed below the stack: build the image again.",
        )
    return pass_(f"Python {m.python.version}.")


@check(needs="image")
def toolkit(m: Machine) -> Outcome:
    """The CUDA toolkit is the declared one in the devel image, and absent from the runtime image."""
    declared, found = _image(m).get("toolkit"), m.toolkit.version
    if _image(m).get("target") == "devel" and not declared:
        return fail("The devel image declares no toolkit.", hint=REBUILD)
    if declared and not m.toolkit.nvcc:
        return fail(f"nvcc is gone; the image has toolkit {declared}.", hint=REBUILD)
    if declared and found != declared:
        why = f" ({m.problems['toolkit.nvcc']})" if "toolkit.nvcc" in m.problems else ""
        own = m.toolkit.nvcc.startswith("/usr/local/cuda")
        return fail(
            f"nvcc ({m.toolkit.nvcc}) is {found or 'of unknown version'}{why}, the image has toolkit {declared}.",
            hint=REBUILD if own else "Set CUDA_HOME=/usr/local/cuda and put /usr/local/cuda/bin first on PATH.",
        )
    return pass_(f"Toolkit {found}." if declared else "No toolkit, as declared.")


@check(needs="image")
def flash_attention(m: Machine) -> Outcome:
    """FlashAttention is the declared build, and its machine code runs on the declared GPUs."""
    about, found = _image(m).get("flash_attn") or {}, m.package("flash-attn")
    variant, version = about.get("variant", "none"), about.get("version") or ""
    if variant == "none":
        if found:
            return fail(
                f"flash-attn {found} is installed, the image was built without it.",
                hint="Uninstall it (pip uninstall flash-attn), or build the image with FLASH_ATTN=full or lean.",
            )
        return pass_("Built without FlashAttention; xFormers uses the one inside torch.")
    if found.split("+")[0] != version.split("+")[0]:
        here = f"flash-attn {found} is installed" if found else "flash-attn is not installed"
        return fail(
            f"{here}, the image has {version} ({variant}).",
            hint=f"Install the image's own wheel again: {about.get('wheel', '')}.",
        )
    numbers = [int(re.sub(r"\D", "", a)) for a in about.get("archs", []) if not a[-1].isalpha()]
    bare = [t for t in _image(m).get("targets", []) if not _covered(int(re.sub(r"\D", "", t)), numbers)]
    if bare:
        return fail(
            f"flash-attn holds {', '.join(about.get('archs', []))}, which does not run on {', '.join(bare)}.",
            hint=f"Build it for {', '.join(bare)} (FLASH_ATTN_ARCHS) and build the image again.",
        )
    without = ", ".join(about.get("disabled", []))
    tail = f", without {without}" if without else ""
    return pass_(f"flash-attn {found}, {variant}, {' '.join(about.get('archs', []))}{tail}.")


def _covered(target: int, archs: list[int]) -> bool:
    """Machine code sm_XY runs on sm_XZ with Z >= Y of the same major (CUDA C Programming Guide)."""
    return any(a // 10 == target // 10 and a <= target for a in archs)


@check(needs="image")
def skeleton(m: Machine) -> Outcome:
    """The image carries the folders an empty /workspace is filled with."""
    if m.recorded:
        return skip(RECORDED)
    missing = [n for n in WORKSPACE if not (SKELETON / n).is_dir()]
    if missing:
        return fail(f"{SKELETON} has no {', '.join(missing)}, so an empty /workspace stays empty.", hint=REBUILD)
    return pass_(f"{SKELETON} has {', '.join(WORKSPACE)}.")
