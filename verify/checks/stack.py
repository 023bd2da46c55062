"""The versions of the Python stack: against the lock, against each other, and what really gets loaded."""

from __future__ import annotations

import re

from verify import child
from verify.core import Outcome, check, fail, pass_, skip, warn
from verify.doctor.facts_stack import stable_abi
from verify.machine import Machine
from verify.scratch import RECORDED

# torch → torchvision, torchaudio, triton (pytorch/vision and pytorch/audio release tables, torch's own wheel pins).
FAMILY = {
    "2.6": ("0.21", "2.6", "3.2"),
    "2.7": ("0.22", "2.7", "3.3"),
    "2.8": ("0.23", "2.8", "3.4"),
    "2.9": ("0.24", "2.9", "3.5"),
}
RELATIVES = ("torchvision", "torchaudio", "triton")
FLASH_RANGE = ("2.7.1", "2.8.2")  # xFormers 0.0.32, xformers/ops/fmha/flash.py
AGAIN = "pip install --no-deps --force-reinstall"

RUNTIME = """
import torch
from verify.child import answer
said = {"torch": torch.__version__, "cuda": torch.version.cuda, "abi": torch.compiled_with_cxx11_abi()}
answer(said)
said["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
answer(said)
said["cudnn"] = torch.backends.cudnn.version()
answer(said)
"""


def public(version: str) -> str:
    """A version without its local part: 2.8.0+cu128 → 2.8.0."""
    return version.partition("+")[0]


def release(version: str) -> tuple[int, ...]:
    """The numbers of a version, for comparing: 2.8.0.post2 → (2, 8, 0)."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(n) for n in found[0].split(".")) if found else ()


@check(needs="image")
def lock(m: Machine) -> Outcome:
    """Every locked package is installed in the locked version.

    Packages beside the lock are no fault: people install their own.
    """
    locked = ((m.image or {}).get("lock") or {}).get("packages") or {}
    if not locked:
        return fail("The image's description holds no locked versions.", hint="Build the image again (make image).")
    absent = [n for n in locked if not m.package(n)]
    other = [n for n in locked if m.package(n) and public(m.package(n)) != public(locked[n])]
    if absent or other:
        texts = [f"{n} {m.package(n)} instead of {locked[n]}" for n in other] + [f"{n} is missing" for n in absent]
        again = " ".join(f"{n}=={public(locked[n])}" for n in [*other, *absent][:6])
        return fail(
            f"The stack is not the locked one: {_some(texts)}.",
            hint=f"Something replaced them after the build; {AGAIN} {again}, or start from the image again.",
            data={"other": {n: [m.package(n), locked[n]] for n in other}, "missing": absent},
        )
    return pass_(f"All {len(locked)} locked packages are as locked.", data={"packages": len(locked)})


def _some(texts: list[str], most: int = 4) -> str:
    rest = f"; and {len(texts) - most} more" if len(texts) > most else ""
    return "; ".join(texts[:most]) + rest


@check(needs="torch")
def torch_build(m: Machine) -> Outcome:
    """torch is a CUDA build."""
    version = m.package("torch")
    if "+cpu" in version or not m.python.torch_cuda:
        return fail(
            f"torch {version} was built without CUDA.",
            hint=f"A later pip install replaced it: {AGAIN} torch=={public(version)}, from the index of the image.",
        )
    return pass_(f"torch {version}, built with CUDA {m.python.torch_cuda} (its runtime, not the toolkit's version).")


@check(needs="torch")
def family(m: Machine) -> Outcome:
    """torchvision, torchaudio and triton belong to this torch."""
    version = m.package("torch")
    wanted = FAMILY.get(".".join(version.split(".")[:2]))
    if wanted is None:
        # A torch newer than the table: the packages' own requirements decide.
        unmet = [c for c in m.python.conflicts if c.startswith(RELATIVES) or (c.startswith("torch ") and "triton" in c)]
        if unmet:
            return fail(f"{_some(unmet)}.", hint=f"Install the releases made for torch {public(version)} with {AGAIN}.")
        return pass_(f"torch {version} and its relatives require each other in the versions installed.")
    pairs = [(n, m.package(n), w) for n, w in zip(RELATIVES, wanted, strict=True)]
    bad = [(n, has, w) for n, has, w in pairs if has and not has.startswith(f"{w}.")]
    if bad:
        texts = [f"{n} {has} does not belong to torch {public(version)}, {w} does" for n, has, w in bad]
        return fail(f"{_some(texts)}.", hint=f"{AGAIN} {' '.join(f'{n}=={w}.*' for n, _, w in bad)}")
    if not m.package("triton"):
        return fail(
            "triton is not installed, so torch.compile has no GPU backend.", hint=f"{AGAIN} triton=={wanted[2]}.*"
        )
    return pass_(f"torch {public(version)} with " + ", ".join(f"{n} {has}" for n, has, _ in pairs if has) + ".")


@check(needs="torch")
def torch_pins(m: Machine) -> Outcome:
    """The CUDA libraries that torch pins are installed in exactly those versions.

    cuBLAS, cuDNN, NCCL and nvJitLink come as wheels of their own; another version of one breaks the import or, worse,
    only some calls.
    """
    bad = [line for line in m.python.conflicts if line.startswith("torch ")]
    pins = [r for r in m.python.requires.get("torch", ()) if r.startswith("nvidia-")]
    if bad:
        wanted = [found[0] for line in bad if (found := re.search(r"[\w-]+==[\w.]+", line))]
        return fail(f"{_some(bad)}.", hint=f"{AGAIN} {' '.join(wanted) or 'what torch requires'}", data={"bad": bad})
    if "python.conflicts" in m.problems:
        return skip(f"Requirements could not be read: {m.problems['python.conflicts']}.")
    return pass_(f"{len(pins)} CUDA wheels are as torch {public(m.package('torch'))} pins them.")


@check(needs=("torch", "xformers"))
def xformers_build(m: Machine) -> Outcome:
    """xFormers was built for this very torch."""
    mine = public(m.package("torch")) + (f"+cu{m.python.torch_cuda.replace('.', '')}" if m.python.torch_cuda else "")
    built, version = m.python.xformers_torch, m.package("xformers")
    if not built:
        return fail(
            f"xFormers {version} does not say for which torch it was built: it has no compiled part.",
            hint=f"{AGAIN} xformers=={version}, taking a wheel, not the sources.",
        )
    # The Python version in the same file is no fault: the extension uses the stable ABI.
    if stable_abi(m):
        return pass_(f"xFormers {version} was built for torch {built} with its stable ABI, here is torch {mine}.")
    if built != mine:
        return fail(
            f"xFormers {version} was built for torch {built}, here is torch {mine}: its extension will not load.",
            hint=f"Install the xFormers made for torch {public(mine)} (for 2.8.0: {AGAIN} xformers==0.0.32.post2).",
        )
    return pass_(f"xFormers {version} was built for torch {built} ({m.python.xformers_archs}).")


@check(needs=("xformers", "flash_attn"))
def flash_attention_range(m: Machine) -> Outcome:
    """xFormers accepts the FlashAttention that is installed.

    `import xformers.ops` imports any flash_attn and raises outside its range. Ready-made wheels for torch 2.8 start at
    2.8.3, which xFormers 0.0.32 refuses.
    """
    low, high = m.python.xformers_flash_min or FLASH_RANGE[0], m.python.xformers_flash_max or FLASH_RANGE[1]
    version = m.package("flash-attn")
    if release(low) <= release(version) <= release(high):
        return pass_(f"flash-attn {version} is within xFormers' {low} to {high}.")
    if m.env.get("XFORMERS_IGNORE_FLASH_VERSION_CHECK") == "1":
        return warn(
            f"flash-attn {version} is outside xFormers' {low} to {high}; the check is switched off by the environment.",
            hint=f"Test the path that is used, or install flash-attn {high}.",
        )
    return fail(
        f"flash-attn {version} is outside the {low} to {high} xFormers {m.package('xformers')} accepts: xformers.ops "
        "will not import.",
        hint=f"Install flash-attn {high} (the image's wheel; for torch 2.8 it is built from source), or uninstall it: "
        "xFormers then uses the one inside torch.",
    )


@check(needs=("torch", "bitsandbytes"))
def bitsandbytes_binary(m: Machine) -> Outcome:
    """bitsandbytes carries a binary for torch's CUDA version.

    It takes the file by torch's version; without a GPU it loads its CPU library and the gap stays hidden.
    """
    wanted = m.env.get("BNB_CUDA_VERSION") or m.python.torch_cuda.replace(".", "")
    there = m.python.bitsandbytes_cuda
    if wanted not in there:
        near = max((v for v in there if v <= wanted), default=there[-1] if there else "")
        return fail(
            f"bitsandbytes has no binary for CUDA {wanted}, only for {', '.join(there) or 'none'}.",
            hint=f"Upgrade bitsandbytes, or set BNB_CUDA_VERSION={near}." if near else f"{AGAIN} bitsandbytes",
        )
    return pass_(f"bitsandbytes {m.package('bitsandbytes')} has a binary for CUDA {wanted}.")


@check()
def requirements(m: Machine) -> Outcome:
    """Every installed package finds what it requires (what `pip check` says)."""
    if "python.conflicts" in m.problems:
        return skip(f"Requirements could not be read: {m.problems['python.conflicts']}.")
    if m.python.conflicts:
        return fail(
            f"{_some(list(m.python.conflicts))}.",
            hint="Install the version asked for, or remove the package that asks; `pip check` shows them all.",
            data={"conflicts": list(m.python.conflicts)},
        )
    return pass_(f"{len(m.python.packages)} packages, no conflict.")


def cudnn_version(code: int) -> str:
    """cudnnGetVersion as text: 91002 → 9.10.2 (cuDNN 9: major * 10000 + minor * 100 + patch)."""
    return f"{code // 10000}.{code % 10000 // 100}.{code % 100}"


@check(needs="torch", timeout=150)
def runtime_libraries(m: Machine) -> Outcome:
    """The cuDNN and NCCL that get loaded are those of the installed wheels.

    Asked in a process of its own: a foreign cuDNN part on LD_LIBRARY_PATH aborts the process that loads it.
    """
    if m.recorded:
        return skip(RECORDED)
    ended, said = child.python(RUNTIME, timeout=120)
    said = said if isinstance(said, dict) else {}
    name, phrase = ended.ending
    if name:
        words = next((line for line in reversed(ended.tail.splitlines()) if line.strip()), "")
        foreign = "libcudnn" in ended.tail or "cudnn" in words
        step = (
            "import torch" if "torch" not in said else "ask for the cuDNN version" if "nccl" in said else "ask for NCCL"
        )
        hint = "Take the folder that holds this library out of LD_LIBRARY_PATH and LD_PRELOAD, then run it again."
        if not foreign:
            hint = "Reinstall what the last line names; LD_DEBUG=libs python -c 'import torch' shows what is loaded."
        return fail(f"Trying to {step} ended by {phrase}: {words[:300]}", hint=hint, data={"output": ended.tail})
    return compare_runtime(m, said)


def compare_runtime(m: Machine, said: dict[str, object]) -> Outcome:
    """`said`: torch, cuda, nccl (text), cudnn (number), as the running torch tells them."""
    cudnn, nccl = cudnn_version(int(str(said["cudnn"]))), str(said["nccl"])
    wheels = {"cuDNN": (cudnn, m.package("nvidia-cudnn-cu12")), "NCCL": (nccl, m.package("nvidia-nccl-cu12"))}
    bad = [
        f"{n} {has} is loaded, the wheel is {wheel}"
        for n, (has, wheel) in wheels.items()
        if wheel and release(has) != release(wheel)[: len(release(has))]
    ]
    if bad:
        return fail(
            f"{_some(bad)}.",
            hint="Take the foreign library out of LD_LIBRARY_PATH and LD_PRELOAD, or reinstall the wheel torch pins.",
            data=said,
        )
    loaded = ", ".join(f"{n} {has}" for n, (has, _) in wheels.items())
    return pass_(f"torch {said['torch']} loads {loaded}, as the wheels say.", data=said)
