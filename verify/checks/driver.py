"""Whether the driver fits the stack, by the true rules: minor versions are compatible, PTX is not."""

from __future__ import annotations

import re

from verify.core import Outcome, Status, check, fail, pass_, skip, warn
from verify.coverage import cuda_isa
from verify.gpu.ask import TIMEOUT, ask
from verify.machine import Machine
from verify.xid import BY_MEMORY, BY_PROGRAM, MENDED, OFF_THE_BUS

# CUDA major → oldest driver branch of its family (CUDA toolkit release notes, table "minor version compatibility").
OLDEST = {11: 450, 12: 525, 13: 580}


def dotted(version: int) -> str:
    """12040 → "12.4"."""
    return f"{version // 1000}.{version % 1000 // 10}"


def number(text: str) -> int:
    """ "12.4.131" → 12040, 0 when there is no version."""
    found = re.match(r"(\d+)\.(\d+)", text)
    return 1000 * int(found[1]) + 10 * int(found[2]) if found else 0


@check(needs=("gpu", "torch"))
def new_enough(m: Machine) -> Outcome:
    """The driver is of the family of torch's CUDA, which is all that machine code needs.

    Any build of CUDA 12.x runs on every driver from 525 on (minor-version compatibility). "The driver's CUDA must not
    be older than torch's" is a false rule: torch of CUDA 12.8 works on driver 550, which is CUDA 12.4.
    """
    have, built = m.driver.cuda, number(m.python.torch_cuda)
    if have is None:
        return skip(f"The driver did not say its CUDA version: {m.problems.get('driver.cuda', 'no answer')}.")
    if not built:
        return fail(
            f"torch {m.package('torch')} was built without CUDA, so no GPU can be used.",
            hint="Install torch in the version of the lock: another index or a later install replaced it.",
        )
    major = built // 1000
    if have // 1000 < major:
        return fail(
            f"torch is built with CUDA {dotted(built)}, the driver {m.driver.version} offers CUDA {dotted(have)}: "
            "another major version.",
            hint=f"Update the host's driver to {OLDEST.get(major, 'a newer branch')} or newer, or install a torch "
            f"built with CUDA {have // 1000}.",
        )
    note = "" if have >= built else ", of one major version: machine code runs, PTX newer than the driver does not"
    return pass_(f"driver CUDA version {dotted(have)}, torch built with {dotted(built)}{note}.")


@check(needs="gpu")
def own_builds(m: Machine) -> Outcome:
    """What nvcc compiles here by the settings of this environment will run on this driver.

    The driver compiles PTX only up to its own ISA version (550: 8.4). Code must then be machine code for this card.
    """
    have, toolkit = m.driver.cuda, number(m.toolkit.version)
    if have is None or not toolkit:
        return skip("There is no toolkit whose code could be too new." if have else "The driver gave no CUDA version.")
    if toolkit <= have:
        return pass_(f"toolkit {dotted(toolkit)}, driver CUDA version {dotted(have)}: its PTX can be compiled too.")
    isa = cuda_isa(have)
    limit = f"ISA {isa[0]}.{isa[1]}" if isa else "its own ISA"
    wanted, sm = m.env.get("TORCH_CUDA_ARCH_LIST", ""), re.sub(r"\D", "", m.gpus[0].sm)
    if wanted and sm and not any(_machine_code(item, int(sm)) for item in re.split(r"[;\s]+", wanted) if item):
        return fail(
            f"TORCH_CUDA_ARCH_LIST={wanted} gives no machine code for sm_{sm}, and toolkit {dotted(toolkit)} writes "
            f"PTX this driver cannot compile (up to {limit}).",
            hint=f"Set TORCH_CUDA_ARCH_LIST={sm[:-1]}.{sm[-1]}, or update the driver.",
        )
    return pass_(
        f"toolkit {dotted(toolkit)} is newer than the driver ({dotted(have)}, PTX up to {limit}): build machine code "
        f"for sm_{sm}, as torch's extensions do."
    )


def _machine_code(item: str, sm: int) -> bool:
    """Whether an entry of TORCH_CUDA_ARCH_LIST ("8.6", "8.0+PTX", "9.0a") gives machine code for `sm`."""
    found = re.fullmatch(r"(\d+)\.(\d)([af]?)(?:\+PTX)?", item)
    if not found:
        return True  # a name such as "Ada": torch's own table decides
    built = 10 * int(found[1]) + int(found[2])
    return built == sm if found[3] else built // 10 == sm // 10 and built <= sm


@check(needs="gpu")
def library(m: Machine) -> Outcome:
    """The libcuda in use is the host driver's own: no stub, no cuda-compat, none brought by the image."""
    d = m.driver
    if "/stubs/" in d.libcuda or 0 < d.libcuda_size < 200_000:
        return fail(
            f"{d.libcuda} ({d.libcuda_size} bytes) is a stub for linking, not a driver.",
            hint="Take the stubs folder out of LD_LIBRARY_PATH and /etc/ld.so.conf.d, then run ldconfig.",
        )
    if "/compat" in d.libcuda and any("GeForce" in g.name for g in m.gpus):
        return fail(
            f"{d.libcuda} is NVIDIA's forward compatibility library, which GeForce cards do not support (error 804).",
            hint="Remove cuda-compat from the image: its folder, its file in /etc/ld.so.conf.d, LD_LIBRARY_PATH.",
        )
    if "/compat" in d.libcuda:
        return pass_(f"{d.libcuda}: forward compatibility, which this card supports.")
    version = re.search(r"libcuda\.so\.(\d+\.\d[\d.]*)$", d.libcuda)
    if version and d.kernel_module and version[1] != d.kernel_module:
        return fail(
            f"libcuda {version[1]} is in use, the kernel module is {d.kernel_module}.",
            hint="Remove driver packages from the image, or reboot a host whose driver was updated while running.",
        )
    if m.container.engine and d.libcuda_mounted is False:
        return warn(
            f"{d.libcuda} is a file of the image, not brought in from the host: it breaks with the host's next driver.",
            hint="Remove libcuda and libnvidia-* from the image and start it with --gpus all.",
        )
    return pass_(f"{d.libcuda or 'libcuda'} is the host driver's.")


@check(needs="gpu")
def requirement(m: Machine) -> Outcome:
    """This driver meets NVIDIA_REQUIRE_CUDA, so that any host with it starts the image."""
    text = m.env.get("NVIDIA_REQUIRE_CUDA", "")
    have = m.driver.cuda
    if not text:
        return pass_("NVIDIA_REQUIRE_CUDA is not set: nothing is asked of the driver.")
    if have is None:
        return skip("The driver gave no CUDA version to compare with NVIDIA_REQUIRE_CUDA.")
    version = m.driver.version or m.driver.kernel_module
    geforce = any("GeForce" in g.name for g in m.gpus)
    if not any(_holds(clause, have, version, geforce) for clause in text.split()):
        short = text if len(text) < 60 else f"{text[:57]}…"
        return fail(
            f"NVIDIA_REQUIRE_CUDA={short} is not met by driver {version} (CUDA {dotted(have)}); hosts that check it "
            "refuse to start this image.",
            hint=f"Set NVIDIA_REQUIRE_CUDA='cuda>={dotted(have)}' in the image, or update the driver.",
        )
    return pass_(f"NVIDIA_REQUIRE_CUDA is met by driver {version} (CUDA {dotted(have)}).")


def _holds(clause: str, cuda: int, version: str, geforce: bool) -> bool:
    """All conditions of a clause ("brand=tesla,driver>=550,driver<551"); any clause is enough.

    Source: nvidia-container-toolkit, NVIDIA_REQUIRE_*. A condition of a kind not known here is taken to hold.
    """
    tests = {">=": cuda.__ge__, ">": cuda.__gt__, "<": cuda.__lt__, "<=": cuda.__le__, "=": cuda.__eq__}
    branch = int(version.split(".")[0]) if version.split(".")[0].isdigit() else 0
    drivers = {">=": branch.__ge__, ">": branch.__gt__, "<": branch.__lt__, "<=": branch.__le__, "=": branch.__eq__}
    for condition in clause.split(","):
        found = re.fullmatch(r"(cuda|driver|brand)(>=|<=|=|<|>)([\w.]+)", condition)
        if not found:
            continue
        kind, sign, value = found.groups()
        if kind == "cuda" and not tests[sign](number(value)):
            return False
        if kind == "driver" and not drivers[sign](int(value.split(".")[0])):
            return False
        if kind == "brand" and geforce != value.startswith("geforce"):
            return False
    return True


@check(needs="gpu")
def errors_logged(m: Machine) -> Outcome:
    """The driver has reported no error of a card (Xid) in the kernel's log since the host was started."""
    if m.driver.xids is None:
        return skip(f"The kernel's log cannot be read here ({m.problems.get('driver.xids', 'not recorded')}).")
    counts = {number: m.driver.xids.count(number) for number in sorted(set(m.driver.xids))}
    text = ", ".join(f"{number}{f' ({times} times)' if times > 1 else ''}" for number, times in counts.items())
    data = {"xids": list(m.driver.xids)}
    if counts.keys() & (OFF_THE_BUS | BY_MEMORY - MENDED):
        return fail(
            f"The driver reported that a card failed: Xid {text}.",
            hint="Results cannot be trusted: `dmesg | grep Xid` on the host names the card, which `verify doctor` "
            "explains; reset or replace it, or ask for another machine.",
            data=data,
        )
    if counts.keys() - BY_PROGRAM:
        return warn(
            f"The driver reported errors: Xid {text}.",
            hint="`dmesg | grep Xid | verify doctor` on the host explains them; watch whether they come back.",
            data=data,
        )
    programs = f"; Xid {text}, which a program's own fault causes" if counts else ""
    return pass_(f"No error of a card in the kernel's log{programs}.", data=data)


@check(needs=("gpu", "torch"), timeout=2 * TIMEOUT)
def machine_code(m: Machine) -> Outcome:
    """torch runs on this card from machine code alone, with the driver's own compiler off.

    All checks of this tier run with CUDA_DISABLE_PTX_JIT=1. What fails for want of that compiler says so; cuFFT alone
    may have it, as it is made to.
    """
    found = ask(m, "devices", "seen")
    if found.status is not Status.PASS:
        return found
    return pass_(f"torch {found.data['torch']} (CUDA {found.data['cuda']}) runs with CUDA_DISABLE_PTX_JIT=1.")
