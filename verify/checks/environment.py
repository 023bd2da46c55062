"""Environment variables that decide whether the driver is mounted, libraries are found and code is compiled."""

from __future__ import annotations

import os
import re
import shutil

from verify.core import Outcome, check, fail, pass_, skip, warn
from verify.machine import Machine
from verify.scratch import RECORDED

# torch.compile takes the name of the user for its cache folder: getpass.getuser's order, then the passwd entry.
USER_VARIABLES = ("LOGNAME", "USER", "LNAME", "USERNAME")
DRIVER_CUDA = {535: (12, 2), 545: (12, 3), 550: (12, 4), 555: (12, 5), 560: (12, 6), 565: (12, 7), 570: (12, 8)}
COMPILE_OFF = ("TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE", "TORCHDYNAMO_SUPPRESS_ERRORS")
OFF = {"", "0", "false", "no"}


@check(needs="image")
def nvidia_variables(m: Machine) -> Outcome:
    """The NVIDIA container runtime is asked for compute and utility on visible devices."""
    seen, given = m.env.get("NVIDIA_VISIBLE_DEVICES"), m.env.get("NVIDIA_DRIVER_CAPABILITIES")
    if seen is None or given is None:
        missing = " and ".join(n for n in ("NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES") if n not in m.env)
        return fail(
            f"{missing} is not set, so the NVIDIA runtime mounts no driver or half of it.",
            hint="Set NVIDIA_VISIBLE_DEVICES=all and NVIDIA_DRIVER_CAPABILITIES=compute,utility.",
        )
    asked = {w.strip() for w in given.split(",")}
    lacking = [w for w in ("compute", "utility") if w not in asked and "all" not in asked]
    if lacking:
        what = {"compute": "libcuda is not mounted", "utility": "NVML is not mounted"}
        return fail(
            f"NVIDIA_DRIVER_CAPABILITIES={given} lacks {' and '.join(lacking)}: {', '.join(what[w] for w in lacking)}.",
            hint="Set NVIDIA_DRIVER_CAPABILITIES=compute,utility.",
        )
    # CDI sets NVIDIA_VISIBLE_DEVICES=void in a container that has its GPUs: the value alone is no fault.
    return pass_(f"NVIDIA_VISIBLE_DEVICES={seen}, NVIDIA_DRIVER_CAPABILITIES={given}.")


@check(needs="image")
def required_cuda(m: Machine) -> Outcome:
    """NVIDIA_REQUIRE_CUDA lets the image start on the driver it is declared for.

    Bases built on a newer CUDA set cuda>=12.8 and are refused by driver 550 before anything of ours runs.
    """
    text = m.env.get("NVIDIA_REQUIRE_CUDA", "")
    declared = str((m.image or {}).get("driver", "550.90.07"))
    branch = int(declared.split(".")[0]) if declared.split(".")[0].isdigit() else 550
    known = max((b for b in DRIVER_CUDA if b <= branch), default=min(DRIVER_CUDA))
    level = DRIVER_CUDA[known]
    if text and not any(_holds(clause, level, branch) for clause in text.split()):
        return fail(
            f"NVIDIA_REQUIRE_CUDA={text} refuses driver {declared}, which offers CUDA {level[0]}.{level[1]}.",
            hint=f"Set NVIDIA_REQUIRE_CUDA='cuda>={level[0]}.{level[1]}' in the image.",
        )
    return pass_(f"NVIDIA_REQUIRE_CUDA={text or '(unset)'} holds for driver {declared}.")


def _holds(clause: str, cuda: tuple[int, int], branch: int) -> bool:
    """Whether all conditions of one clause hold for a GeForce card.

    Clauses are separated by spaces and any of them is enough, conditions by commas (nvidia-container-toolkit,
    "NVIDIA_REQUIRE_*"). A condition of another kind is taken to hold.
    """
    for condition in clause.split(","):
        if found := re.fullmatch(r"cuda>=(\d+)\.(\d+)", condition):
            good = (int(found[1]), int(found[2])) <= cuda
        elif found := re.fullmatch(r"driver(>=|<)(\d+)(?:\..*)?", condition):
            good = branch >= int(found[2]) if found[1] == ">=" else branch < int(found[2])
        elif found := re.fullmatch(r"brand=(\w+)", condition):
            good = found[1] in {"geforce", "geforcertx"}
        else:
            good = True
        if not good:
            return False
    return True


@check()
def library_path(m: Machine) -> Outcome:
    """LD_LIBRARY_PATH leads to no stub and no cuda-compat library.

    torch finds its own libraries before this variable is looked at; libcuda, cuDNN's parts and libstdc++ do follow it.
    /usr/local/cuda/lib64 alone does no harm.
    """
    text = m.env.get("LD_LIBRARY_PATH", "")
    folders = [p for p in text.split(":") if p]
    for word, why in (
        ("stubs", "an empty libcuda (error 34)"),
        ("compat", "error 804 on GeForce cards, 803 on others"),
    ):
        bad = [p for p in folders if word in p.split("/")]
        if bad:
            return fail(
                f"LD_LIBRARY_PATH holds {bad[0]}: its libcuda hides the driver's, which is {why}.",
                hint=f"Take {bad[0]} out of LD_LIBRARY_PATH"
                + (" (use LIBRARY_PATH to link against stubs)." if word == "stubs" else "."),
            )
    return pass_(f"LD_LIBRARY_PATH={text} holds no stub and no cuda-compat." if text else "LD_LIBRARY_PATH is unset.")


@check(needs="image")
def path(m: Machine) -> Outcome:
    """`python` and, where there is a toolkit, `nvcc` are the image's own.

    A login shell and SSH get the same from profile.d.
    """
    if m.recorded:
        return skip(RECORDED)
    search = m.env.get("PATH", "")
    found, own = shutil.which("python", path=search), f"{m.python.prefix}/bin"
    if found is None or os.path.dirname(found) != own:
        return fail(
            f"`python` on PATH is {found or 'nowhere'}, the stack is in {own}.",
            hint=f"Put {own} first on PATH.",
            data={"PATH": search},
        )
    if (m.image or {}).get("target") == "devel" and shutil.which("nvcc", path=search) is None:
        return fail("`nvcc` is not on PATH.", hint="Put /usr/local/cuda/bin on PATH.", data={"PATH": search})
    return pass_(f"`python` is {found}.")


@check(needs="image")
def cuda_home(m: Machine) -> Outcome:
    """CUDA_HOME is the toolkit in the devel image, and unset where there is no toolkit."""
    home, target = m.env.get("CUDA_HOME", ""), (m.image or {}).get("target", "")
    if target != "devel":
        if home and not m.toolkit.nvcc:
            return fail(
                f"CUDA_HOME={home}, yet this image ({target}) has no toolkit.",
                hint="Unset CUDA_HOME, or use the devel image.",
            )
        return pass_(f"CUDA_HOME is {home or 'unset'}; the {target} image carries no toolkit.")
    if not home:
        return fail("CUDA_HOME is not set, so extensions do not find nvcc.", hint="Set CUDA_HOME=/usr/local/cuda.")
    if not m.toolkit.nvcc.startswith(f"{home.rstrip('/')}/"):
        return fail(
            f"CUDA_HOME={home} has no nvcc; the one found is {m.toolkit.nvcc or 'none'}.",
            hint="Set CUDA_HOME=/usr/local/cuda, where the image has its toolkit.",
        )
    return pass_(f"CUDA_HOME={home}, toolkit {m.toolkit.version}.")


@check(about="container")
def user(m: Machine) -> Outcome:
    """The user has a name and a home, which torch.compile needs.

    A user id without a passwd entry and without USER ends torch.compile with "getpwuid(): uid not found", whatever
    TORCHINDUCTOR_CACHE_DIR says (torch 2.8).
    """
    name = m.container.user or next((m.env[v] for v in USER_VARIABLES if m.env.get(v)), "")
    if not name:
        return fail(
            f"User id {m.container.uid} has no name: no passwd entry and none of {', '.join(USER_VARIABLES)} is set.",
            hint="Start the container through its entrypoint, or with -e USER=me -e LOGNAME=me.",
        )
    home = m.disk("home")
    moved = m.disk("TRITON_CACHE_DIR") and m.disk("TORCHINDUCTOR_CACHE_DIR")
    if (home is None or not home.writable) and not moved:
        return fail(
            f"The home folder {home.path if home else '?'} cannot be written; Triton keeps its cache there.",
            hint="Set HOME, or TRITON_CACHE_DIR and TORCHINDUCTOR_CACHE_DIR, to a folder that can be written.",
        )
    return pass_(f"User {name} ({m.container.uid}:{m.container.gid}), home {home.path if home else '?'}.")


@check()
def compile_switches(m: Machine) -> Outcome:
    """No variable turns torch.compile off quietly."""
    found = [f"{n}={m.env[n]}" for n in COMPILE_OFF if m.env.get(n, "").lower() not in OFF]
    if found:
        return fail(
            f"{', '.join(found)} is set: compiled models run eager, and no error says so.",
            hint=f"Unset {', '.join(f.partition('=')[0] for f in found)}.",
        )
    return pass_("torch.compile is not turned off.")


@check(about="container")
def preload(m: Machine) -> Outcome:
    """What the loader is told to preload is there, and is no virtual GPU."""
    if not m.driver.preload:
        return pass_("Nothing is preloaded.")
    listed = ", ".join(m.driver.preload)
    shims = [p for p in m.driver.preload if "vgpu" in p]
    if not m.recorded:
        missing = [p for p in m.driver.preload if p.startswith("/") and not os.path.exists(p)]
        if missing:
            return fail(
                f"{missing[0]} should be preloaded and is not there: every program complains, limits are not enforced.",
                hint="Mount the file again, or take it out of LD_PRELOAD and /etc/ld.so.preload.",
            )
    if shims:
        return warn(
            f"{shims[0]} is preloaded: this is a slice of a GPU, and its memory and speed are not the card's.",
            hint="Judge speed and memory against the slice that was rented.",
        )
    return pass_(f"Preloaded: {listed}.")
