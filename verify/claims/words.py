"""The types of the claims: verdict words, a published figure, a claim, and its row in the report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from verify.machine import Machine

CARD = "RTX 4090 D"  # the claims are about this card


class Word(str, Enum):
    """Every verdict a row can have."""

    CONFIRMED = "confirmed"
    NEAR = "nearly right"
    CONDITIONAL = "only with conditions"
    CONTRADICTED = "contradicted"
    PLAUSIBLE = "plausible"
    OTHER_CARD = "other card"
    NOT_MEASURABLE = "not measurable here"
    NOT_RUN = "not run"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Fact:
    """One measured value. `value` None: it was tried, and `note` says why there is none."""

    value: float | None
    unit: str
    note: str = ""


Facts = Mapping[str, Fact]  # "<work>.<name>" or "bench.<id>"


@dataclass(frozen=True)
class Figure:
    """A published number and the facts that could be it.

    `rule` "about": confirmed when one of `facts` is within `tolerance` (a share) of it. "at least": when one reaches it
    but for `tolerance`. `shown` are further facts for the reader.
    """

    label: str
    published: float
    unit: str
    facts: tuple[str, ...]
    rule: str = "about"
    tolerance: float = 0.1
    shown: tuple[str, ...] = ()


Judge = Callable[[Machine, Facts], "tuple[Word, str]"]


@dataclass(frozen=True)
class Claim:
    """A row as it is known before anything is measured.

    `before` is what physics and public data say of it. `anywhere`: any card can settle it, because it is about shapes
    or versions. `works` names what has to be measured (`verify.claims.worker`), `judge` decides what is no number.
    """

    id: str
    claim: str
    published: str
    physics: str
    before: Word
    figures: tuple[Figure, ...] = ()
    works: tuple[str, ...] = ()
    anywhere: bool = False
    judge: Judge | None = None
    reason: str = ""


@dataclass(frozen=True)
class Row:
    """A claim with what this machine says of it."""

    id: str
    claim: str
    published: str
    physics: str
    before: Word
    measured: str
    verdict: Word
    why: str
    facts: Mapping[str, Any]
