"""What a Machine shows of a failure of the Python stack, the compilers or a resource: one sentence, "" for nothing."""

from __future__ import annotations

import re

from verify.machine import UNLIMITED, Disk, Machine

MIB, GIB = 1 << 20, 1 << 30
USER_VARIABLES = ("LOGNAME", "USER", "LNAME", "USERNAME")
CACHES = ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "HF_HOME", "XDG_CACHE_HOME", "PIP_CACHE_DIR")


def conflict(m: Machine, package: str) -> str:
    """What torch asks of `package` and does not get."""
    return next((c for c in m.python.conflicts if c.startswith("torch ") and package in c), "")


def nvjitlink(m: Machine) -> str:
    """nvJitLink is not the one torch pins."""
    return conflict(m, "nvidia-nvjitlink")


def cudnn(m: Machine) -> str:
    """cuDNN is not the one torch pins."""
    return conflict(m, "nvidia-cudnn")


def nccl(m: Machine) -> str:
    """NCCL is not the one torch pins."""
    return conflict(m, "nvidia-nccl")


def triton(m: Machine) -> str:
    """Triton is not the one torch pins."""
    return conflict(m, "triton")


def cpu_build(m: Machine) -> str:
    """torch has no CUDA."""
    version = m.package("torch")
    if version and ("+cpu" in version or not m.python.torch_cuda):
        return f"torch {version} is installed, a build without CUDA"
    return ""


def flash_range(m: Machine) -> str:
    """xFormers does not accept the installed flash-attn."""
    version, high = m.package("flash-attn"), m.python.xformers_flash_max
    if not version or not m.package("xformers") or m.env.get("XFORMERS_IGNORE_FLASH_VERSION_CHECK") == "1":
        return ""
    low = m.python.xformers_flash_min or "2.7.1"
    if high and not numbers(low) <= numbers(version) <= numbers(high):
        return f"flash-attn {version} with xFormers {m.package('xformers')}, which takes {low} to {high}"
    return ""


def numbers(version: str) -> tuple[int, ...]:
    """The numbers of a version, for comparing."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(n) for n in found[0].split(".")) if found else ()


def stable_abi(m: Machine) -> bool:
    """Whether this xFormers uses torch's stable ABI: from 0.0.34 on, built for torch 2.10, good for that and later."""
    built, mine = numbers(m.python.xformers_torch), numbers(m.package("torch"))
    return numbers(m.package("xformers")) >= (0, 0, 34) and (2, 10) <= built[:2] <= mine[:2]


def xformers(m: Machine) -> str:
    """xFormers was built for another torch."""
    built, mine = m.python.xformers_torch, m.package("torch")
    if built and mine and not stable_abi(m) and built.partition("+")[0] != mine.partition("+")[0]:
        return f"xFormers was built for torch {built}, here is {mine}"
    return ""


def torchvision(m: Machine) -> str:
    """torchvision asks for another torch."""
    return next((c for c in m.python.conflicts if c.startswith("torchvision ") and "torch" in c), "")


def bitsandbytes(m: Machine) -> str:
    """bitsandbytes has no binary for torch's CUDA."""
    wanted, there = m.env.get("BNB_CUDA_VERSION") or m.python.torch_cuda.replace(".", ""), m.python.bitsandbytes_cuda
    if m.package("bitsandbytes") and wanted and there and wanted not in there:
        return (
            f"bitsandbytes {m.package('bitsandbytes')} has binaries for {', '.join(there)}, torch is of CUDA {wanted}"
        )
    return ""


def no_compiler(m: Machine) -> str:
    """No C or C++ compiler."""
    missing = [n for n, path in (("gcc", m.toolkit.gcc), ("g++", m.toolkit.gxx)) if not path]
    return f"{' and '.join(missing)} not found" if missing and m.package("torch") else ""


def no_header(m: Machine) -> str:
    """No Python.h."""
    if m.python.include and not m.python.header and m.package("torch"):
        return f"{m.python.include}/Python.h is not there"
    return ""


def nameless(m: Machine) -> str:
    """The user id has no name and no variable gives one."""
    if m.container.user or any(m.env.get(v) for v in USER_VARIABLES):
        return ""
    return f"uid {m.container.uid} has no passwd entry, and {', '.join(USER_VARIABLES)} are unset"


def unwritable_cache(m: Machine) -> str:
    """A folder that caches are kept in cannot be written."""
    bad = [d for n in CACHES if (d := m.disk(n)) and d.total and not d.writable]
    home = m.disk("home")
    if not bad and home and home.total and not home.writable and not m.disk("TRITON_CACHE_DIR"):
        bad = [home]
    return f"{bad[0].name} ({bad[0].path}) cannot be written: {bad[0].problem or 'read-only'}" if bad else ""


def unlinkable(m: Machine) -> str:
    """libcuda.so.1 without libcuda.so."""
    d = m.driver
    return f"{d.libcuda} is here, libcuda.so is not" if d.libcuda and d.cuinit == 0 and not d.libcuda_linkable else ""


def not_in_cache(m: Machine) -> str:
    """A libcuda that the loader's cache does not know."""
    d = m.driver
    if d.libcuda and d.cuinit == 0 and not d.libcuda_in_ldconfig and not m.env.get("TRITON_LIBCUDA_PATH"):
        return f"{d.libcuda} answers, and `ldconfig -p` does not list libcuda.so.1"
    return ""


def compile_off(m: Machine) -> str:
    """A variable that turns torch.compile off."""
    names = ("TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE", "TORCHDYNAMO_SUPPRESS_ERRORS")
    on = [f"{n}={m.env[n]}" for n in names if m.env.get(n, "").lower() not in {"", "0", "false", "no"}]
    return f"{', '.join(on)} is set" if on else ""


def small_shm(m: Machine) -> str:
    """/dev/shm is Docker's default, or full."""
    d = m.disk("shm")
    if d is None or not d.exists:
        return ""
    if d.total <= 64 * MIB:
        return f"/dev/shm has {d.total / MIB:.0f} MiB"
    return f"/dev/shm has {d.free / MIB:.0f} MiB left" if d.free < 16 * MIB else ""


def full(d: Disk) -> bool:
    """Whether nothing more can be written for want of room."""
    return (
        bool(d.total) and not d.readonly and (d.free < 16 * MIB or (d.inodes_free is not None and d.inodes_free < 100))
    )


def full_disk(m: Machine) -> str:
    """The folder that is full."""
    bad = [d for d in m.disks if d.name != "shm" and full(d)]
    return f"{bad[0].path} ({bad[0].mount}, {bad[0].fstype}) has {bad[0].free / MIB:.0f} MiB left" if bad else ""


def noexec(m: Machine) -> str:
    """The temporary folder lets no code run."""
    d = m.disk("tmp")
    return f"{d.path} is mounted noexec" if d and d.noexec and d.writable else ""


def memory_killed(m: Machine) -> str:
    """The kernel killed something here for want of memory."""
    kills, limit = m.container.memory_kills, m.container.memory_limit or m.system.memory
    return (
        f"the kernel killed {kills} process(es) of this container, its memory is {limit / GIB:.0f} GiB" if kills else ""
    )


def memlock(m: Machine) -> str:
    """InfiniBand with a small memlock limit."""
    limit = m.container.memlock
    if m.container.infiniband and limit != UNLIMITED and limit < GIB:
        return f"/dev/infiniband is here and {limit / MIB:.0f} MiB may be locked"
    return ""
