"""torch.compile and Triton: compilers, caches, the name of the user, and what quietly runs uncompiled."""

from __future__ import annotations

import re
from collections.abc import Mapping

from verify.doctor import facts_stack
from verify.doctor.entry import Entry

CACHE = (
    r"(?P<path>[^'\"]{0,200}(?:\.triton|torchinductor|/inductor|/triton|\.cache|huggingface|matplotlib"
    r"|\.nv/|\.config|torch_extensions)[^'\"]{0,120})"
)


def cache(line: str) -> Mapping[str, str] | None:
    """The folder in a line about permissions, when a cache is kept in it."""
    found = re.search(rf"['\"]{CACHE}['\"]", line)
    return {"path": found["path"]} if found else None


ENTRIES = (
    Entry(
        id="no-c-compiler",
        title="There is no C or C++ compiler",
        layer="compile",
        rank=1,
        cause="torch.compile and Triton compile small C and C++ files at run time, and no working gcc, g++ or clang "
        "is found: a runtime image without them, or CC/CXX names one that is not there.",
        fix="Install gcc and g++ (with libc6-dev), or unset CC and CXX; the image's both targets have them.",
        command="apt-get install -y gcc g++ libc6-dev; unset CC CXX",
        text=(
            r"failed to find C compiler",
            r"InvalidCxxCompiler",
            r"no working C\+\+ compiler found",
            r"Compiler: \S{1,40} is not found",
            r"(?:no acceptable C compiler found|No CMAKE_CX?X?_COMPILER could be found)",
            r"(?:gcc|g\+\+|cc|c\+\+|clang)(?:-\d{1,2})?: (?:command )?not found",
            (
                r"no such file or directory: '(?:\S{0,80}/)?(?:gcc|g\+\+|cc|c\+\+|clang|x86_64-linux-gnu-g\S{1,4}"
                r"|nope)(?:-\d{1,2})?'"
            ),
            r"command '?\S{0,60}(?:gcc|g\+\+|cc|c\+\+)'? failed: no such file",
            r"unable to execute '?\S{0,60}(?:gcc|g\+\+|cc)'?: no such file",
            r"error: command '\S{0,60}gcc' failed: no such file",
            r"fatal error: (?:stdio|stdlib|limits|stdint|assert|features)\.h",
            r"cannot execute '?(?:cc1|cc1plus|as)\b",
            r"the C\+\+ compiler is not found",
            r"cannot find (?:crt1\.o|Scrt1\.o|-lc\b)",
        ),
        facts=facts_stack.no_compiler,
        checks=("compilers.c_compiler",),
        hides=("jit-failed", "extension-build-failed"),
        source=("pytorch/pytorch#116696", "jamiepine/voicebox#877"),
    ),
    Entry(
        id="triton-libcuda-not-found",
        title="Triton does not find the driver's library",
        layer="compile",
        rank=3,
        cause="Triton asks the loader's cache (`ldconfig -p`) and LD_LIBRARY_PATH for libcuda.so, and neither knows "
        "it, though CUDA itself may work: the driver's folder is not in the cache.",
        fix="Run `ldconfig` (or `ldconfig FOLDER`) when the container starts, or set TRITON_LIBCUDA_PATH to the "
        "folder with libcuda.so.",
        command="ldconfig; ldconfig -p | grep libcuda",
        text=(
            r"libcuda\.so cannot found",
            r"libcuda\.so (?:cannot be|not) found",
            r"possible files are located at .{0,200}libcuda",
            r"please create a symlink of libcuda\.so",
        ),
        facts=facts_stack.not_in_cache,
        hides=("jit-failed",),
        source=("pytorch/pytorch#107960", "huggingface/text-generation-inference#1330"),
    ),
    Entry(
        id="library-not-linked",
        title="libcuda.so, the name for linking, is missing",
        layer="compile",
        rank=4,
        cause="Triton links with -lcuda, which needs a file named libcuda.so, and only libcuda.so.1 is there: the "
        "driver's files were mounted by hand or by a CDI description without that link.",
        fix="Link libcuda.so to the mounted libcuda.so.1 in the same folder (never to a stub), or set "
        "TRITON_LIBCUDA_PATH to a folder that has both.",
        command="d=$(dirname $(ldconfig -p | awk '/libcuda.so.1/{print $NF; exit}')); ln -s libcuda.so.1 "
        '"$d/libcuda.so"',
        text=(r"cannot find '?-lcuda\b", r"unable to find library -lcuda\b", r"library not found for -lcuda\b"),
        facts=facts_stack.unlinkable,
        hides=("jit-failed", "extension-build-failed"),
        source=("pytorch/pytorch#103417", "pytorch/pytorch#94585"),
    ),
    Entry(
        id="user-without-name",
        title="The user id has no name",
        layer="compile",
        rank=5,
        cause="User id {uid|of this process} has no passwd entry and none of LOGNAME, USER, LNAME, USERNAME is set; "
        "torch.compile names its cache after the user. TORCHINDUCTOR_CACHE_DIR alone does not help in torch 2.8.",
        fix="Start the container through its entrypoint, or with `-e USER=me -e LOGNAME=me` (or a passwd entry).",
        command="docker run -e USER=me -e LOGNAME=me --user 1234 …",
        text=(
            r"getpwuid\(\): uid not found: ?(?P<uid>\d{1,10})",
            r"uid not found",
            r"No username set in the environment",
            r"I have no name!",
            r"cannot find name for user ID (?P<uid>\d{1,10})",
        ),
        facts=facts_stack.nameless,
        checks=("environment.user",),
        hides=("jit-failed",),
        source=("pytorch/pytorch#140765", "vectorize-io/hindsight#3934"),
        versions="torch 2.8",
    ),
    Entry(
        id="cache-not-writable",
        title="A cache folder cannot be written",
        layer="compile",
        rank=6,
        cause="The cache {path|of a library} cannot be written by this user: HOME is / or belongs to someone else, "
        "or the file system is read-only.",
        fix="Set HOME, or TRITON_CACHE_DIR, TORCHINDUCTOR_CACHE_DIR, HF_HOME, XDG_CACHE_HOME and MPLCONFIGDIR, to a "
        "folder this user can write; the image's entrypoint does so.",
        command="export HOME=/tmp/home XDG_CACHE_HOME=/tmp/cache TRITON_CACHE_DIR=/tmp/triton "
        "TORCHINDUCTOR_CACHE_DIR=/tmp/inductor",
        text=(
            r"permission denied: ['\"]",
            r"read-only file system: ['\"]",
            r"is not a writable directory",
            r"there was a problem when trying to write in your cache folder",
            r"PermissionError at \S{0,80}\.cache",
            r"check cache directory permissions",
            r"cannot write to (?:the )?cache",
        ),
        read=lambda line: cache(line) or ({} if re.search(r"writable directory|cache", line) else None),
        facts=facts_stack.unwritable_cache,
        checks=("workspace.caches",),
        hides=("jit-failed", "folder-not-writable", "read-only"),
        source=("foundation-model-stack/fms-hf-tuning#367",),
    ),
    Entry(
        id="ptxas-version",
        title="ptxas and the PTX it is given are of different versions",
        layer="compile",
        rank=7,
        cause="The ptxas that Triton calls is older than the PTX it gets ({have|…}): TRITON_PTXAS_PATH names "
        "another one, or the cache holds PTX of another version.",
        fix="Unset TRITON_PTXAS_PATH (Triton brings its own) and clear Triton's cache.",
        command='unset TRITON_PTXAS_PATH; rm -rf "${TRITON_CACHE_DIR:-$HOME/.triton/cache}"',
        text=(
            r"unsupported \.version (?P<want>\d\.\d); current version is '?(?P<have>\d\.\d)",
            r"cannot find ptxas",
            r"ptxas.{0,40}(?:no such file|permission denied|not found)",
            r"PTXASError",
            r"ptxas fatal\s{0,3}: ",
            r"Internal Triton PTX codegen error",
            r"`?ptxas`? (?:stderr|failed with error code)",
        ),
        unless=(
            r"UNSUPPORTED_PTX_VERSION",
            r"ptxas application ptx input",
            r"value 'sm_",
            r"PTX was compiled with an unsupported",
        ),
        source=("triton-lang/triton#5929", "triton-lang/triton#4576"),
        hides=("jit-failed",),
    ),
    Entry(
        id="noexec-folder",
        title="Compiled code may not be loaded from this folder",
        layer="compile",
        rank=8,
        cause="A library was compiled into a folder that is mounted noexec (Docker's --tmpfs is), so it cannot be "
        "loaded.",
        fix="Mount it with exec (`--tmpfs /tmp:exec`), or move TMPDIR, TRITON_CACHE_DIR and TORCHINDUCTOR_CACHE_DIR "
        "elsewhere.",
        command="docker run --read-only --tmpfs /tmp:exec …",
        text=(
            r"failed to map segment from shared object",
            r"\.so: cannot open shared object file: Operation not permitted",
        ),
        facts=facts_stack.noexec,
        checks=("container.temporary_folder",),
        hides=("jit-failed", "system-library-missing"),
    ),
    Entry(
        id="dynamo-python",
        title="torch.compile does not know this Python",
        layer="compile",
        rank=9,
        cause="torch.compile does not support this version of Python (torch 2.8: 3.9 to 3.13).",
        fix="Use the image's Python, or a newer PyTorch.",
        text=(
            r"(?:dynamo|torch\.compile) is not supported on Python",
            r"python 3\.1\d\+ not yet supported for torch\.compile",
        ),
    ),
    Entry(
        id="jit-failed",
        title="torch.compile or Triton failed to build a kernel",
        layer="compile",
        rank=40,
        cause="The run-time compiler failed and this part of the text does not say why: its own lines (gcc, ld, "
        "ptxas) stand above the Python error or went to another stream.",
        fix="Run again with `TORCH_LOGS=+inductor TORCHDYNAMO_VERBOSE=1` and keep stderr; `verify run compilers` "
        "tries every compiler on its own.",
        command="verify run compilers",
        text=(
            r"BackendCompilerFailed",
            r"torch\._inductor\.exc\.\w{1,40}",
            r"CppCompileError",
            r"backend='inductor' raised",
            r"PassManager::run failed",
            r"CompilationError: at \d{1,5}:\d{1,5}",
            r"CalledProcessError: Command '\[?'\S{0,80}(?:gcc|cc|clang)",
        ),
    ),
)
