"""An extension with CUDA code does not build though the compilers are there."""

from __future__ import annotations

from verify.doctor.entry import Entry

ENTRIES = (
    Entry(
        id="compiler-older-than-gpu",
        title="The CUDA compiler does not know this GPU",
        layer="build",
        rank=7,
        cause="The compiler is asked for code for {arch|a kind of GPU} it does not know: it is older than the card "
        "(sm_89 needs CUDA 11.8, sm_120 12.8) or so new that it dropped it.",
        fix='Ask for an architecture it knows (TORCH_CUDA_ARCH_LIST="8.6" code runs on sm_89), or use another toolkit.',
        command='export TORCH_CUDA_ARCH_LIST="8.6;8.9"; nvcc --list-gpu-code',
        text=(
            r"unsupported gpu architecture '(?P<arch>\S{1,16})'",
            r"value '(?P<arch>sm_\S{1,8})' is not defined for option",
            r"invalid value for --gpu-architecture",
            r"unknown CUDA arch \((?P<arch>\S{1,10})\)",
            r"nvrtc: error: invalid value for --gpu-arch",
            r"LLVM ERROR: Cannot select.{0,60}nvptx",
            r"'?(?P<arch>sm_\d{2,3}a?)'? is not a recognized processor for this target",
        ),
        hides=("extension-build-failed", "jit-failed"),
    ),
    Entry(
        id="arch-list-missing",
        title="The build cannot ask a GPU which code to make",
        layer="build",
        rank=8,
        cause="An extension is built where no GPU is visible (in `docker build`) and no architecture was given, so "
        "PyTorch has an empty list.",
        fix='Set TORCH_CUDA_ARCH_LIST="8.9" (as ARG and ENV of the build) and FORCE_CUDA=1.',
        command='export TORCH_CUDA_ARCH_LIST="8.9" FORCE_CUDA=1',
        weak=(r"IndexError: list index out of range", r"list index out of range"),
        beside=(r"_get_cuda_arch_flags", r"arch_list\[-1\]", r"TORCH_CUDA_ARCH_LIST is not set"),
        source=("rahul-goel/fused-ssim#19",),
        hides=("extension-build-failed",),
    ),
    Entry(
        id="cuda-header-missing",
        title="A header of CUDA is missing",
        layer="build",
        rank=9,
        cause="The build needs {header|a CUDA header}, which is not in the toolkit that is used.",
        fix="Use the devel image, or install the -dev package of that CUDA library; for cutlass fetch the submodules "
        "(`git submodule update --init --recursive`).",
        command="ls $CUDA_HOME/include",
        text=(
            (
                r"fatal error: '?(?P<header>(?:cuda|cu|nv|cub|thrust|cutlass|cute|nccl|curand|npp)[\w+./-]{0,80}\."
                r"(?:h|hpp|cuh))'?"
            ),
            r"cannot open source file \"(?P<header>[\w./-]{1,80})\"",
            (
                r"cannot find -l(?P<header>cudart|cublas\w{0,3}|cusparse|cusolver|cufft|curand|nvrtc|nvToolsExt|nccl"
                r"|cudnn|cupti)\b"
            ),
        ),
        unless=(r"Python\.h", r"pybind11/"),
        hides=("extension-build-failed",),
    ),
    Entry(
        id="compiler-crashed",
        title="The CUDA compiler crashed",
        layer="build",
        rank=10,
        cause="{program|A compiler} ended by a signal of its own: a defect of this version, or of the machine's "
        "memory.",
        fix="Build with one job to see whether it happens again, then with another minor version of the toolkit.",
        text=(
            r"(?P<program>cicc|ptxas|nvcc|cudafe\+\+)'? died due to signal (?!9)\d{1,2}",
            r"internal compiler error: (?!killed)",
        ),
        hides=("extension-build-failed",),
    ),
    Entry(
        id="extension-build-failed",
        title="A package did not build",
        layer="build",
        rank=40,
        cause="A compiled package did not build, and this part of the log does not say why: the first line with "
        "`error:` above does.",
        fix="Run it again with one job and all output (MAX_JOBS=1 pip install -v …), and give the whole log to "
        "`verify doctor`; a ready-made wheel for this PyTorch spares the build.",
        command="MAX_JOBS=1 pip install -v --no-build-isolation PACKAGE 2>&1 | tee build.log",
        text=(
            r"error compiling objects for extension",
            r"ninja: build stopped: subcommand failed",
            r"failed building wheel for (?:flash[-_]attn|xformers|apex|deepspeed|torch\w{0,20}|\w{1,30}cuda\w{0,20})",
            r"could not build wheels for (?:flash[-_]attn|xformers|apex|deepspeed|torch\w{0,20}|\w{1,30}cuda\w{0,20})",
            r"error building extension '\w{1,60}'",
        ),
    ),
)
