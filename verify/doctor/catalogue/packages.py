"""Python packages that do not belong together, are missing, or belong to another interpreter."""

from __future__ import annotations

from verify.doctor import facts_stack
from verify.doctor.entry import Entry

STACK = r"torch(?:vision|audio)?|xformers|triton|bitsandbytes|transformers|diffusers|accelerate|safetensors|einops"
ENTRIES = (
    Entry(
        id="torch-replaced",
        title="A later installation replaced PyTorch",
        layer="libraries",
        rank=0,
        cause="{who|A package} wants torch {wanted|of one version} and {have|another} is installed: a later `pip "
        "install` replaced PyTorch with another version or with a build without CUDA.",
        fix="Install everything in one call, or with PIP_CONSTRAINT naming torch==2.8.0; put the stack back with "
        "the command below and let `pip check` be the last word.",
        command="pip install --force-reinstall torch==2.8.0 torchvision==0.23.0 torchaudio==2.8.0 "
        "xformers==0.0.32.post2",
        text=(
            (
                r"(?P<who>[\w.-]{1,60} [\w.+-]{1,30}) (?:requires|has requirement) torch(?P<wanted>[=<>!~][^"
                r" ,]{1,30}).{0,4} but you (?:have|'ll have) torch (?P<have>[\w.+-]{1,30})"
            ),
            r"torch not compiled with CUDA enabled",
            r"(?P<have>2\.\d{1,2}\.\d\+cpu)\b",
            r"(?P<who>[\w.-]{1,60}) [\w.+-]{1,30} depends on torch==(?P<wanted>[\w.+-]{1,20})",
            r"(?P<who>torch(?:vision|audio) [\w.+-]{1,30}) requires torch==(?P<wanted>[\w.+-]{1,20})",
            r"attempting uninstall: torch\b(?!\w)(?!-)",
            r"torch\.version\.cuda\W{1,4}None",
            r"PyTorch was not compiled with CUDA",
        ),
        facts=facts_stack.cpu_build,
        checks=("stack.torch_build", "stack.lock"),
        hides=(
            "xformers-not-loadable",
            "torchvision-mismatch",
            "extension-other-torch",
            "no-matching-wheel",
            "no-gpu-visible",
        ),
        source=(
            "oobabooga/textgen#7581",
            "facebookresearch/xformers#802",
            "AUTOMATIC1111/stable-diffusion-webui#10494",
        ),
    ),
    Entry(
        id="numpy-two",
        title="A package was compiled for NumPy 1 and finds NumPy 2",
        layer="libraries",
        rank=26,
        cause="A compiled package was built for NumPy 1.x and cannot run with NumPy {version|2}; the frame just "
        "above the message names it. PyTorch 2.8 itself runs with NumPy 2.",
        fix="Upgrade that package, or install `numpy<2` for it.",
        command="pip install 'numpy<2'",
        text=(
            r"compiled using NumPy 1\.x cannot be run in(?: NumPy (?P<version>[\d.]{1,8}))?",
            r"_ARRAY_API not found",
            r"numpy\.core\.multiarray failed to import",
            r"numpy\.dtype size changed",
            r"numpy\.ufunc size changed",
            (
                r"module '?numpy'? has no attribute '?(?:float|int|bool|object|complex|str|float_|NaN|Inf|unicode_"
                r"|product|cumproduct|in1d|trapz)\b'?"
            ),
            r"`np\.\w{2,20}` was removed in the NumPy 2",
            r"RuntimeError: numpy is not available",
            r"compiled against (?:NumPy )?(?:C-)?API version 0x\w{1,4} but this version of numpy is",
        ),
        source=("XingangPan/DragGAN#469",),
    ),
    Entry(
        id="numpy-missing",
        title="NumPy is not installed or is damaged",
        layer="libraries",
        rank=27,
        cause="NumPy is not installed for this Python, or two versions of it are mixed in one folder.",
        fix="Install it again: remove every numpy folder of site-packages, then install one.",
        command="pip uninstall -y numpy; pip install --no-cache-dir numpy",
        text=(
            r"failed to initialize NumPy: No module named 'numpy'",
            r"error importing numpy: you should not try to import numpy from its source",
            r"numpy C-extensions failed",
            r"No module named 'numpy\._core",
        ),
    ),
    Entry(
        id="file-shadows-package",
        title="A file of the program hides a package",
        layer="program",
        rank=8,
        cause="A file or folder in the working folder has the name of a package ({name|torch}) and is imported "
        "instead of it.",
        fix="Rename it (and remove its __pycache__), or start the program from another folder.",
        command="python -c 'import {name|torch}; print({name|torch}.__file__)'",
        text=(
            (
                r"partially initialized module '(?P<name>torch|numpy|triton|xformers|transformers|random|copy|types"
                r"|enum|inspect)'"
            ),
            r"failed to load PyTorch C extensions",
            r"No module named 'torch\._C'",
        ),
        fault="program",
    ),
    Entry(
        id="triton-mismatch",
        title="Triton is not the one PyTorch wants",
        layer="libraries",
        rank=23,
        cause="PyTorch 2.8 needs exactly Triton 3.4.0 and finds another, or a damaged one.",
        fix="Install the one torch pins.",
        command="pip install --force-reinstall --no-deps triton==3.4.0",
        text=(
            r"cannot import name '\w{1,40}' from '(?:partially initialized module '?)?triton[\w.]{0,60}",
            r"No module named '?triton\.\w{1,40}",
            r"module 'triton[\w.]{0,40}' has no attribute",
            r"cannot find a working triton installation",
            r"TritonMissing",
            r"triton (?:is )?(?:not installed|not found|not available)",
            r"a matching Triton is not available",
            r"torch \S{1,20} requires triton==(?P<wanted>\S{1,12})",
            r"unexpected keyword argument '?\w{1,40}'?.{0,80}triton",
            r"cannot import name 'triton_key'",
        ),
        facts=facts_stack.triton,
        checks=("stack.family",),
        source=("triton-lang/triton#7835",),
        versions="torch 2.8",
    ),
    Entry(
        id="stack-package-missing",
        title="A package of the stack is not installed for this Python",
        layer="libraries",
        rank=31,
        cause="{name|A package of the stack} is not installed for the Python that ran the program: another "
        "interpreter, virtual environment or kernel than the image's was used.",
        fix="Use the image's Python, /opt/venv/bin/python (in Jupyter: choose its kernel); `which python` shows "
        "which one ran.",
        command="/opt/venv/bin/python -c 'import {name|torch}'; which -a python",
        text=(rf"No module named '?(?P<name>{STACK})'?(?![\w.])",),
        unless=(
            r"pip\s+install",
            r"building wheel",
            r"setup\.py",
            r"pip subprocess",
            r"get_requires_for_build_wheel",
            r"build backend returned",
            r"build_(?:wheel|editable|meta|sdist)",
            r"build-env",
        ),
    ),
    Entry(
        id="python-packages-apart",
        title="Python packages of the stack do not belong together",
        layer="libraries",
        rank=32,
        cause="A package uses a name that {name|another one} does not have in the installed version: one of the two "
        "was changed alone.",
        fix="Put the locked versions back (`verify run stack` names what differs), or upgrade both together; "
        "`pip check` lists what contradicts.",
        command="pip check; verify run stack",
        text=(
            (
                r"cannot import name '\w{1,60}' from '(?:partially initialized module )?'?(?P<name>torch|transformers"
                r"|diffusers|huggingface_hub|accelerate|tokenizers|peft|xformers|torchvision|torchaudio)\b"
            ),
            r"module 'torch(?P<name>\.[\w.]{1,40})?' has no attribute '\w{1,40}'",
            (
                r"AttributeError: module '(?P<name>transformers|diffusers|huggingface_hub|accelerate|torchvision"
                r"|torchaudio)[\w.]{0,40}' has no attribute"
            ),
            (
                r"(?P<name>tokenizers|huggingface[-_]hub|safetensors|accelerate|transformers|peft)\S{1,40} is"
                r" required for a normal functioning of this module"
            ),
            r"No module named '(?P<name>torchvision|transformers|diffusers|huggingface_hub|torch)\.[\w.]{1,60}'",
            r"failed to import (?P<name>transformers|diffusers)\.[\w.]{1,80} because of the following error",
        ),
        unless=(r"partially initialized module 'torch'", r"undefined symbol"),
    ),
    Entry(
        id="weights-only-load",
        title="torch.load refuses a checkpoint that holds more than weights",
        layer="program",
        rank=9,
        cause="Since PyTorch 2.6 torch.load takes weights only; this checkpoint holds other objects.",
        fix="Load it with weights_only=False if you trust its origin, or allow its classes with "
        "torch.serialization.add_safe_globals; safetensors files have no such question.",
        text=(r"weights only load failed", r"weights_only.{0,60}(?:unsupported|not an allowed global)"),
        fault="program",
    ),
    Entry(
        id="checkpoint-damaged",
        title="A checkpoint or weight file is damaged",
        layer="program",
        rank=10,
        cause="A weight file is cut short or not what its name says: an interrupted download, a full disk, or a Git "
        "LFS pointer.",
        fix="Compare its size with the origin's, remove it and fetch it again (for Git: `git lfs pull`).",
        text=(
            r"PytorchStreamReader failed",
            r"failed finding central directory",
            r"error while deserializing header",
            r"HeaderTooLarge",
            r"MetadataIncompleteBuffer",
            r"invalid load key, '",
            r"unexpected EOF, expected \d",
        ),
        fault="program",
    ),
    Entry(
        id="python-too-new-for-package",
        title="A package is too old for this Python",
        layer="libraries",
        rank=33,
        cause="A package uses a part of Python's library that is gone ({name|distutils, imp, pkg_resources}), so it "
        "is too old for this Python or needs setuptools.",
        fix="Upgrade the package, or install setuptools (`pip install 'setuptools<81'` for pkg_resources).",
        command="pip install -U 'setuptools<81'",
        text=(
            r"No module named '(?P<name>distutils|imp|pkg_resources|asyncore|cgi|audioop)'",
            r"module 'pkgutil' has no attribute 'ImpImporter'",
            r"module 'collections' has no attribute '(?:Mapping|Iterable|Callable|MutableMapping)'",
        ),
    ),
    Entry(
        id="protobuf-version",
        title="protobuf is newer than a package's generated code",
        layer="libraries",
        rank=34,
        cause="A package's generated code is older or newer than the protobuf that is installed.",
        fix="Install the protobuf that the package names, or set PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION=python.",
        command="pip install 'protobuf<4'",
        text=(
            r"descriptors cannot (?:not )?be created directly",
            r"detected incompatible protobuf gencode",
            r"cannot import name '(?:builder|runtime_version)' from 'google\.protobuf",
        ),
    ),
)
