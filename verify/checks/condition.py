"""The card's condition, watched while it works: an idle card hides a narrow link, a hot chip and a low power limit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from verify.core import Outcome, Status, check, fail, pass_, skip, warn
from verify.gpu.ask import TIMEOUT, ask
from verify.machine import Gpu, Machine

GIB = 1 << 30
Card = Mapping[str, Any]
# Reasons that mean something is wrong (NVML, nvmlClocksEventReasons); the others are how a card is meant to work.
HARDWARE = ("hardware slowdown", "hardware thermal slowdown", "hardware power brake")
HEAT = ("software thermal slowdown",)
CHOSEN = ("applications clocks setting", "sync boost", "display clock setting")
POWER_FAIL, POWER_WARN = 0.7, 0.98  # of the default limit
MARGIN = 5  # °C below the temperature at which the hardware slows down


def watched(m: Machine, judge: Callable[[Sequence[Card]], Outcome]) -> Outcome:
    """`judge` on what was seen of each card under load; the outcome that says why nothing was seen otherwise."""
    found = ask(m, "load", "cards")
    if found.status is not Status.PASS:
        return found
    cards = [c for c in found.data["cards"] if c["samples"]]
    if not cards:
        return skip("NVML does not know the device torch uses, a MIG slice most likely, so it cannot be watched.")
    return judge(cards)


def seen(card: Card, key: str) -> list[Any]:
    """The samples of one fact that could be read."""
    return [s[key] for s in card["samples"] if s.get(key) is not None]


@check(needs=("gpu", "torch"), timeout=2 * TIMEOUT)
def throttling(m: Machine) -> Outcome:
    """Nothing slows the card down while it works, beyond its own power limit."""
    return watched(m, judge_throttling)


def judge_throttling(cards: Sequence[Card]) -> Outcome:
    """Hardware and heat fail; a clock that somebody set warns; the power cap is normal under full load."""
    reasons = sorted({reason for card in cards for one in seen(card, "throttle") for reason in one})
    clocks = [max(seen(card, "clock"), default=0) for card in cards]
    data = {"reasons": reasons, "clock": clocks}
    if not any(seen(card, "throttle") for card in cards):
        return skip("This driver does not tell why it slows a card down.")
    if bad := [r for r in reasons if r in HARDWARE]:
        return fail(
            f"The card slows itself down under load: {', '.join(bad)}.",
            hint="Look at the card's power cables and supply, and at its cooling; a rented machine: ask for another.",
            data=data,
        )
    if any(r in HEAT for r in reasons):
        return fail(
            "The driver slows the card down for its temperature.",
            hint="Improve the cooling (fans, dust, air flow); a rented machine: ask for another.",
            data=data,
        )
    if chosen := [r for r in reasons if r in CHOSEN]:
        return warn(
            f"Somebody limited the card's clocks ({', '.join(chosen)}).",
            hint="On the host: nvidia-smi -rac and nvidia-smi -rgc give the clocks back.",
            data=data,
        )
    cap = "; it meets its power limit, as it should under full load" if reasons else ""
    return pass_(f"{', '.join(f'{c} MHz' for c in clocks)} under load, not slowed down{cap}.", data=data)


@check(needs=("gpu", "torch"), timeout=2 * TIMEOUT)
def temperature(m: Machine) -> Outcome:
    """The card stays clear of the temperature at which it slows down."""
    return watched(m, judge_temperature)


def judge_temperature(cards: Sequence[Card]) -> Outcome:
    """Within MARGIN of the card's own threshold fails. The load is short: a hot card was hot before it."""
    for card in cards:
        limit, hottest = card.get("slowdown_temperature"), max(seen(card, "temperature"), default=None)
        if limit and hottest is not None and hottest > limit - MARGIN:
            return fail(
                f"GPU {card['index']} reaches {hottest} °C after seconds of load; it slows down at {limit} °C.",
                hint="Improve the cooling, or wait until the other work on the card is done.",
            )
    values = [max(seen(card, "temperature"), default=None) for card in cards]
    if None in values:
        return skip("This card does not tell its temperature.")
    return pass_(f"{', '.join(f'{v} °C' for v in values)} after some seconds of load.", data={"temperature": values})


@check(needs=("gpu", "torch"), timeout=2 * TIMEOUT)
def pcie_link(m: Machine) -> Outcome:
    """The PCIe link works at full width and generation while data is copied.

    An idle card shows generation 1, which saves power and is no fault.
    """
    return watched(m, judge_pcie)


def judge_pcie(cards: Sequence[Card]) -> Outcome:
    """Half the width or two generations less than the card and its slot can fail, one generation warns."""
    worst, said = pass_(""), []
    for card in cards:
        gen, width = max(seen(card, "pcie_gen"), default=None), max(seen(card, "pcie_width"), default=None)
        gen_max, width_max = card.get("pcie_gen_max"), card.get("pcie_width_max")
        if not (gen and width and gen_max and width_max):
            continue
        text = f"GPU {card['index']} copies over PCIe generation {gen} x{width}"
        said.append(f"{text} of {gen_max} x{width_max}")
        data = {"gen": gen, "gen_max": gen_max, "width": width, "width_max": width_max}
        if width < width_max or gen < gen_max - 1:
            return fail(
                f"{text}, though {gen_max} x{width_max} is possible.",
                hint="Seat the card again, try another slot or leave the riser out; a rented machine: ask for another.",
                data=data,
            )
        if gen < gen_max:
            worst = warn(
                f"{text}, though generation {gen_max} is possible.",
                hint="A riser cable or a setting of the mainboard limits the slot; copies take twice as long.",
                data=data,
            )
    if not said:
        return skip("This card does not tell its PCIe link, as is usual in some virtual machines.")
    return worst if worst.message else pass_(f"{'; '.join(said)}.")


@check(needs=("gpu", "torch"), timeout=2 * TIMEOUT)
def memory_rows(m: Machine) -> Outcome:
    """The card's memory has no uncorrectable errors and no row waiting to be replaced."""
    if m.recorded:
        return judge_memory([], m.gpus)
    return watched(m, lambda cards: judge_memory(cards, m.gpus))


def judge_memory(cards: Sequence[Card], gpus: Iterable[Gpu]) -> Outcome:
    """`rows` of a card: correctable, uncorrectable, pending, failed (NVML, nvmlDeviceGetRemappedRows)."""
    told = []
    for gpu in gpus:
        if gpu.ecc_errors:
            return fail(
                f"GPU {gpu.index} counted {gpu.ecc_errors} uncorrectable memory errors since the driver was loaded.",
                hint="Results may be wrong: reset the card or reboot the host; if they come back, replace the card.",
                data={"errors": gpu.ecc_errors},
            )
        told += [f"GPU {gpu.index}: ECC on, no uncorrectable errors"] if gpu.ecc and gpu.ecc_errors == 0 else []
    for card in cards:
        rows = card.get("rows")
        if not rows:
            continue
        if rows[3]:
            return fail(
                f"GPU {card['index']} could not replace a faulty memory row.",
                hint="The card is due for replacement; a rented machine: ask for another.",
                data={"rows": rows},
            )
        if rows[2]:
            return fail(
                f"GPU {card['index']} has a memory row waiting to be replaced at the next reset.",
                hint="Reboot the host, or reset the card while nothing runs on it.",
                data={"rows": rows},
            )
        told.append(f"{rows[0] + rows[1]} rows replaced")
    return pass_(f"{', '.join(told)}." if told else "This card has no ECC that could tell (GeForce: off or absent).")


@check(needs="gpu")
def power_limit(m: Machine) -> Outcome:
    """The power limit is the card's default."""
    for gpu in m.gpus:
        limit, default = gpu.power_limit, gpu.power_default
        if not limit or not default:
            continue
        data = {"limit": limit, "default": default}
        if limit < POWER_FAIL * default:
            return fail(
                f"GPU {gpu.index} may take {limit:.0f} W of its {default:.0f} W, far too little for its speed.",
                hint=f"On the host: nvidia-smi -i {gpu.index} -pl {default:.0f}; a rented machine: ask the provider.",
                data=data,
            )
        if limit < POWER_WARN * default:
            return warn(
                f"GPU {gpu.index} is limited to {limit:.0f} W of its {default:.0f} W.",
                hint=f"On the host: nvidia-smi -i {gpu.index} -pl {default:.0f}, if the limit is not meant.",
                data=data,
            )
    told = [f"{g.power_limit:.0f} W" for g in m.gpus if g.power_limit]
    return pass_(f"Power limit {', '.join(told)}, the default." if told else "This card does not tell its power limit.")


@check(needs="gpu")
def room(m: Machine) -> Outcome:
    """Nothing else holds the card's memory or works on it.

    Processes of other containers are counted by the driver, and their names are not shown here.
    """
    for gpu in m.gpus:
        if gpu.memory is None or gpu.memory_used is None:
            continue
        free, used = gpu.memory - gpu.memory_used, gpu.memory_used
        data = {"free": free, "used": used, "processes": gpu.processes}
        if free < gpu.memory / 4:
            return fail(
                f"GPU {gpu.index} has {free / GIB:.1f} of {gpu.memory / GIB:.0f} GiB free before this test.",
                hint="Stop what else runs on the card (nvidia-smi on the host shows it), or restart the container.",
                data=data,
            )
        # A display or the driver itself keeps up to about 1 GiB.
        if used > 1.5 * GIB or gpu.processes:
            who = f"{gpu.processes} other process(es)" if gpu.processes else "something not shown here"
            return warn(
                f"GPU {gpu.index} is shared: {who} hold {used / GIB:.1f} GiB, and speeds measured here mean little.",
                hint="Stop it (nvidia-smi on the host shows it), or choose another card with CUDA_VISIBLE_DEVICES.",
                data=data,
            )
        if gpu.compute_mode == "exclusive process":
            return warn(
                f"GPU {gpu.index} takes one process at a time (exclusive mode): no notebook beside a script.",
                hint="On the host: nvidia-smi -c DEFAULT.",
                data=data,
            )
    return pass_("No other process is on the card.")


@check(needs="gpu")
def whole_card(m: Machine) -> Outcome:
    """What kind of share of a card this is: the whole, a MIG instance or a virtual one. For information."""
    names = [f"GPU {g.index} in MIG mode, a slice of it is in use" for g in m.gpus if g.mig]
    if m.recorded:
        return pass_(f"{'; '.join(names) or 'The whole card'}.")
    found = ask(m, "load", "cards")
    cards = found.data.get("cards", ()) if found.status is Status.PASS else ()
    # nvmlGpuVirtualizationMode: 0 none, 1 passed through to a virtual machine, 2 vGPU.
    names += [f"GPU {c['index']} is a vGPU, shared with others" for c in cards if c.get("virtualization") == 2]
    passed = ", passed through to a virtual machine" if any(c.get("virtualization") == 1 for c in cards) else ""
    keeps = [c.get("persistence") for c in cards]
    off = "; persistence mode is off, so the first call after a pause takes seconds longer" if 0 in keeps else ""
    return pass_(f"{'; '.join(names) or f'The whole card{passed}'}{off}.")
