"""A package or an extension does not build: no compiler, the wrong one, missing headers, no memory."""

from __future__ import annotations

from verify.doctor import facts_stack
from verify.doctor.entry import Entry

ENTRIES = (
    Entry(
        id="build-out-of-memory",
        title="The build ran out of memory",
        layer="build",
        rank=1,
        cause="A compiler was killed for lack of memory: one nvcc of FlashAttention takes 3 to 5 GB, and many ran "
        "at once.",
        fix="Build with MAX_JOBS=2 NVCC_THREADS=1 (about 5 GB a job), for one card only, or take a ready-made "
        "wheel; give the builder more memory.",
        command="MAX_JOBS=2 NVCC_THREADS=1 pip install --no-build-isolation flash-attn==2.8.2",
        text=(
            r"(?:cicc|ptxas|nvcc|cc1plus|cudafe\+\+|ptxas)'? died due to signal 9",
            r"fatal error: killed signal terminated program",
            r"internal compiler error: killed",
            r"virtual memory exhausted",
            r"(?:ResourceExhausted|rpc error).{0,80}(?:cannot allocate memory|OOM)",
            r"collect2: fatal error: ld terminated with signal 9",
            r"cc1plus: out of memory allocating",
            r"LLVM ERROR: out of memory",
        ),
        weak=(
            r"^\s{0,80}(?:/bin/(?:ba)?sh: line \d{1,4}:\s{1,4}\d{1,8} )?killed\b",
            r"exit code:? 137",
            r"returned non-zero (?:exit status|code):? (?:137|-9)",
            r"signal: killed",
        ),
        beside=(
            *(r"\bnvcc\b", r"\bcicc\b", r"ninja\b", r"building wheel", r"setup\.py", r"flash[-_]attn", r"cc1plus"),
            *(r"pip install", r"RUN pip", r"building extension", r"MAX_JOBS"),
        ),
        hides=("host-out-of-memory", "extension-build-failed"),
        source=("Dao-AILab/flash-attention#389", "Dao-AILab/flash-attention#2079"),
    ),
    Entry(
        id="nvcc-other-cuda",
        title="nvcc is of another CUDA family than PyTorch",
        layer="build",
        rank=3,
        cause="The nvcc that is found is of CUDA {nvcc|another family} and PyTorch of CUDA {torch|12.8}: extensions "
        "need the same major version. (12.4 with 12.8 is fine.)",
        fix="Set CUDA_HOME to a toolkit of PyTorch's major version (here /usr/local/cuda, 12.4), or install a "
        "PyTorch of nvcc's.",
        command="export CUDA_HOME=/usr/local/cuda PATH=/usr/local/cuda/bin:$PATH; nvcc --version",
        text=(
            (
                r"mismatches the version that was used to compile.{0,200}'(?P<nvcc>\d{1,2}\.\d{1,2})', '"
                r"(?P<torch>\d{1,2}\.\d{1,2})'"
            ),
            (
                r"detected CUDA version \((?P<nvcc>[\d.]{1,6})\) mismatches the version(?:.{0,60}\("
                r"(?P<torch>[\d.]{1,6})\))?"
            ),
            r"mismatches the version that was used to compile",
            (
                r"CUDA version (?P<nvcc>[\d.]{1,6}) does not match the version torch was compiled with "
                r"(?P<torch>[\d.]{1,6})"
            ),
            r"CUDA version.{0,40}(?:does not|doesn't) match.{0,60}(?:torch|pytorch)",
            r"cuda extensions are being compiled with a version of cuda that does not match",
            r"FlashAttention is only supported on CUDA 1[12]",
            r"requires CUDA (?:version )?1\d[.\d]{0,4} (?:and|or) (?:above|newer|later)",
        ),
        checks=("compilers.nvcc_matches_torch",),
        hides=("extension-build-failed",),
        source=("Dao-AILab/flash-attention#1759",),
    ),
    Entry(
        id="no-nvcc",
        title="There is no CUDA compiler (nvcc)",
        layer="build",
        rank=2,
        cause="The package compiles CUDA code and finds no nvcc: a runtime or slim image is used, or CUDA_HOME "
        "points nowhere.",
        fix="Use the devel image (its toolkit is /usr/local/cuda, CUDA_HOME is set), or install a ready-made wheel.",
        command="make image TARGET=devel",
        text=(
            r"CUDA_HOME environment variable is not set",
            r"nvcc was not found",
            r"nvcc: (?:command )?not found",
            r"could not find nvcc",
            r"no such file or directory: '?\S{0,80}nvcc'?",
            r"CUDA_HOME (?:does not exist|is undefined|not found)",
            r"CUDA_?TOOLKIT_ROOT_DIR not found",
            r"no CMAKE_CUDA_COMPILER could be found",
            r"failed to find nvcc",
            r"could NOT find CUDA",
            r"/nvcc\"?: no such file",
            r"please install the CUDA toolkit",
            r"CUDA (?:toolkit|compiler) (?:was |is )?not (?:found|installed)",
        ),
        checks=("environment.cuda_home",),
        hides=("extension-build-failed",),
        source=("Dao-AILab/flash-attention#1229", "Dao-AILab/flash-attention#1220"),
    ),
    Entry(
        id="isolated-build",
        title="The build does not see PyTorch",
        layer="build",
        rank=5,
        cause="pip builds the package in an isolated environment, where PyTorch is not installed, and its setup.py "
        "imports torch.",
        fix="Install torch first, then build with --no-build-isolation (and have ninja, packaging, setuptools and "
        "wheel installed).",
        command="pip install ninja packaging setuptools wheel && pip install --no-build-isolation flash-attn==2.8.2",
        weak=(r"No module named '?(?:torch|packaging|wheel|ninja|setuptools|psutil)\b",),
        beside=(
            *(
                r"pip(?:3)? install",
                r"getting requirements to build wheel",
                r"setup\.py",
                r"pip subprocess",
                r"build-env",
            ),
            *(
                r"get_requires_for_build_wheel",
                r"build backend returned",
                r"build_(?:wheel|editable|meta|sdist)",
                r"failed to build `",
                r"metadata-generation-failed",
                r"building wheel",
                r"build_editable",
                r"--no-build-isolation",
            ),
        ),
        hides=("stack-package-missing", "extension-build-failed"),
        source=("Dao-AILab/flash-attention#246",),
    ),
    Entry(
        id="host-compiler-too-new",
        title="nvcc does not accept this version of g++",
        layer="build",
        rank=6,
        cause="nvcc takes host compilers up to a certain version (12.4: GCC 13), and the g++ it finds is newer.",
        fix="Let it use an older one: `export NVCC_PREPEND_FLAGS='-ccbin g++-13'` (the image does that), or "
        "CUDAHOSTCXX for CMake.",
        command="apt-get install -y g++-13 && export NVCC_PREPEND_FLAGS='-ccbin g++-13' CC=gcc-13 CXX=g++-13",
        text=(
            r"unsupported GNU version",
            r"gcc versions later than \d{1,2} are not supported",
            r"unsupported clang version",
            r"parameter packs not expanded with '?\.\.\.",
            r"error: identifier \"?_Float\d{2,3}\"? is undefined",
            r"exception specification is incompatible with that of previous function",
            r"minimum required version for GCC is",
            r"current installed version of g\+\+ \(\S{1,12}\) is (?:greater|less) than",
        ),
        checks=("compilers.nvcc_host_compiler",),
        hides=("extension-build-failed",),
    ),
    Entry(
        id="python-header-missing",
        title="Python's headers are missing",
        layer="compile",
        rank=2,
        cause="A C file is compiled against Python (Triton does so at run time) and {header|Python.h} is not "
        "installed for this interpreter; Python's own error says CalledProcessError only.",
        fix="Install the headers of exactly this Python (python3-dev, python3.10-dev …); the image has them.",
        command="apt-get install -y python3-dev",
        text=(
            r"(?P<header>Python\.h): no such file",
            r"fatal error: '?(?P<header>Python\.h)'?",
            r"could not find.{0,40}(?P<header>Python\.h)",
            r"missing:? \(?Python3?_INCLUDE_DIRS?",
            r"fatal error: (?P<header>pyconfig\.h|numpy/arrayobject\.h)",
        ),
        facts=facts_stack.no_header,
        checks=("compilers.python_headers",),
        hides=("extension-build-failed", "jit-failed", "no-c-compiler"),
        source=("daydreamlive/scope#84", "theroyallab/tabbyAPI#456"),
    ),
)
