"""Judges device code: does it run on a given card, natively, by compatible code, by the driver's JIT, or not at all?

One container (pure functions, `reach`):
- SASS sm_XY runs on sm_XZ with Z ≥ Y. Not across majors, and not between Jetson and desktop cards (CUDA programming
  guide, "Binary compatibility"). sm_90a runs on sm_90 alone; sm_100f on its family, from its own number up.
- PTX compute_XY runs on every later card, if the driver's compiler knows its ISA version: driver 550 = CUDA 12.4 =
  ISA ≤ 8.4. Architecture- and family-specific PTX has the same limits as such SASS.
- Code of zeros does not count, and hides what is there: the driver chooses by the headers (`pick`).

One library (`judge`): it serves a card when every container that holds a kernel serves it with SASS. Three kinds of
containers may fail to and still be right; they are counted as "other cards", never as served:
1. architecture- or family-specific code only (sm_90a): whoever compiled that meant that card;
2. fat binaries the library keeps in its own data and loads itself (`own_ptx` of them are PTX it has the driver compile,
   which must be PTX that this driver takes);
3. SASS for other cards in a library of `BY_ARCH`: NVIDIA's own, with tuned kernels per architecture and a choice in
   host code (a container of theirs with PTX alone counts as JIT).
At least one container must serve the card in every case, or the library cannot run there, unless `FOR_OTHER_CARDS`
names it. A container that lost code for the card (header there, payload zeros) is a fault in any library. So a library
with only plain sm_90 code fails for sm_89, and so does a torch extension of which one unit was compiled for sm_90 only.

Measured on the stack of torch 2.8.0+cu128 for sm_89 (31 libraries with 6,742 registered fat binaries, 2,428 of them
without a kernel): every container with kernels of torch (393 + 107), torchvision (6), torchaudio (5 + 1), xFormers
(16 + 153) and bitsandbytes (5 or 7 a file) is served with SASS, none needs the JIT. All exceptions are NVIDIA's:
cuBLASLt serves 494 of 1,730 (864 hold sm_90 and sm_120 only), cuDNN's precompiled engines 633 of 926, cuSPARSELt 43 of
112, cuSPARSE 106 of 121, cuBLAS 195 of 200, NCCL 139 of 143 (the others: sm_100a and sm_120a). Eight of cuSPARSE hold
PTX that sm_89 could JIT (blocked-ELL products for 5.x, 6.x, 9.x …): the same products for 7.x and 8.x lie in
containers of their own, which is why these leave such cards out. cuFFT makes its
plans from 358 fat binaries of SASS for sm_89 and 8,115 of nothing but PTX, of ISA 7.0 and 7.5, which every driver of
CUDA 12 compiles (11,151 more of LTO code are for callbacks and run-time linking).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from verify.audit import Code, Group, Inventory, Library

# Driver branch → CUDA version → newest PTX ISA its compiler takes. Source: NVIDIA, Parallel Thread Execution ISA,
# "Release Notes", table "PTX Release History" (edition 9.4).
DRIVER_ISA: tuple[tuple[int, tuple[int, int], tuple[int, int]], ...] = (
    (520, (11, 8), (7, 8)),
    (525, (12, 0), (8, 0)),
    (530, (12, 1), (8, 1)),
    (535, (12, 2), (8, 2)),
    (545, (12, 3), (8, 3)),
    (550, (12, 4), (8, 4)),
    (555, (12, 5), (8, 5)),
    (560, (12, 6), (8, 5)),
    (565, (12, 7), (8, 6)),
    (570, (12, 8), (8, 7)),
    (575, (12, 9), (8, 8)),
    (580, (13, 0), (9, 0)),
    (590, (13, 1), (9, 1)),
    (595, (13, 2), (9, 2)),
    (610, (13, 3), (9, 3)),
    (615, (13, 4), (9, 4)),
)

JETSON = frozenset({53, 62, 72, 87, 101, 110})  # Tegra parts: no binary compatibility with desktop cards
# Same source, table "List of features promoted to family-specific architecture": who belongs together.
FAMILIES = (frozenset({100, 103}), frozenset({101}), frozenset({110}), frozenset({120, 121}))

# Libraries that choose kernels by architecture in host code: start of the file name → what was measured.
BY_ARCH = {
    "libcublas.so": "cuBLAS keeps tuned kernels per architecture (5 of 200 containers without code for sm_89)",
    "libcublasLt.so": "cuBLASLt keeps most matrix kernels per architecture (864 containers for sm_90 and sm_120 only)",
    "libcudnn_cnn.so": "cuDNN keeps Volta/Turing kernels apart (2 of 12 containers)",
    "libcudnn_engines_precompiled.so": "cuDNN's engines are compiled per architecture",
    "libcudnn_engines_runtime_compiled.so": "cuDNN keeps Hopper and Blackwell engines apart (11 of 43 containers)",
    "libcufft.so": "cuFFT loads its kernels by the card (23,531 fat binaries in its own data)",
    "libcusparse.so": "cuSPARSE keeps blocked-ELL kernels per architecture (15 of 135 containers)",
    "libcusparseLt.so": "cuSPARSELt is compiled per architecture",
    "libcusolver.so": "cuSOLVER keeps kernels for sm_90 and later apart (1 of 225 containers)",
    "libcusolverMg.so": "cuSOLVER keeps kernels for sm_90 and later apart (1 of 89 containers)",
}

# Whole files that hold nothing for most cards, on purpose: end of the path → why that is no fault.
FOR_OTHER_CARDS = {
    # In 0.0.32.post2 its Hopper kernels are there for sm_80 as well, but with empty bodies (256 bytes each).
    "xformers/flash_attn_3/_C.so": "FlashAttention-3 is for Hopper; xFormers uses FlashAttention-2 on other cards",
}

# Libraries that hold only PTX for newer cards, old enough for every driver: end of the path → why that is no fault.
OLD_PTX = {
    # Of CUDA 12.8: SASS up to sm_86 and PTX of ISA 7.1, which every driver since 450 compiles.
    "/libcufile.so.0": "GPUDirect Storage compiles its few kernels when it is first used",
}


class Reach(str, Enum):
    """How code gets to run on a card, best first."""

    NATIVE = "runs natively"
    COMPATIBLE = "runs by compatible SASS"
    JIT = "needs PTX JIT"
    NONE = "cannot run"
    NO_CODE = "holds no kernel"


@dataclass(frozen=True)
class Verdict:
    """What one library is on one card. Counts are containers with kernels; the sentences are empty when all is well."""

    library: Library
    target: int
    reach: Reach
    served: int  # by SASS
    other_cards: int
    jit: int  # have PTX for this card and no SASS
    faults: tuple[str, ...] = ()  # no code for this card at all
    refused: tuple[str, ...] = ()  # PTX that this driver does not compile
    note: str = ""  # why code for other cards only is no fault here
    own_ptx: int = (
        0  # hold nothing but PTX for this card, which the library itself gives to the driver when it needs it
    )


def parse_target(text: str) -> int:
    """89 for "sm_89"; "sm_90a" names the same card as "sm_90". Raises ValueError."""
    match = re.fullmatch(r"sm_(\d{2,3})[af]?", text.strip())
    if match is None:
        raise ValueError(f"GPU target {text!r} is not written like sm_89")
    return int(match[1])


def driver_isa(driver: str) -> tuple[int, int] | None:
    """Newest PTX ISA a driver such as "550.90.07" compiles; None when unknown (not a version, or older than 520)."""
    match = re.match(r"(\d+)(\.|$)", driver.strip())
    known = [isa for branch, _, isa in DRIVER_ISA if match and int(match[1]) >= branch]
    return known[-1] if known else None


def cuda_isa(version: int) -> tuple[int, int] | None:
    """The same for what cuDriverGetVersion says, for instance 12040."""
    pair = (version // 1000, version % 1000 // 10)
    known = [isa for _, cuda, isa in DRIVER_ISA if pair >= cuda]
    return known[-1] if known else None


def sass_runs(code: Code, target: int) -> bool:
    """Whether this SASS, if it is there, runs on the card sm_<target>."""
    return code.kind == "sass" and _reaches(code, target) and code.arch // 10 == target // 10


def ptx_runs(code: Code, target: int) -> bool:
    """Whether this PTX can be compiled for the card at all (by a driver new enough)."""
    return code.kind == "ptx" and _reaches(code, target)


def jit_accepts(code: Code, isa: tuple[int, int] | None) -> bool | None:
    """Whether a driver of that ISA compiles this PTX; None when either version is unknown."""
    return None if isa is None or code.isa is None else code.isa <= isa


def pick(codes: tuple[Code, ...], target: int) -> tuple[Code, ...]:
    """What the driver of sm_<target> chooses from in one container, going by headers alone, there or not.

    The newest SASS that runs on the card, with and without "a" or "f" (which of the two is the driver's affair); where
    no SASS runs, every PTX that does (which of them it takes depends on the driver's age).
    """
    sass = [code for code in codes if sass_runs(code, target)]
    best = max((code.arch for code in sass), default=0)
    return tuple(code for code in sass if code.arch == best) or tuple(code for code in codes if ptx_runs(code, target))


def reach(codes: tuple[Code, ...], target: int, isa: tuple[int, int] | None) -> Reach:
    """How one container gets to run on sm_<target> under a driver that compiles PTX up to `isa`.

    PTX of unknown version counts as JIT: it is not known to fail, and needing the JIT is a finding by itself.
    """
    there = [code for code in codes if code.present]
    sass = [code for code in there if sass_runs(code, target)]
    if sass:
        return Reach.NATIVE if any(code.arch == target for code in sass) else Reach.COMPATIBLE
    if any(ptx_runs(code, target) and jit_accepts(code, isa) is not False for code in there):
        return Reach.JIT
    return Reach.NONE


def judge(library: Library, target: int, isa: tuple[int, int] | None) -> Verdict:
    """One library on one card; the module's docstring holds the rule."""
    by_arch = next((why for start, why in BY_ARCH.items() if _file_name(library).startswith(start)), "")
    old_ptx = next((why for end, why in OLD_PTX.items() if library.path.endswith(end)), "")
    counts = dict.fromkeys(Reach, 0)
    other = own = 0
    faults: list[str] = []
    refused: list[str] = []
    for group in library.groups:
        if group.empty:
            continue
        how = reach(group.codes, target, isa)
        usable = [code for code in group.codes if code.present and ptx_runs(code, target)]
        # The driver goes by the headers: older code that is still there does not stand in for what it picks.
        lost = [code for code in pick(group.codes, target) if not code.present]
        if lost:
            faults.append(f"{_many(group)} lost the code for sm_{target}: {_labels(lost)} is zeroed or damaged")
        elif how in (Reach.NATIVE, Reach.COMPATIBLE):
            counts[how] += group.count
        elif (
            (by_arch and _has_sass(group.codes))
            or group.loose
            or _specific(group.codes)
            or (old_ptx and how is Reach.JIT)
        ):
            other += group.count
            if group.loose and usable and not _has_sass(group.codes):
                own += group.count
                if all(jit_accepts(code, isa) is False for code in usable):
                    refused.append(f"{_many(group)}: {_labels(usable)}")
        elif usable:
            counts[Reach.JIT] += group.count
            if how is Reach.NONE:
                refused.append(f"{_many(group)}: {_labels(usable)}")
        else:
            faults.append(f"{_many(group)} without code for sm_{target}, only for {_labels(group.codes)}")
    served = counts[Reach.NATIVE] + counts[Reach.COMPATIBLE]
    excuse = next((why for end, why in FOR_OTHER_CARDS.items() if library.path.endswith(end)), old_ptx)
    if other and not served and not counts[Reach.JIT] and not faults and not excuse:
        faults.append(f"no container has code for sm_{target}, only for {_all_labels(library)}")
    if old_ptx and other and not faults and not refused:
        whole = Reach.JIT
    elif faults or refused or (other and not served and not counts[Reach.JIT]):
        whole = Reach.NONE
    else:  # the weakest way any of its code gets to run
        whole = next((r for r in (Reach.JIT, Reach.COMPATIBLE, Reach.NATIVE) if counts[r]), Reach.NO_CODE)
    note = excuse or (by_arch if other else "")
    return Verdict(library, target, whole, served, other, counts[Reach.JIT], tuple(faults), tuple(refused), note, own)


def judge_all(inventory: Inventory, target: int, isa: tuple[int, int] | None) -> tuple[Verdict, ...]:
    """Every library of the inventory on one card, in the inventory's order."""
    return tuple(judge(library, target, isa) for library in inventory.libraries)


def _reaches(code: Code, target: int) -> bool:
    if code.variant == "a":
        return code.arch == target
    if code.variant == "f":
        return code.arch <= target and any({code.arch, target} <= family for family in FAMILIES)
    if code.kind == "sass" and (code.arch in JETSON) != (target in JETSON):
        return False
    return code.arch <= target


def _specific(codes: tuple[Code, ...]) -> bool:
    return bool(codes) and all(code.variant for code in codes)  # whether there or zeroed: nobody else would run it


def _has_sass(codes: tuple[Code, ...]) -> bool:
    return any(code.present and code.kind == "sass" for code in codes)


def _file_name(library: Library) -> str:
    return library.path.rsplit("/", 1)[-1]


def _many(group: Group) -> str:
    return f"{group.count} container{'s' if group.count > 1 else ''} of {group.section}"


def _labels(codes: Iterable[Code]) -> str:
    return ", ".join(code.label for code in codes) or "no card"


def _all_labels(library: Library) -> str:
    codes = {code for group in library.groups if not group.empty for code in group.codes if code.present}
    return _labels(sorted(codes, key=lambda code: (code.kind, code.arch, code.variant)))
