"""The child that measures one work: `python -m verify.claims.worker WORK DEVICE [tiny]`; facts go up as they come."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from functools import partial

from verify import child
from verify.claims import llm, vision
from verify.claims.meter import Notes, NotHere, out_of_memory

# Work → (seconds it may take, what measures it). The order is that of `verify claims`.
WORKS: dict[str, tuple[float, Callable[[Notes, str, bool], None]]] = {
    "resnet": (120.0, vision.resnet),
    "llama_fp16": (150.0, partial(llm.decode, int8=False)),
    "llama_int8": (180.0, partial(llm.decode, int8=True)),
    "sampling": (150.0, vision.sampling),
    "train7b": (240.0, llm.training),
    "yolo": (120.0, vision.yolo),
}


def main(argv: list[str]) -> None:
    """Measure; the last answer holds the facts and, if it stopped early, why."""
    name, device, tiny = argv[0], argv[1], len(argv) > 2
    notes, problem = Notes(), ""
    try:
        WORKS[name][1](notes, device, tiny)
    except NotHere as reason:
        problem = str(reason)
    except Exception as error:
        traceback.print_exc()
        problem = f"{type(error).__name__}: {''.join(str(error).strip().splitlines()[:1])}"
        if out_of_memory(error):
            problem = "It does not fit into this card's memory."
    child.answer({"facts": notes.facts, "problem": problem})
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # a library's atexit handlers may hang, and the measurement is done


if __name__ == "__main__":
    main(sys.argv[1:])
