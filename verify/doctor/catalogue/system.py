"""Libraries of the system: too old, missing, damaged, or loaded in the wrong order."""

from __future__ import annotations

import re
from collections.abc import Mapping

from verify.doctor.entry import Entry

# System libraries that slim images lack, and the Debian package each is in.
DEBIAN = {
    "libGL.so": "libgl1",
    "libEGL.so": "libegl1",
    "libgthread-2.0.so": "libglib2.0-0",
    "libglib-2.0.so": "libglib2.0-0",
    "libSM.so": "libsm6",
    "libX11.so": "libx11-6",
    "libXext.so": "libxext6",
    "libXrender.so": "libxrender1",
    "libxcb.so": "libxcb1",
    "libsndfile.so": "libsndfile1",
    "libgomp.so": "libgomp1",
    "libopenblas.so": "libopenblas0",
    "libnuma.so": "libnuma1",
    "libibverbs.so": "libibverbs1",
    "librdmacm.so": "librdmacm1",
    "libmpi.so": "libopenmpi3",
    "libavutil.so": "ffmpeg",
    "libavcodec.so": "ffmpeg",
    "libsox.so": "libsox-dev",
    "libaio.so": "libaio1",
    "libtcmalloc.so": "libgoogle-perftools4",
    "libffi.so": "libffi8",
    "libpython3": "libpython3-dev",
    "libjpeg.so": "libjpeg62-turbo",
}


def system(line: str) -> Mapping[str, str] | None:
    """The Debian package of a system library that is missing; None for CUDA's and torch's own libraries."""
    found = re.search(r"(lib[\w+.-]{1,60}?\.so(?:\.\d{1,4}){0,4}): cannot open", line)
    if not found or re.match(
        r"lib(?:cud|cu[a-z]{3,9}|nv|nccl|torch|c10|npp|nvidia|tensorrt|triton)", found[1], re.IGNORECASE
    ):
        return None
    package = next((p for name, p in DEBIAN.items() if found[1].startswith(name)), "")
    return {"library": found[1], "debian": package or "the package with this file (`apt-file search`)"}


ENTRIES = (
    Entry(
        id="glibc-too-old",
        title="The system's C library is older than a package needs",
        layer="libraries",
        rank=14,
        cause="{file|A library} needs glibc {version|newer than this system's}: it was built on a newer system.",
        fix="Use a base of that age (Debian 12, Ubuntu 22.04 or newer; the image's own fits), an older release of "
        "the package, or build it here.",
        command="ldd --version",
        text=(
            r"version [`']?GLIBC_(?P<version>[\d.]{3,6})'? not found(?: \(required by (?P<file>[^)]{1,200}))?",
            r"requires? glibc ?(?:>=)? ?(?P<version>2\.\d\d)",
        ),
        source=("dstackai/dstack#2807", "Dao-AILab/flash-attention#1708"),
    ),
    Entry(
        id="libstdcxx-too-old",
        title="The C++ library that is loaded is older than a package needs",
        layer="libraries",
        rank=15,
        cause="{file|A library} needs {version|a newer libstdc++} and an older libstdc++ is found first, in a conda "
        "folder or through LD_LIBRARY_PATH.",
        fix="Take that folder out of LD_LIBRARY_PATH; in conda install libstdcxx-ng from conda-forge, or let the "
        "system's be loaded first.",
        command="unset LD_LIBRARY_PATH; strings $(ldconfig -p | awk '/libstdc\\+\\+.so.6/{print $NF; exit}') | grep "
        "GLIBCXX | tail -1",
        text=(
            (
                r"version [`']?(?P<version>(?:GLIBCXX|CXXABI)_[\d.]{3,8})'? not found(?: \(required by "
                r"(?P<file>[^)]{1,200}))?"
            ),
            r"undefined symbol: \w{1,200}, version (?P<version>(?:CXXABI|GLIBCXX)_[\d.]{3,8})",
        ),
    ),
    Entry(
        id="system-library-missing",
        title="A library of the system is missing in the image",
        layer="libraries",
        rank=16,
        cause="{library|A system library} is not installed in this image.",
        fix="Install {debian|the package with it}: `apt-get update && apt-get install -y --no-install-recommends "
        "…`; for OpenCV opencv-python-headless needs none of these.",
        text=(r"lib[\w+.-]{1,60}\.so[.\d]{0,12}: cannot open shared object file",),
        read=system,
    ),
    Entry(
        id="library-file-broken",
        title="A library file is damaged",
        layer="libraries",
        rank=17,
        cause="{file|A library} is cut short or is no library at all: a download or a copy was interrupted, the "
        "disk was full, or Git LFS left a pointer.",
        fix="Check the room on the disk, then install the package again without the cache.",
        command="pip install --no-cache-dir --force-reinstall --no-deps PACKAGE",
        text=(
            r"(?P<file>\S{1,200}\.so\S{0,12}): (?:file too short|invalid ELF header|ELF load command|ELF file's)",
            r"(?P<file>\S{1,200}\.so\S{0,12}): cannot (?:read file data|apply additional memory protection)",
        ),
    ),
    Entry(
        id="static-tls",
        title="A library was loaded too late for its thread storage",
        layer="libraries",
        rank=18,
        cause="{file|A library} (often libgomp) needs static thread storage and was loaded too late to get any.",
        fix="Import torch, or the package with that library, first; or load it first with LD_PRELOAD.",
        command="LD_PRELOAD={file|libgomp.so.1} python …",
        text=(r"(?P<file>\S{1,200}\.so\S{0,12}): cannot allocate memory in static TLS block",),
    ),
    Entry(
        id="mkl-mismatch",
        title="MKL and its threading library do not fit",
        layer="libraries",
        rank=19,
        cause="Two versions of MKL or of OpenMP meet in one process, as when pip's and conda's packages are mixed.",
        fix="Install torch and numpy by one tool; to go on now set MKL_THREADING_LAYER=GNU (or "
        "KMP_DUPLICATE_LIB_OK=TRUE).",
        text=(
            r"undefined symbol: (?:iJIT_NotifyEvent|mkl_\w{1,40})",
            r"MKL_THREADING_LAYER=INTEL is incompatible",
            r"OMP: Error #15",
            r"Intel MKL FATAL ERROR",
        ),
    ),
    Entry(
        id="processor-too-old",
        title="The processor lacks an instruction the program uses",
        layer="libraries",
        rank=20,
        cause="A compiled package uses an instruction (AVX, AVX2, AVX-512) that this processor, or this virtual "
        "machine, has not.",
        fix="Choose a machine or a CPU model with AVX2 (`lscpu | grep avx2`), or build the package named last here.",
        command="lscpu | grep -o 'avx[0-9a-z_]*' | sort -u",
        text=(r"illegal instruction\b(?! was)", r"SIGILL", r"compiled to use (?:AVX|SSE)\S{0,12} instructions, but"),
        unless=(r"an illegal instruction was encountered",),
    ),
    Entry(
        id="executable-stack",
        title="A library wants an executable stack, which the system refuses",
        layer="libraries",
        rank=19,
        cause="{file|A library} is marked as needing an executable stack; glibc 2.41 (Debian 13) no longer gives it "
        "to a library that is loaded later.",
        fix="Install a newer release of that package, or clear the mark: `patchelf --clear-execstack {file|FILE}`; "
        "GLIBC_TUNABLES=glibc.rtld.execstack=2 gets by until then.",
        command="patchelf --clear-execstack {file|FILE}",
        text=(r"(?:(?P<file>\S{1,200}): )?cannot enable executable stack",),
        versions="glibc 2.41 or newer",
    ),
)
