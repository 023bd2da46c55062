"""What a night is made with: names, commands, places. Nothing is read from the environment below the command line."""

from __future__ import annotations

import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from verify import reference
from verify.core import UsageError

TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")  # by the distribution specification
CANDIDATE = "candidate"


@dataclass(frozen=True)
class Settings:
    """`image` is the local name that `build` makes; `repository` is registry/name without a tag. Commands are one line
    of shell each, "" for none; `{image}` in one stands for the local name. `keep` counts verified nights, `attempts`
    tries of a push, `timeout` is in seconds for the checks.
    """

    image: str
    repository: str
    state: Path
    build: str
    test: str
    resolve: str = ""
    gpu_host: str = ""
    without_gpu: bool = False
    again: bool = False
    tags: tuple[str, ...] = ("2.8.0-toolkit12.4",)
    keep: int = 7
    key: str = ""
    attempts: int = 3
    timeout: float = 3600.0
    wait: float = 5.0

    @property
    def promotions(self) -> str:
        """Which digest was promoted when and why."""
        return str(self.state / "promotions.jsonl")

    @property
    def history(self) -> str:
        """The measurements of the nights."""
        return str(self.state / "history.jsonl")

    @property
    def candidates(self) -> str:
        """Every digest that was ever pushed, so that none is forgotten in the registry."""
        return str(self.state / "candidates.jsonl")


def checked(settings: Settings) -> Settings:
    """The settings when names are names; UsageError before anything is built or sent when one is not."""
    for tag in settings.tags:
        if not TAG.fullmatch(tag):
            raise UsageError(
                f"{tag!r} cannot be a tag: letters, digits, _, . and - are allowed, 128 at most, none of . - first."
            )
        if tag in (CANDIDATE, "latest"):
            raise UsageError(f"The tag {tag} is the pipeline's own: take it out of --tag.")
    given = reference.parse(settings.repository)
    if given.name != settings.repository:
        raise UsageError(f"{settings.repository!r} has a tag or a digest: give registry/name alone, tags follow.")
    reference.parse(settings.image)
    if settings.keep < 1:
        raise UsageError(f"--keep {settings.keep} would leave no verified image: keep 1 or more.")
    return settings


def repeat(settings: Settings, stage: str) -> str:
    """The command line that repeats one stage of the night at hand."""
    words = [sys.executable, "-m", "verify", "nightly", "run", "--stage", stage]
    pairs = [("--image", settings.image), ("--repository", settings.repository), ("--state", str(settings.state))]
    pairs += [("--build", settings.build), ("--test", settings.test), ("--resolve", settings.resolve)]
    pairs += [("--gpu-host", settings.gpu_host), ("--sign-key", settings.key), ("--keep", str(settings.keep))]
    words += [f"{name}={value}" for name, value in pairs]
    words += [f"--tag={tag}" for tag in settings.tags]
    words += ["--without-gpu"] * settings.without_gpu + ["--again"] * settings.again
    return shlex.join(words)
