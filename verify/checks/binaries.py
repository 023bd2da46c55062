"""The GPU code inside the libraries, judged for the cards and the driver this image is for. Needs no GPU."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from verify import audit, coverage
from verify.audit_cli import DEFAULT_DRIVER, DEFAULT_TARGETS
from verify.core import Outcome, check, fail, pass_, skip, warn
from verify.machine import Machine
from verify.wording import some

_RECORDED = "The libraries of a recorded machine are not here to be read."


@check(timeout=120)
def libraries_run_on_targets(m: Machine) -> Outcome:
    """Every library with GPU code holds code for the cards this image is declared for.

    Machine code sm_XY runs on sm_XZ with Z ≥ Y of the same major, architecture-specific code (sm_90a) on its own card
    only, PTX on every later card. `verify audit` prints the whole table.
    """
    if m.recorded:
        return skip(_RECORDED)
    return _coverage(m, _targets(m), _driver(m))


@check(timeout=120)
def no_ptx_jit(m: Machine) -> Outcome:
    """No library needs the driver to compile PTX for the cards this image is declared for.

    A driver refuses PTX that is newer than itself with error 222: driver 550 (CUDA 12.4) takes ISA 8.4 at most, and
    torch's CUDA 12.8 writes 8.7. PTX it does accept is compiled at first use, which takes minutes. cuFFT is made
    that way and counts only when its PTX is too new.
    """
    if m.recorded:
        return skip(_RECORDED)
    inventory = _inventory(m)
    driver = _driver(m)
    isa = coverage.driver_isa(driver)
    verdicts = [v for target in _targets(m) for v in coverage.judge_all(inventory, target, isa)]
    found = [v for v in verdicts if v.jit or (v.own_ptx and v.refused)]
    if not found:
        cards = ", ".join(f"sm_{target}" for target in _targets(m))
        own = [v for v in verdicts if v.own_ptx]
        by_design = some(f"{v.library.name} ({v.own_ptx} containers)" for v in own)
        exception = f"; driver {driver} compiles what is PTX by design: {by_design}" if own else ""
        return pass_(
            f"{len(inventory.libraries)} libraries with GPU code, none needs PTX compiled for {cards}{exception}.",
            data={v.library.name: v.own_ptx for v in own},
        )
    names = some(f"{v.library.name} ({v.jit or v.own_ptx} containers)" for v in found)
    refused = [v for v in found if v.refused]
    cards = ", ".join(dict.fromkeys(f"sm_{v.target}" for v in found))
    message = f"On {cards} these libraries have only PTX: {names}."
    if refused:
        limit = f"ISA {isa[0]}.{isa[1]}" if isa else "an unknown ISA version"
        why = refused[0].refused[0]
        message += f" Driver {driver} compiles PTX up to {limit} and refuses theirs with error 222 ({why})."
    return fail(
        message,
        hint=f"Rebuild them with machine code for {cards} (TORCH_CUDA_ARCH_LIST without +PTX), or install a wheel that "
        f"has it; reinstall {_owners(found)} if it should.",
        data=_data(found),
    )


@check(timeout=120)
def files_are_whole(m: Machine) -> Outcome:
    """Every library file is complete, and the GPU code in it is of a kind that is understood."""
    if m.recorded:
        return skip(_RECORDED)
    inventory = _inventory(m)
    if inventory.unreadable:
        broken = some(f"{Path(path).name}: {reason}" for path, reason in inventory.unreadable)
        return fail(
            f"Broken library files: {broken}.",
            hint="Reinstall the packages they belong to; a full disk during the installation leaves such files behind.",
            data={"unreadable": [list(item) for item in inventory.unreadable]},
        )
    odd = [library for library in inventory.libraries if library.problems]
    if odd:
        names = some(f"{library.name} ({library.problems[0]})" for library in odd)
        return warn(
            f"GPU code was found that `verify` does not understand, so it is not counted: {names}.",
            hint="If a toolkit newer than CUDA 13 made the file, update `verify`; otherwise reinstall the package.",
            data={library.name: list(library.problems) for library in odd},
        )
    return pass_(
        f"{inventory.files} ELF files read in {inventory.seconds:.1f} s ({inventory.cached} known from before), "
        f"{len(inventory.libraries)} of them with GPU code."
    )


@check(needs="gpu", tier="static", about="machine", timeout=120)
def libraries_run_on_gpus(m: Machine) -> Outcome:
    """Every library with GPU code runs on every GPU of this machine under its driver."""
    if m.recorded:
        return skip(_RECORDED)
    silent = [gpu.name for gpu in m.gpus if not gpu.sm.startswith("sm_")]
    if silent:
        return skip(f"The architecture of {', '.join(silent)} could not be read.")
    known = {coverage.parse_target(gpu.sm): gpu.name for gpu in m.gpus}
    isa = coverage.driver_isa(m.driver.version) or (coverage.cuda_isa(m.driver.cuda) if m.driver.cuda else None)
    if isa is None:
        return skip(f"Driver version {m.driver.version or 'unknown'} is not one whose PTX limit is known.")
    inventory = _inventory(m)
    verdicts = [v for target in known for v in coverage.judge_all(inventory, target, isa)]
    jit = [v for v in verdicts if v.jit and not v.refused and not v.faults]
    bad = [v for v in verdicts if v.faults or v.refused]
    cards = ", ".join(f"{name} (sm_{target})" for target, name in known.items())
    if bad:
        return _no_code(bad, f"{cards} under driver {m.driver.version}")
    if jit:
        names = some(f"{v.library.name} ({v.jit} containers)" for v in jit)
        return warn(
            f"{cards}: the driver has to compile PTX at first use for {names}.",
            hint=f"Build the image for this card (TARGETS={','.join(f'sm_{target}' for target in known)}).",
            data=_data(jit),
        )
    return pass_(f"All {len(inventory.libraries)} libraries with GPU code run on {cards} as machine code.")


def _coverage(m: Machine, targets: tuple[int, ...], driver: str) -> Outcome:
    inventory = _inventory(m)
    isa = coverage.driver_isa(driver)
    verdicts = [v for target in targets for v in coverage.judge_all(inventory, target, isa)]
    bad = [v for v in verdicts if v.faults]
    cards = ", ".join(f"sm_{target}" for target in targets)
    if bad:
        return _no_code(bad, cards)
    if not inventory.libraries:
        return skip("No library with GPU code was found: is torch installed?")
    native = sum(v.reach is coverage.Reach.NATIVE for v in verdicts)
    compatible = sum(v.reach is coverage.Reach.COMPATIBLE for v in verdicts)
    return pass_(
        f"On {cards} {native} libraries run natively and {compatible} by machine code of an older card of its series.",
        data={"containers": sum(v.served for v in verdicts), "for_other_cards": sum(v.other_cards for v in verdicts)},
    )


def _no_code(bad: list[coverage.Verdict], cards: str) -> Outcome:
    sentences = some(f"{v.library.name} ({'; '.join((*v.faults, *v.refused))})" for v in bad)
    return fail(
        f"No code for {cards} in {sentences}.",
        hint=f"Install or build {_owners(bad)} with code for this card, or declare the image for cards it can "
        "serve (TARGETS); as it is, such kernels end in error 209, no kernel image is available.",
        data=_data(bad),
    )


def _targets(m: Machine) -> tuple[int, ...]:
    names = (m.image or {}).get("targets") or DEFAULT_TARGETS
    return tuple(coverage.parse_target(str(name)) for name in names)


def _driver(m: Machine) -> str:
    return str((m.image or {}).get("driver") or DEFAULT_DRIVER)


def _inventory(m: Machine) -> audit.Inventory:
    roots = tuple(Path(p) for p in (m.python.site, m.toolkit.home) if p and Path(p).is_dir())
    return _read(roots or audit.default_roots())


@lru_cache(maxsize=4)
def _read(roots: tuple[Path, ...]) -> audit.Inventory:
    return audit.scan(roots, cache=audit.cache_file())


def _owners(verdicts: list[coverage.Verdict]) -> str:
    return ", ".join(dict.fromkeys(v.library.owner or v.library.name for v in verdicts))


def _data(verdicts: list[coverage.Verdict]) -> dict[str, object]:
    return {
        f"{v.library.name} on sm_{v.target}": {
            "reach": v.reach.value,
            "served": v.served,
            "jit": v.jit,
            "faults": [*v.faults, *v.refused],
        }
        for v in verdicts
    }
