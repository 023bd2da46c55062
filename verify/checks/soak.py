"""Minutes of load and a test of all free memory; `verify run --tier soak`, for a new or a suspected card."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from verify.core import Outcome, Status, check, fail, pass_, skip, warn
from verify.gpu import soak
from verify.gpu.ask import context, rounds
from verify.machine import Machine
from verify.scratch import RECORDED

FAULTY = "The card is faulty or overclocked: reset its clocks, test once more, and have it replaced if this stays."
DAY = 24 * 3600.0


def asked(m: Machine, name: str, seconds: float) -> Outcome:
    """What the probe of that name says, in a process of its own that may take so many seconds."""
    if m.recorded:
        return skip(RECORDED)
    told = json.dumps(asdict(context(m)), sort_keys=True)
    found = rounds("soak", told, seconds, [f"soak.{name}"])
    return found.get(f"soak.{name}") or found["*"]


@check(needs=("gpu", "torch"), tier="soak", timeout=1800)
def memory(m: Machine) -> Outcome:
    """Every free byte of the card's memory holds what is written to it.

    Six patterns (zeros, ones, two checkerboards, each word's own address and its inverse) are written over all free
    memory and read back.
    """
    found = asked(m, "memory", 1500)
    return found if found.status is not Status.PASS else judge_memory(found.data)


def judge_memory(data: Mapping[str, Any]) -> Outcome:
    """One wrong word fails."""
    if data["wrong"]:
        bad = data["wrong"][0]
        return fail(
            f"{bad['words']} words of {data['gib']:g} GiB came back changed under the pattern {bad['pattern']}, the "
            f"first at byte {bad['offset']}.",
            hint=FAULTY,
            data=data,
        )
    return pass_(f"{data['gib']:g} GiB hold six patterns.", data=data)


@check(needs=("gpu", "torch"), tier="soak", timeout=DAY)
def load(m: Machine) -> Outcome:
    """The card computes the same for minutes under full load, without slowing down for heat or power supply.

    VERIFY_SOAK_MINUTES sets how long; 10 minutes otherwise. It runs the same fp16 product again and again.
    """
    found = asked(m, "load", 60 * soak.minutes() + 300)
    return found if found.status is not Status.PASS else judge_load(found.data)


def judge_load(data: Mapping[str, Any]) -> Outcome:
    """A wrong product fails, a card that slows itself down fails, company on the card makes it inconclusive."""
    card, spent = data["card"], f"{data['minutes']:g} minutes"
    if data["wrong"]:
        return fail(
            f"{data['wrong']} of {data['products']} equal products differ from the first in {spent} of load.",
            hint=FAULTY,
            data=data,
        )
    if not card.get("looks"):
        return warn(
            f"{data['products']} equal products in {spent}; the card could not be watched meanwhile.",
            hint="Install nvidia-ml-py and give the container the capability utility.",
            data=data,
        )
    if card["throttled"]:
        return fail(
            f"Under load the card slows itself down: {', '.join(card['throttled'])}; {card['temperature_c']} °C, down "
            f"to {card['clock_min_mhz']} MHz.",
            hint="Look at cooling and power cables; a rented machine: ask for another.",
            data=data,
        )
    if card.get("others"):
        return Outcome(
            Status.INCONCLUSIVE,
            f"Not alone on the card during {spent} of load: {', '.join(card['others'])}.",
            "Stop the other work on this card and run it again.",
            data,
        )
    return pass_(
        f"{data['products']} equal products in {spent}: {data['tflops']:g} TFLOP/s, {card['clock_mhz']:g} MHz, "
        f"{card['power_w']} W, at most {card['temperature_c']} °C.",
        data=data,
    )
