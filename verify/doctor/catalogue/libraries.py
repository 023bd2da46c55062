"""Compiled extensions and system libraries that do not fit: another torch, another Python, an older system."""

from __future__ import annotations

import re
from collections.abc import Mapping

from verify.doctor import facts_stack
from verify.doctor.entry import Entry

REBUILD = "pip install --no-cache-dir --no-build-isolation --no-deps --force-reinstall {package|PACKAGE}"
NAMES = {"flash_attn_2_cuda": "flash-attn", "flash_attn_3_cuda": "flash-attn", "libtorchaudio": "torchaudio"}
# Which torch an extension with this undefined symbol was built for; measured against torch 2.8.0's libraries.
BUILT_FOR = (
    (r"SetDeviceEi\b", "PyTorch 2.2 or older"),
    (r"SetDeviceEa\b", "PyTorch 2.3 to 2.7"),
    (r"SetDeviceEab\b", "PyTorch 2.8 or newer, and an older one is here"),
    (r"c10_cuda_check_implementation\w*_ib\b", "PyTorch 2.9 or older, and a newer one is here"),
    (r"c10_cuda_check_implementation\w*_jb\b", "PyTorch 2.10 or newer"),
)


def extension(line: str) -> Mapping[str, str]:
    """The package of the extension in a loader's line, and the torch it was built for."""
    found = re.search(r"([\w.+-]{1,80}?)(?:\.cpython-\w{1,40}|\.abi3)?\.so\b", line)
    module = found[1] if found else ""
    folder = re.search(r"(?:site|dist)-packages/([\w-]{1,60})/", line)
    package = NAMES.get(module) or (folder[1].replace("_", "-") if folder else module.lstrip("_"))
    built = next((said for pattern, said in BUILT_FOR if re.search(pattern, line)), "another PyTorch")
    return {"package": package, "built": built}


def flash(line: str) -> Mapping[str, str] | None:
    """The words of `extension`, when the extension is flash-attn's."""
    return extension(line) if re.search(r"flash_?attn(?!_3/)", line) and "xformers" not in line else None


def other(line: str) -> Mapping[str, str] | None:
    """The words of `extension`, when the extension is neither flash-attn's nor a CUDA library."""
    return None if flash(line) else extension(line)


TORCH_SYMBOL = r"undefined symbol: (?P<symbol>_ZNK?K?\d?\w{0,12}(?:3c10|2at|5torch|4c10d)\w{1,400})"
ENTRIES = (
    Entry(
        id="flash-attn-cxx-abi",
        title="flash-attn was built with the other C++ ABI",
        layer="libraries",
        rank=9,
        cause="flash-attn and PyTorch were built with different C++ ABIs (std::string is laid out differently), so the "
        "extension cannot be loaded; torch 2.8's wheels use cxx11abiTRUE.",
        fix="Take the flash-attn wheel whose name says cxx11abiTRUE for torch 2.8, or build it here; the image's "
        "own wheel fits.",
        command="FLASH_ATTENTION_FORCE_BUILD=TRUE pip install --no-build-isolation --no-cache-dir --no-deps "
        "flash-attn==2.8.2",
        text=(
            r"undefined symbol: (?P<symbol>_ZN\w{1,40}SourceLocationE(?:Ss|NSt7__cxx11)\w{0,300})",
            r"undefined symbol: (?P<symbol>_ZN3c10\w{1,200}(?:E|RK)Ss\b\w{0,100})",
            r"undefined symbol: (?P<symbol>_ZN3c10\w{1,100}NSt7__cxx1112basic_string\w{0,300})",
        ),
        read=flash,
        hides=("flash-attn-other-torch", "extension-other-torch", "xformers-not-loadable", "xformers-no-operator"),
        source=("Dao-AILab/flash-attention#1717",),
    ),
    Entry(
        id="flash-attn-other-torch",
        title="flash-attn was built for another PyTorch",
        layer="libraries",
        rank=10,
        cause="The flash-attn that is installed was built for {built|another PyTorch} and cannot be loaded by this "
        "one; xformers.ops fails with it, because it imports any flash_attn it finds.",
        fix="Install the wheel for this PyTorch without the pip cache, or build it here; uninstalling flash-attn "
        "lets xFormers and transformers use PyTorch's own.",
        command="pip install --no-cache-dir --no-build-isolation --no-deps --force-reinstall flash-attn==2.8.2",
        text=(
            TORCH_SYMBOL,
            r"flash_attn\S{0,80}\.so\S{0,8}: undefined symbol",
            r"No module named '?flash_attn_(?:2|3)_cuda",
            r"cannot import name '?flash_attn_\w{1,40}'? from '?flash_attn",
        ),
        read=lambda line: flash(line) if "flash_attn" in line else None,
        hides=("extension-other-torch", "xformers-not-loadable", "xformers-no-operator"),
        source=("Dao-AILab/flash-attention#1832",),
    ),
    Entry(
        id="extension-cxx-abi",
        title="An extension was built with the other C++ ABI",
        layer="libraries",
        rank=11,
        cause="{package|An extension} and PyTorch were built with different C++ ABIs, so it cannot be loaded; torch "
        "2.8's wheels use the C++11 ABI.",
        fix="Install a wheel of {package|it} for exactly this PyTorch, or build it here.",
        command=REBUILD,
        text=(r"undefined symbol: (?P<symbol>_ZN\w{1,40}SourceLocationE(?:Ss|NSt7__cxx11)\w{0,300})",),
        read=other,
        hides=("extension-other-torch", "xformers-not-loadable"),
    ),
    Entry(
        id="extension-other-torch",
        title="An extension was built for another PyTorch",
        layer="libraries",
        rank=12,
        cause="{package|An extension} was built for {built|another PyTorch} and cannot be loaded by the one that is "
        "installed.",
        fix="Install the release of {package|it} for this PyTorch (torch 2.8.0: torchvision 0.23.0, torchaudio "
        "2.8.0, xformers 0.0.32.post2), or build it here.",
        command=REBUILD,
        text=(
            TORCH_SYMBOL,
            r"lib(?:torch\w{0,12}|c10\w{0,6})\.so: (?:undefined symbol|cannot open shared object)",
            r"undefined symbol: (?P<symbol>_Z\w{0,60}(?:ScalarType|TensorImpl|IValue|AutogradMeta)\w{0,200})",
            r"undefined symbol: (?:aoti_torch|THP|THCudaCheck|__torch)\w{1,60}",
            r"could not load this library: \S{0,200}(?P<package>libtorchaudio|torchvision|libtorchcodec)\S{0,60}",
        ),
        read=other,
    ),
    Entry(
        id="torchvision-mismatch",
        title="torchvision does not belong to this PyTorch",
        layer="libraries",
        rank=11,
        cause="torchvision's compiled part could not be loaded: torch was changed and torchvision was not, or they "
        "come from different indexes.",
        fix="Install the pair that belongs together: torch 2.8.0 with torchvision 0.23.0 (and torchaudio 2.8.0).",
        command="pip install --force-reinstall torch==2.8.0 torchvision==0.23.0 torchaudio==2.8.0",
        text=(
            r"operator torchvision::\w{1,40} does not exist",
            r"couldn't load custom C\+\+ ops",
            r"torchvision/(?:_C|image)\.so: undefined symbol",
            r"torch==\S{1,20} (?:is )?incompatible with torchvision",
            r"no such operator torchvision::",
            r"partially initialized module 'torchvision'.{0,60}extension",
        ),
        facts=facts_stack.torchvision,
        hides=("extension-other-torch",),
        source=("pytorch/vision#8985", "pytorch/pytorch#157648"),
    ),
    Entry(
        id="extension-other-python",
        title="An extension was built for another Python",
        layer="libraries",
        rank=13,
        cause="A compiled package was built for another version of Python than the one that runs.",
        fix="Install it with the Python that runs it (`python -m pip install …`), and do not mix PYTHONPATH of two "
        "versions.",
        command="python -m pip install --force-reinstall --no-deps PACKAGE",
        text=(
            r"undefined symbol: _?Py[A-Z_]\w{1,60}",
            r"Python version mismatch: module was compiled for",
            r"module was compiled for Python \d\.\d{1,2}",
            r"bad magic number in",
            r"\.cpython-3\d{1,2}\S{0,40}\.so: cannot (?:import|load)",
        ),
    ),
)
