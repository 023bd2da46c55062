"""Numbers per GPU model, each with its unit and source. Code decides what is compared; limits.toml decides the numbers.

A card that no table names is measured and unrated, never passed. `--limits FILE` lays a site's own tables on top.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from verify.core import Bench, UsageError

SHIPPED = Path(__file__).parent / "limits.toml"
SCHEMA = 1
FORMATS = ("fp32", "tf32", "fp16", "bf16", "fp8")
FACTS = {"memory": "GB/s", "sm_count": "SMs", "boost": "MHz", "power": "W"}
LIMIT_KEYS = {"at_least", "at_most", "unit", "source", "torch", "published", "published_source"}
# GB/s of one PCIe lane and direction from generation 3 on: 8 GT/s with 128/130 coding, doubling (PCI Express base
# specification); generations 1 and 2 code 8/10.
LANE = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}


@dataclass(frozen=True)
class Number:
    """A value nobody has to take on trust."""

    value: float
    unit: str
    source: str


@dataclass(frozen=True)
class Limit:
    """What one benchmark must reach on one card; `torch` is the minor version it holds for, "" for any."""

    value: float
    unit: str
    source: str
    better: str
    torch: str = ""
    published: float | None = None
    published_source: str = ""


@dataclass(frozen=True)
class Card:
    """A GPU model by the names NVML gives it."""

    key: str
    names: tuple[str, ...]
    facts: Mapping[str, Number] = field(default_factory=dict)
    limits: Mapping[str, Limit] = field(default_factory=dict)


@dataclass(frozen=True)
class Limits:
    """All cards, and FLOP per clock and SM by architecture and number format."""

    cards: tuple[Card, ...]
    arithmetic: Mapping[str, Mapping[str, Number]]

    def card(self, name: str) -> Card | None:
        """The card that NVML calls `name`."""
        return next((c for c in self.cards if name in c.names), None)

    def limit(self, bench: str, name: str, torch: str) -> tuple[Limit | None, str]:
        """The limit of a benchmark on a card under a version of torch, or why there is none."""
        card = self.card(name)
        if card is None:
            return None, f"no limits are known for {name}"
        made = card.limits.get(bench)
        if made is None:
            return None, f"no limit of this benchmark is known for {name}"
        if made.torch and not f"{torch}.".startswith(f"{made.torch}."):
            return None, f"the limit for {name} is for torch {made.torch}, and this is {torch}"
        return made, ""


def ceiling(limits: Limits, bound: str, device: Mapping[str, Any], card: Mapping[str, Any]) -> Number | None:
    """What the hardware could do at most, in the unit of the figure; None when it is not known.

    `device` holds name, sm and sm_count, `card` the measured clock_mhz, pcie_gen and pcie_width.
    """
    if bound in FORMATS:
        per_clock = limits.arithmetic.get(device.get("sm", ""), {}).get(bound)
        clock, count = card.get("clock_mhz"), device.get("sm_count")
        if not (per_clock and clock and count):
            return None
        words = f"{count} SMs x {clock:g} MHz measured x {per_clock.value:g} FLOP per clock and SM ({per_clock.source})"
        return Number(count * clock * 1e6 * per_clock.value / 1e12, "TFLOP/s", words)
    if bound == "memory":
        known = limits.card(device.get("name", ""))
        fact = known.facts.get("memory") if known else None
        if fact or not device.get("memory_gbs"):
            return fact
        return Number(device["memory_gbs"], "GB/s", "memory clock x 2 x bus width, from the driver")
    if bound == "pcie":
        generation, width = card.get("pcie_gen"), card.get("pcie_width")
        if generation not in LANE or not width:
            return None
        return Number(LANE[generation] * width, "GB/s", f"PCIe generation {generation} x{width}, seen under load")
    return None


def load(benches: Mapping[str, Bench], overlay: str = "") -> Limits:
    """The shipped tables with those of the file `overlay` on top. UsageError says what is wrong with a file."""
    made = parse(read(SHIPPED), benches, str(SHIPPED))
    if not overlay:
        return made
    site = parse(read(Path(overlay)), benches, overlay)
    cards = {c.key: c for c in made.cards}
    for card in site.cards:
        below = cards.get(card.key) or next((c for c in made.cards if set(c.names) & set(card.names)), None)
        if below is None:
            cards[card.key] = card
            continue
        names = tuple(dict.fromkeys((*below.names, *card.names)))
        merged = replace(
            below, names=names, facts={**below.facts, **card.facts}, limits={**below.limits, **card.limits}
        )
        cards[below.key] = merged
    arithmetic = {**made.arithmetic, **{k: {**made.arithmetic.get(k, {}), **v} for k, v in site.arithmetic.items()}}
    return Limits(tuple(cards.values()), arithmetic)


def toml() -> Any:
    """A TOML reader: Python's own from 3.11 on, else tomli, else the one inside pip."""
    for name in ("tomllib", "tomli", "pip._vendor.tomli"):
        try:
            return importlib.import_module(name)
        except ImportError:  # noqa: PERF203 - three turns
            continue
    raise UsageError("This Python 3.10 has no TOML reader for the limits; install tomli.")


def read(path: Path) -> Mapping[str, Any]:
    """The file as plain data; UsageError when it cannot be read or is no TOML."""
    reader = toml()
    try:
        found: dict[str, Any] = reader.loads(path.read_text(encoding="utf-8"))
        return found
    except OSError as error:
        raise UsageError(f"The limits file {path} cannot be read: {error.strerror}.") from error
    except (reader.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"The limits file {path} is no TOML: {error}.") from error


def parse(data: Mapping[str, Any], benches: Mapping[str, Bench], path: str) -> Limits:
    """Limits from plain data; UsageError names the table and what is wrong in it."""

    def wrong(where: str, what: str) -> UsageError:
        return UsageError(f"The limits file {path} is wrong at {where}: {what}.")

    def table(value: Any, where: str) -> Mapping[str, Any]:
        if not isinstance(value, Mapping):
            raise wrong(where, "a table is needed here")
        return value

    def known(value: Mapping[str, Any], keys: set[str], where: str) -> None:
        if extra := sorted(set(value) - keys):
            raise wrong(where, f"{extra[0]!r} is not one of {', '.join(sorted(keys))}")

    def positive(value: Any, where: str) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value <= 0:
            raise wrong(where, f"a number above zero is needed, not {value!r}")
        return float(value)

    def text(value: Any, where: str) -> str:
        if not isinstance(value, str) or not value.strip():
            raise wrong(where, "a text is needed here; every number has a unit and a source")
        return value

    def number(value: Any, unit: str, where: str) -> Number:
        inner = table(value, where)
        known(inner, {"value", "unit", "source"}, where)
        if inner.get("unit") != unit:
            raise wrong(where, f"the unit is {unit}, not {inner.get('unit')!r}")
        return Number(positive(inner.get("value"), where), unit, text(inner.get("source"), f"{where}.source"))

    def limit(bench: str, value: Any, where: str) -> Limit:
        if bench not in benches:
            raise wrong(where, "there is no such benchmark; `verify list --tier speed` names them")
        declared, inner = benches[bench], table(value, where)
        known(inner, LIMIT_KEYS, where)
        wanted = "at_least" if declared.better == "higher" else "at_most"
        other = "at_most" if wanted == "at_least" else "at_least"
        if wanted not in inner or other in inner:
            raise wrong(where, f"{declared.better} is better here, so it takes {wanted} alone")
        if inner.get("unit") != declared.unit:
            raise wrong(where, f"the unit is {declared.unit}, not {inner.get('unit')!r}")
        version, published = inner.get("torch", ""), inner.get("published")
        if not isinstance(version, str):
            raise wrong(f"{where}.torch", 'the minor version in quotes is needed, as in "2.8"')
        return Limit(
            positive(inner[wanted], f"{where}.{wanted}"),
            declared.unit,
            text(inner.get("source"), f"{where}.source"),
            declared.better,
            version,
            None if published is None else positive(published, f"{where}.published"),
            "" if published is None else text(inner.get("published_source"), f"{where}.published_source"),
        )

    known(data, {"schema", "arch", "gpu"}, "the top")
    if data.get("schema") != SCHEMA:
        raise wrong("schema", f"this program reads schema {SCHEMA}, not {data.get('schema')!r}")
    arithmetic: dict[str, dict[str, Number]] = {}
    for sm, given in table(data.get("arch", {}), "arch").items():
        inner = table(given, f"arch.{sm}")
        known(inner, {*FORMATS, "unit", "source"}, f"arch.{sm}")
        if inner.get("unit") != "FLOP/clk/SM":
            raise wrong(f"arch.{sm}", f"the unit is FLOP/clk/SM, not {inner.get('unit')!r}")
        source = text(inner.get("source"), f"arch.{sm}.source")
        arithmetic[sm] = {
            f: Number(positive(inner[f], f"arch.{sm}.{f}"), "FLOP/clk/SM", source) for f in FORMATS if f in inner
        }
    cards = []
    for key, given in table(data.get("gpu", {}), "gpu").items():
        where = f"gpu.{key}"
        inner = table(given, where)
        known(inner, {"names", "limit", *FACTS}, where)
        names = inner.get("names")
        if not isinstance(names, list) or not names or not all(isinstance(n, str) and n for n in names):
            raise wrong(f"{where}.names", "a list of the names NVML gives the card is needed")
        facts = {n: number(inner[n], unit, f"{where}.{n}") for n, unit in FACTS.items() if n in inner}
        listed = table(inner.get("limit", {}), f"{where}.limit")
        limits = {bench: limit(bench, value, f'{where}.limit."{bench}"') for bench, value in listed.items()}
        cards.append(Card(key, tuple(names), facts, limits))
    return Limits(tuple(cards), arithmetic)
