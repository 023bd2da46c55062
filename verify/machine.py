"""Machine: every fact about driver, GPUs, container and software, read once, as plain frozen data.

Reading never raises: what could not be read is left empty and `problems` says why, by the name of the fact.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from verify.core import UsageError
from verify.facts import UNLIMITED, Container, DeviceNode, Disk, Driver, Gpu, Python, System, Toolkit
from verify.plain import decode

__all__ = [
    "SCHEMA",
    "UNLIMITED",
    "Container",
    "DeviceNode",
    "Disk",
    "Driver",
    "Gpu",
    "Machine",
    "Python",
    "System",
    "Toolkit",
    "load",
    "read",
]

SCHEMA = 1


@dataclass(frozen=True)
class Machine:
    """Everything, once. `recorded` is True when it came from a file: live probing then proves nothing about it."""

    taken: str = ""
    recorded: bool = False
    system: System = field(default_factory=System)
    container: Container = field(default_factory=Container)
    disks: tuple[Disk, ...] = ()
    mounts: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    driver: Driver = field(default_factory=Driver)
    gpus: tuple[Gpu, ...] = ()
    toolkit: Toolkit = field(default_factory=Toolkit)
    python: Python = field(default_factory=Python)
    image: Mapping[str, Any] | None = None
    problems: Mapping[str, str] = field(default_factory=dict)
    schema: int = SCHEMA

    def disk(self, name: str) -> Disk | None:
        """The folder called `name`: root, tmp, shm, workspace, home, or the name of a cache variable."""
        return next((d for d in self.disks if d.name == name), None)

    def package(self, name: str) -> str:
        """The installed version of a distribution by its normalised name, "" when absent."""
        return self.python.packages.get(name, "")

    def unmet(self, need: str) -> str:
        """Why this machine does not meet `need`, one sentence; "" when it does."""
        from verify.needs import unmet

        return unmet(self, need)

    def remedy(self, need: str) -> str:
        """What to do so that `need` is met."""
        from verify.needs import remedy

        return remedy(self, need)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return dataclasses.asdict(self)

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Machine:
        """The inverse of `to_dict`: unknown keys are ignored, absent ones take their default; ValueError otherwise."""
        if not isinstance(data, Mapping) or data.get("schema") != SCHEMA:
            raise ValueError(f"not a machine record of schema {SCHEMA}")
        made: Machine = decode(Machine, data)
        return made


def read() -> Machine:
    """Read this machine: under 3 s without a GPU, imports nothing of the Python stack."""
    from verify.probe import probe

    return probe()


def load(path: str) -> Machine:
    """A recorded machine from the JSON file `verify machine` wrote; UsageError says what is wrong with the file."""
    try:
        data = json.loads(Path(path).read_text())
        if isinstance(data, dict) and "machine" in data and "results" in data:
            data = data["machine"]  # a whole report carries the machine too
        return dataclasses.replace(Machine.from_dict(data), recorded=True)
    except OSError as error:
        raise UsageError(f"The recorded machine {path} cannot be read: {error.strerror}.") from error
    except (ValueError, TypeError) as error:
        raise UsageError(f"{path} is not a machine recorded by `verify machine`: {error}.") from error
