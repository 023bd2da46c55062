"""xFormers, flash-attn's version and bitsandbytes: the packages that pick a kernel at run time."""

from __future__ import annotations

import re
from collections.abc import Mapping

from verify.doctor import facts_stack
from verify.doctor.entry import Entry


def built(line: str) -> Mapping[str, str] | None:
    """The torch that xFormers names, when it is another than the one it has."""
    found = re.search(r"PyTorch (\S{1,20}) with CUDA.{0,20}\(you have (\S{1,20})\)", line)
    return {"built": found[1], "have": found[2]} if found else {}


ENTRIES = (
    Entry(
        id="flash-attn-outside-xformers-range",
        title="xFormers does not accept this flash-attn",
        layer="libraries",
        rank=21,
        cause="xFormers takes flash-attn {range|in a certain range} and finds {found|another}, so xformers.ops does "
        "not import.",
        fix="Install flash-attn 2.8.2 (the image's wheel; for torch 2.8 it is built from source) or uninstall "
        "flash-attn: xFormers then uses the one inside PyTorch. XFORMERS_IGNORE_FLASH_VERSION_CHECK=1 skips the "
        "question only.",
        command="pip uninstall -y flash-attn",
        text=(
            r"requires flash-attention version (?P<range>[^ ]{1,40}) but got (?P<found>[\w.+-]{1,30}?)\.?(?:\s|$)",
            r"requires flash-attention version",
        ),
        facts=facts_stack.flash_range,
        checks=("stack.flash_attention_range",),
        hides=("xformers-not-loadable", "xformers-no-operator"),
        source=("Soul-AILab/SoulX-LiveAct#12", "facebookresearch/xformers#1295", "facebookresearch/xformers#1339"),
        versions="xFormers 0.0.32",
    ),
    Entry(
        id="xformers-not-loadable",
        title="xFormers' compiled part cannot be loaded",
        layer="libraries",
        rank=22,
        cause="xFormers could not load its compiled part: it was built for {built|another PyTorch or CUDA} (here is "
        "{have|another}), or a library it needs is missing; it reports either as a mismatch of versions.",
        fix="Run `XFORMERS_MORE_DETAILS=1 python -c 'import xformers.ops'` for the loader's own words, then install "
        "the xFormers made for this PyTorch without its dependencies.",
        command="pip install --no-deps --force-reinstall xformers==0.0.32.post2",
        text=(
            r"PyTorch \S{1,20} with CUDA.{0,20}\(you have (?P<have>\S{1,20})\)",
            r"xFormers can't load C\+\+/CUDA extensions",
            r"xFormers was built for",
            r"xformers\S{0,200}_C\.so: undefined symbol",
            r"xFormers\W{0,4}memory[- ]efficient attention.{0,60}won't be available",
            r"need to compile C\+\+ extensions to use xFormers",
        ),
        read=built,
        facts=facts_stack.xformers,
        checks=("stack.xformers_build",),
        hides=("xformers-no-operator", "extension-other-torch"),
        source=("facebookresearch/xformers#1241",),
    ),
    Entry(
        id="xformers-no-operator",
        title="xFormers finds no kernel for this call",
        layer="libraries",
        rank=24,
        cause="None of xFormers' attention kernels was built or can run here.",
        fix="Run `python -m xformers.info`; install the xFormers made for this PyTorch and CUDA, from a wheel.",
        command="pip install --no-deps --force-reinstall xformers==0.0.32.post2; python -m xformers.info",
        weak=(r"no operator found for `?memory_efficient_attention", r"no operator matches the argument"),
        beside=(r"xFormers wasn't build with CUDA", r"operator wasn't built"),
        unless=(
            *(
                r"`?dtype=torch\.float32\S{0,4} \(supported",
                r"device=cpu \(supported",
                r"max\(query\.shape",
                r"requires device with capability < ",
            ),
            *(r"embed(?:ding)?[. ]dim\w{0,8}.{0,40}(?:supported|not multiple)", r"query\.shape\[-1\]"),
        ),
        hides=("xformers-inputs",),
        source=("yangjianxin1/Firefly#258",),
    ),
    Entry(
        id="xformers-inputs",
        title="The inputs fit none of xFormers' kernels",
        layer="program",
        rank=6,
        cause="xFormers has kernels and none takes these inputs: FlashAttention takes float16 and bfloat16 on the "
        "GPU with a head dimension up to 256, others have their own limits; the reasons stand under the error. (fa3 "
        "asks for sm_90: normal on other cards.)",
        fix="Cast query, key and value to float16 or bfloat16, move them to the GPU, and pad the head dimension to "
        "a multiple of 8.",
        text=(r"no operator found for `?memory_efficient_attention", r"no operator matches the argument"),
        fault="program",
        source=("yangjianxin1/Firefly#258",),
    ),
    Entry(
        id="attention-inputs",
        title="The inputs do not fit the attention kernel",
        layer="program",
        rank=7,
        cause="The attention kernel that was asked for does not take inputs of this type, size or device.",
        fix="Cast to float16 or bfloat16, move the tensors to the GPU, or let PyTorch choose the kernel "
        "(torch.nn.functional.scaled_dot_product_attention without a forced backend).",
        text=(
            r"flashattention only support fp16 and bf16",
            r"flash ?attention (?:only )?supports? (?:head|fp16|only)",
            r"no available kernel\.? ?(?:aborting execution)?",
            r"flash attention forward only supports head dimension",
            r"flash attention 2(?:\.0)? only supports torch\.float16 and torch\.bfloat16",
            r"flash attention (?:kernel )?not used because",
        ),
        fault="program",
    ),
    Entry(
        id="flash-attn-not-installed",
        title="The program wants flash-attn, which is not installed",
        layer="libraries",
        rank=30,
        cause="The program asks for FlashAttention-2 and the package flash_attn is not installed for this Python.",
        fix="Use the image's Python (/opt/venv/bin/python), which has flash-attn 2.8.2; or build it "
        "(pip install --no-build-isolation), or ask for attn_implementation='sdpa'.",
        command="/opt/venv/bin/python -c 'import flash_attn; print(flash_attn.__version__)'",
        text=(
            r"No module named '?flash_attn'?(?!_)",
            r"flash_attn seems to be not installed",
            r"not found in your environment:.{0,80}flash_attn",
            r"flash_attn.{0,40}(?:is not|isn't) (?:installed|available)",
            r"requires? (?:the )?(?:package )?flash[-_]attn.{0,60}(?:to be )?install",
        ),
        hides=("stack-package-missing",),
    ),
    Entry(
        id="bitsandbytes-binary-missing",
        title="bitsandbytes has no binary for this CUDA",
        layer="libraries",
        rank=25,
        cause="bitsandbytes picks its library by PyTorch's CUDA version and has none for it{file|}, or loaded the "
        "one for the CPU because it saw no GPU.",
        fix="Upgrade bitsandbytes, or set BNB_CUDA_VERSION to the nearest it ships (`ls` shows them); first make "
        "sure that torch.cuda.is_available() is True.",
        command="pip install -U bitsandbytes; python -m bitsandbytes",
        text=(
            r"configured CUDA binary not found at",
            r"libbitsandbytes_(?:cuda\d{2,3}|cpu)\S{0,20}(?:: (?:cannot|undefined)|.{0,20}not found| does not exist)",
            r"CUDA Setup failed despite (?:GPU|CUDA) being available",
            r"has no attribute 'cget_managed_ptr'",
            r"bitsandbytes was compiled without GPU support",
            r"undefined symbol: cget_\w{1,40}",
            r"required library version not found: libbitsandbytes",
            r"could not find the bitsandbytes CUDA binary",
            r"no module named 'bitsandbytes\.cuda_setup",
            r"attempted to use bitsandbytes native library functionality but it's not available",
        ),
        read=lambda line: {"file": ""},
        facts=facts_stack.bitsandbytes,
        checks=("stack.bitsandbytes_binary",),
        source=("bitsandbytes-foundation/bitsandbytes#1848",),
    ),
)
