"""Which payloads of a library no target needs, and which whole files.

Per container what the driver would pick for each target is kept (`coverage.pick`, the rule the audit judges by); the
rest may be zeroed. Headers stay, so the driver makes the same choice as before and never looks at a zeroed payload.
Left alone, with a sentence that says why:
- a container with anything in it that is not plainly PTX or machine code (unknown kinds or flags, LTO, damage);
- one that the library keeps in its own data and loads itself;
- one that serves no target though its code is not architecture-specific: the audit has to go on finding that;
- one that holds no kernel: nothing to gain.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from verify import coverage, elf, fatbin, payload
from verify.audit import Code, code_of
from verify.elf import Buffer
from verify.fatbin import Container, Entry, Kind, Payload


@dataclass(frozen=True)
class Span:
    """Bytes of a file to be zeroed: `size` bytes at `offset`."""

    offset: int
    size: int


@dataclass(frozen=True)
class Plan:
    """What is to be done with one library. `freed`: bytes by label of the code ("sm_70"); `lost`: code already gone."""

    containers: int = 0
    spans: tuple[Span, ...] = ()
    freed: dict[str, int] = field(default_factory=dict)
    left_alone: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()


@dataclass(frozen=True)
class LeaveOut:
    """A whole file nothing needs: `pattern` of its path, `unless` one of these targets is served, and why."""

    pattern: str
    why: str
    unless: frozenset[int] = frozenset()


# Each was removed from the whole stack of torch 2.8.0 and every import and static check passed. No library of the stack
# names the files of NVIDIA in its dynamic section or in its text.
LEAVE_OUT = (
    LeaveOut(
        "xformers/flash_attn_3/_C.so",
        "FlashAttention-3: xFormers asks for it on sm_90 only, its sm_80 kernels have empty bodies",
        unless=frozenset({90}),
    ),
    LeaveOut("nvidia/*/lib/libnvrtc.alt.so.*", "the alternative NVRTC: nothing names it, torch loads libnvrtc.so"),
    LeaveOut("nvidia/*/lib/libnvrtc-builtins.alt.so.*", "belongs to the alternative NVRTC"),
    LeaveOut("nvidia/*/lib/libcusolverMg.so.*", "cuSOLVER over several GPUs: nothing in the stack is linked with it"),
    LeaveOut("triton/backends/nvidia/lib/cupti/*_static.a", "static library: for linking only, and nothing links it"),
)


def left_out(path: str, targets: Iterable[int]) -> str:
    """Why the file at `path` below site-packages is needed by none of the targets; "" when it stays."""
    wanted = frozenset(targets)
    for rule in LEAVE_OUT:
        if PurePosixPath(path).match(rule.pattern) and not rule.unless & wanted:
            return rule.why
    return ""


def plan(data: Buffer, targets: Sequence[int]) -> Plan:
    """What to zero in a library. Raises ElfError when it is no ELF file that is understood."""
    found = fatbin.read(data, elf.read(data))
    problems = [(p.offset, p.offset + p.size) for p in found.problems]
    spans: list[Span] = []
    freed: dict[str, int] = {}
    alone = [f"{p.section} at {p.offset:#x}: {p.what}" for p in found.problems]
    lost: list[str] = []
    for container in found.containers:
        where = f"{container.section} at {container.offset:#x}"
        end = container.offset + container.size
        if any(start < end and stop > container.offset for start, stop in problems):
            continue  # said already
        if why := _untouchable(data, container):
            alone += [f"{where}: {why}"] if container.loose or "no kernel" not in why else []
            continue
        keep = needed(container.entries, targets)
        if gone := [e for e in keep if e.payload is not Payload.PRESENT]:
            lost.append(f"{where} lost the code for {', '.join(sorted({code_of(e).label for e in gone}))}")
            continue
        if not keep and not all(e.variant for e in container.entries):
            alone.append(f"{where}: serves no target, holds {_labels(container.entries)}")
            continue
        for entry in container.entries:
            if entry not in keep and entry.payload is Payload.PRESENT and entry.payload_size:
                spans.append(Span(entry.payload_offset, entry.payload_size))
                label = code_of(entry).short
                freed[label] = freed.get(label, 0) + entry.payload_size
    spans.sort(key=lambda span: span.offset)
    return Plan(len(found.containers), tuple(spans), dict(sorted(freed.items())), tuple(alone), tuple(lost))


def needed(entries: Sequence[Entry], targets: Sequence[int]) -> tuple[Entry, ...]:
    """The entries of one container that the driver of any target would pick."""
    codes = {code_of(entry): entry for entry in entries}
    picked: set[Code] = set()
    for target in targets:
        picked.update(coverage.pick(tuple(codes), target))
    return tuple(entry for entry in entries if code_of(entry) in picked)


def _untouchable(data: Buffer, container: Container) -> str:
    if container.loose:
        return "the library loads it by its own code"
    odd = [e for e in container.entries if e.kind not in (Kind.PTX, Kind.SASS) or e.payload is Payload.DAMAGED]
    if odd:
        return f"holds {odd[0].kind.value} code of a kind that is not edited"
    return "holds no kernel" if payload.is_empty(data, container) else ""


def _labels(entries: Iterable[Entry]) -> str:
    return ", ".join(dict.fromkeys(code_of(entry).label for entry in entries)) or "nothing"
