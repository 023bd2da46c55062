"""`@probe`: a function that runs in a child process with a GPU and returns an Outcome; and what it is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from verify.core import Outcome

DEVICE = "cuda"


@dataclass(frozen=True)
class Context:
    """What a probe may know of the machine: the first GPU's sm, the paths and the image's own statement on features.

    `place` is a folder code can be loaded from ("" when there is none), `disabled` what the image's FlashAttention
    leaves out, `gpus` how many devices there are, `jit` whether the driver can compile the PTX of torch's own CUDA.
    """

    sm: int = 0
    gpus: int = 1
    nvcc: str = ""
    place: str = ""
    disabled: tuple[str, ...] = ()
    jit: bool = False


Probe = Callable[[Context], Outcome]
PROBES: dict[str, Probe] = {}


def probe(function: Probe) -> Probe:
    """Register a probe as file.function; a file's probes run in the order they are written in."""
    PROBES[f"{function.__module__.rpartition('.')[2]}.{function.__name__}"] = function
    return function
