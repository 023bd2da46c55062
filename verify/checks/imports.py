"""Every package the image is made of can be imported, and says nothing while it is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache

from verify import child
from verify.core import Outcome, check, fail, pass_, skip, warn
from verify.machine import Machine
from verify.scratch import RECORDED

# Distribution → what is imported of it. Three groups, one process each: importing torch takes seconds, and a crash of
# one package must leave the others judged. setuptools comes first in its process, as it replaces distutils.
GROUPS: tuple[Mapping[str, tuple[str, ...]], ...] = (
    {
        "torch": ("torch",),
        "torchvision": ("torchvision",),
        "torchaudio": ("torchaudio",),
        "triton": ("triton",),
        "flash-attn": ("flash_attn",),
        "xformers": ("xformers", "xformers.ops"),
    },
    {
        "safetensors": ("safetensors",),
        "transformers": ("transformers",),
        "accelerate": ("accelerate",),
        "diffusers": ("diffusers",),
        "bitsandbytes": ("bitsandbytes",),
    },
    {
        "setuptools": ("setuptools",),
        "numpy": ("numpy",),
        "einops": ("einops",),
        "tqdm": ("tqdm",),
        "matplotlib": ("matplotlib.pyplot",),
        "tensorboard": ("tensorboard",),
        "jupyterlab": ("jupyterlab",),
        "ipywidgets": ("ipywidgets",),
        "nvidia-ml-py": ("pynvml",),
        "rich": ("rich",),
        "jinja2": ("jinja2",),
        "ninja": ("ninja",),
        "packaging": ("packaging",),
        "wheel": ("wheel",),
        "pip": ("pip",),
    },
)
MARK = "\x1e"
IMPORT = f"""
import importlib, sys
from verify.child import answer
said = {{}}
for name in sys.argv[1:]:
    print("{MARK}" + name, file=sys.stderr, flush=True)
    said[name] = None
    answer(said)
    try:
        module = importlib.import_module(name)
        said[name] = ""
        if name == "xformers" and (bad := module._cpp_lib._cpp_library_load_exception):
            said[name] = f"its extension does not load: {{bad.__cause__ or bad}}"
    except BaseException as error:
        said[name] = f"{{type(error).__name__}}: {{error}}"
    answer(said)
"""
# Output that is no fault, and why.
BENIGN = {
    "kernels-community": "bitsandbytes offers faster CPU kernels from an optional package",
    "No CUDA runtime is found": "there is no GPU on this machine",
    "Can't initialize NVML": "NVML is not mounted; CUDA does without",
    "Setuptools is replacing distutils": "Python before 3.12 still has a distutils of its own, and pip imports it",
}


@dataclass(frozen=True)
class Imported:
    """How one import ended: `error` is "" when well; `output` is what it wrote to stderr."""

    module: str
    error: str
    output: str


def load(names: tuple[str, ...], timeout: float = 240.0) -> list[Imported]:
    """Import `names` in one process, and what is left in a new one when one of them ends it."""
    found: list[Imported] = []
    left = list(names)
    while left:
        ended, said = child.python(IMPORT, *left, timeout=timeout, env={"MPLBACKEND": "Agg"})
        outputs = dict(part.partition("\n")[::2] for part in ended.stderr.split(MARK)[1:])
        said = said if isinstance(said, dict) else {left[0]: None}
        for name in said:
            error = said[name]
            if error is None:
                error = f"the process ended by {ended.ending[1] or 'exit code 0'}"
            found.append(Imported(name, str(error), outputs.get(name, "").strip()))
        left = [n for n in left if n not in said]
    return found


@cache
def load_all(groups: tuple[tuple[str, ...], ...]) -> tuple[Imported, ...]:
    """All groups, two processes at a time; once per run."""
    with ThreadPoolExecutor(2) as pool:
        return tuple(one for group in pool.map(load, groups) for one in group)


def wanted(m: Machine) -> tuple[tuple[str, ...], ...]:
    """What to import here: of the lock inside the image, of what is installed elsewhere."""
    known = ((m.image or {}).get("lock") or {}).get("packages") or m.python.packages
    chosen = [tuple(name for dist, names in group.items() if dist in known for name in names) for group in GROUPS]
    return tuple(names for names in chosen if names)


@check(timeout=600)
def packages(m: Machine) -> Outcome:
    """Every package of the stack can be imported."""
    if m.recorded:
        return skip(RECORDED)
    groups = wanted(m)
    if not groups:
        return skip(f"Nothing of the stack is installed for {m.python.executable}.", hint=m.remedy("torch"))
    return judge(load_all(groups))


def judge(found: Iterable[Imported]) -> Outcome:
    """A failure names each package that cannot be imported, and the guilty one."""
    listed = list(found)
    bad = [i for i in listed if i.error]
    if not bad:
        return pass_(f"{len(listed)} modules import.", data={"modules": [i.module for i in listed]})
    texts = [f"{blame(i)}: {last_line(i.error)}" for i in bad]
    first = bad[0]
    return fail(
        f"{'; '.join(texts[:4])}.",
        hint=remedy(culprit(first), first.error),
        data={i.module: {"error": i.error, "output": i.output[-2000:]} for i in bad},
    )


def last_line(text: str) -> str:
    """The line of an error that says most: its first, without a full stop."""
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    return (lines[0] if lines else "no text").rstrip(".")[:300]


def culprit(one: Imported) -> str:
    """The package to blame: xformers.ops imports flash_attn and falls with it."""
    blamed = re.search(r"flash_attn|Flash-Attention version", one.error)
    return "flash_attn" if blamed and one.module.startswith("xformers") else one.module


def blame(one: Imported) -> str:
    """The subject of the sentence about a failed import."""
    guilty = culprit(one)
    because = "" if guilty == one.module else f" because of {guilty}"
    return f"{one.module} cannot be {'used' if 'extension does not load' in one.error else 'imported'}{because}"


def remedy(name: str, error: str) -> str:
    """What to do about one failed import."""
    if "Requires Flash-Attention version" in error:
        return "Install flash-attn 2.8.2 (the image's wheel), or uninstall it: xFormers then uses the one inside torch."
    if re.search(r"libcu[a-z]+\.so|libnv|libnccl|nvJitLink|undefined symbol: nccl", error):
        return "Reinstall the nvidia-* wheels that torch pins, and clear LD_LIBRARY_PATH and LD_PRELOAD."
    if "undefined symbol" in error or "does not load" in error or "torchvision::nms" in error:
        return (
            f"{name} was built for another torch; reinstall the version of the lock with --no-deps --force-reinstall."
        )
    if "compiled using NumPy 1" in error or "numpy.core" in error:
        return f"{name} needs an older NumPy; upgrade {name}, or pin numpy<2."
    if found := re.search(r"GLIBC\w*_[\d.]+", error):
        return f"The wheel of {name} needs {found[0]}, newer than this system; use the image's base or a source build."
    if "No module named" in error:
        return f"Install {name} again with its requirements; `pip check` names what is missing."
    return f"`python -c 'import {name}'` shows the whole trace; reinstall {name} in the version of the lock."


@check(timeout=600)
def quiet(m: Machine) -> Outcome:
    """Nothing is printed while packages are imported: a warning there is the first sign of a mismatch."""
    if m.recorded:
        return skip(RECORDED)
    return judge_output(load_all(wanted(m)))


def judge_output(found: Iterable[Imported]) -> Outcome:
    """A warning with the first words of each package that spoke, what is known to be no fault left out."""
    loud = {i.module: lines for i in found if not i.error and (lines := noise(i.output))}
    if loud:
        texts = [f"{name}: {lines[0][:200]}" for name, lines in loud.items()]
        return warn(
            f"Imports print warnings: {'; '.join(texts[:4])}",
            hint="Read them in full in the JSON report; they usually name two versions that do not fit.",
            data=loud,
        )
    return pass_("Imports are quiet.")


def noise(output: str) -> list[str]:
    """The lines of an import's output that are not known to be harmless."""
    left, harmless = [], False
    for line in output.splitlines():
        # Python shows the line of code below a warning.
        harmless = any(b in line for b in BENIGN) or (harmless and line.strip().startswith("warnings.warn("))
        if line.strip() and not harmless:
            left.append(line.strip())
    return left
