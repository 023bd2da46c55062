"""The words of this project: Status, Outcome, Result, Sample, Run, and `@check` and `@bench` with their registries.

A check is a function of the Machine that returns an Outcome. Its id is file.function, its title the first line of its
docstring, a sentence that is true when the check passes. A bench is a function that builds what is to be timed; it is
also a check of tier "speed", which measures it and holds the figure against the limit of the card.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from verify.plain import decode

if TYPE_CHECKING:
    from verify.machine import Machine
    from verify.speed.work import Setup, Work

SCHEMA = 1
NEEDS = ("gpu", "multi_gpu", "nvcc", "gcc", "torch", "xformers", "flash_attn", "bitsandbytes", "image", "docker")
TIERS = ("static", "gpu", "speed", "soak")
ABOUT = ("image", "container", "machine")
# Check files whose failure explains those of all others.
FIRST = ("targets",)


class Status(str, Enum):
    """How a check ended."""

    PASS = "pass"
    WARN = "warn"
    FAIL = "fail"
    ERROR = "error"
    SKIP = "skip"
    UNRATED = "unrated"
    INCONCLUSIVE = "inconclusive"

    def __str__(self) -> str:
        return self.value


# What makes `verify` end with exit code 1.
BAD = frozenset({Status.FAIL, Status.ERROR})


class UsageError(Exception):
    """No verdict is possible (exit code 2); the text is one sentence for the person who called."""


class DefinitionError(Exception):
    """A check is declared wrongly; raised while its file is imported."""


@dataclass(frozen=True)
class Outcome:
    """What a check returns. `message` says what and why in one sentence, `hint` says what to do."""

    status: Status
    message: str
    hint: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Result:
    """An Outcome with the check it came from and the seconds it took."""

    id: str
    title: str
    tier: str
    about: str
    status: Status
    message: str
    hint: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0


@dataclass(frozen=True)
class Sample:
    """Raw values of one measurement; `better` is "higher" or "lower", statistics are derived where they are shown."""

    id: str
    unit: str
    better: str
    values: tuple[float, ...]
    conditions: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Run:
    """One call of `verify`. Times are ISO 8601 in UTC; `complete` is False when it was cut short."""

    started: str
    finished: str
    complete: bool
    machine: Mapping[str, Any]
    image: Mapping[str, Any] | None
    results: tuple[Result, ...]
    samples: tuple[Sample, ...] = ()
    schema: int = SCHEMA

    def counts(self) -> dict[Status, int]:
        """How many results have each status, in the order of Status, zeros left out."""
        return {s: n for s in Status if (n := sum(r.status is s for r in self.results))}

    def ok(self) -> bool:
        """True when every selected check was run and none failed."""
        return self.complete and not any(r.status in BAD for r in self.results)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Run:
        """The inverse of `to_dict`, unknown keys ignored; ValueError when `data` is not a run of this schema."""
        if not isinstance(data, Mapping) or data.get("schema") != SCHEMA:
            found = data.get("schema") if isinstance(data, Mapping) else type(data).__name__
            raise ValueError(f"not a report of schema {SCHEMA}: found {found!r}")
        try:
            made: Run = decode(Run, data)
            return made
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a complete report: {error}") from error


def pass_(message: str, *, hint: str = "", data: Mapping[str, Any] | None = None) -> Outcome:
    """All is well; the message gives the facts found."""
    return Outcome(Status.PASS, message, hint, data or {})


def warn(message: str, *, hint: str = "", data: Mapping[str, Any] | None = None) -> Outcome:
    """Works, but a person should know."""
    return Outcome(Status.WARN, message, hint, data or {})


def fail(message: str, *, hint: str, data: Mapping[str, Any] | None = None) -> Outcome:
    """Broken. ValueError without a hint: a failure that does not say what to do is a defect of the check."""
    if not hint.strip():
        raise ValueError(f"a failure needs a hint that says what to do: {message}")
    return Outcome(Status.FAIL, message, hint, data or {})


def skip(message: str, *, hint: str = "", data: Mapping[str, Any] | None = None) -> Outcome:
    """Could not be judged here; the message says why. A skip is not a pass."""
    return Outcome(Status.SKIP, message, hint, data or {})


CheckFunction = Callable[["Machine"], Outcome]


@dataclass(frozen=True)
class Check:
    """A declared check. `timeout` in seconds; `isolate` runs it in a child process."""

    id: str
    title: str
    text: str
    function: CheckFunction
    needs: tuple[str, ...]
    tier: str
    about: str
    isolate: bool
    timeout: float


REGISTRY: dict[str, Check] = {}


def check(
    *,
    needs: str | Iterable[str] = (),
    tier: str = "",
    about: str = "",
    isolate: bool = False,
    timeout: float = 60.0,
) -> Callable[[CheckFunction], CheckFunction]:
    """Declare a check. A check that needs a GPU is of tier "gpu" and about the "machine" unless it says otherwise."""
    names = (needs,) if isinstance(needs, str) else tuple(needs)
    on_gpu = "gpu" in names or "multi_gpu" in names
    tier = tier or ("gpu" if on_gpu else "static")
    about = about or ("machine" if on_gpu else "image")

    def register(function: CheckFunction) -> CheckFunction:
        ident = f"{function.__module__.rpartition('.')[2]}.{function.__name__}"
        text = (function.__doc__ or "").strip()
        if not text:
            raise DefinitionError(f"check {ident} has no docstring: its first line is the title people read")
        if ident in REGISTRY:
            raise DefinitionError(f"two checks are called {ident}")
        declared = [("tier", tier, TIERS), ("about", about, ABOUT), *(("need", name, NEEDS) for name in names)]
        for kind, value, known in declared:
            if value not in known:
                raise DefinitionError(f"check {ident} has the unknown {kind} {value!r}, known: {', '.join(known)}")
        title = " ".join(text.split("\n\n")[0].split())
        REGISTRY[ident] = Check(ident, title, text, function, names, tier, about, isolate, timeout)
        return function

    return register


@dataclass(frozen=True)
class Bench:
    """A declared benchmark. `build` gives the closures to time; it runs in a fresh process that its `group` shares.

    `figure` is a key of FIGURES, "ratio" being eager ÷ compiled. `bound` names what the ceiling is made of: a number
    format, "memory", "pcie" or "". `seconds` is what it takes in one process with warm caches.
    """

    id: str
    title: str
    build: Callable[[Setup], Work]
    figure: str
    unit: str
    better: str
    bound: str
    quick: bool
    group: str
    seconds: float


BENCHES: dict[str, Bench] = {}
FIGURES = {"ratio": "x", "rate": "TFLOP/s", "bandwidth": "GB/s", "items": "1/s", "time": "ms"}


def bench(
    *,
    figure: str,
    unit: str = "",
    bound: str = "",
    quick: bool = False,
    group: str = "",
    seconds: float = 5.0,
    needs: Iterable[str] = (),
) -> Callable[[Callable[[Setup], Work]], Callable[[Setup], Work]]:
    """Declare a benchmark, and with it the check of tier "speed" that runs it alone."""
    if figure not in FIGURES:
        raise DefinitionError(f"unknown figure {figure!r}, known: {', '.join(FIGURES)}")

    def register(function: Callable[[Setup], Work]) -> Callable[[Setup], Work]:
        file = function.__module__.rpartition(".")[2]
        ident = f"{file}.{function.__name__}"

        def measure(m: Machine) -> Outcome:
            from verify.speed.rounds import measure_one

            return measure_one(BENCHES[ident], m)

        measure.__module__, measure.__name__, measure.__doc__ = function.__module__, function.__name__, function.__doc__
        check(needs=("gpu", "torch", *needs), tier="speed", timeout=1800.0)(measure)
        better = "lower" if figure == "time" else "higher"
        title, unit_ = REGISTRY[ident].title, unit or FIGURES[figure]
        BENCHES[ident] = Bench(ident, title, function, figure, unit_, better, bound, quick, group or file, seconds)
        return function

    return register


def discover(*packages: str) -> dict[str, Check]:
    """Import every file of `packages` and return the registry: FIRST first, then by package, file and place."""
    for package in packages or ("verify.checks", "verify.bench"):
        found = importlib.import_module(package)
        for name in sorted(module.name for module in pkgutil.iter_modules(found.__path__)):
            importlib.import_module(f"{package}.{name}")
    return dict(sorted(REGISTRY.items(), key=lambda item: item[0].partition(".")[0] not in FIRST))


def select(checks: Mapping[str, Check], ids: Iterable[str], tiers: Iterable[str], abouts: Iterable[str]) -> list[Check]:
    """The checks named by `ids` (an id or a file; all when empty) that are of `tiers` and about `abouts` (empty: any).

    A check asked for by its full id is taken whatever its tier. UsageError names an id that does not exist.
    """
    tiers, abouts, chosen = set(tiers), set(abouts), list(ids)
    for name in chosen:
        if name not in checks and not any(i.startswith(f"{name}.") for i in checks):
            raise UsageError(f"There is no check or check file called {name!r}; `verify list` names them all.")

    def wanted(c: Check) -> bool:
        if abouts and c.about not in abouts:
            return False
        if c.id in chosen:
            return True
        in_file = not chosen or c.id.partition(".")[0] in chosen
        return in_file and (not tiers or c.tier in tiers)

    return [c for c in checks.values() if wanted(c)]
