"""In the child process: run the probes of one file in order and tell the outcome of each before the next.

Called as `python -m verify.gpu.worker FILE CONTEXT [NAME…]`; without names all probes of the file run. FILE is one of
verify/gpu, several of them joined by +, or a module by its whole dotted name.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import sys
import time
import traceback
from typing import Any

from verify.child import answer
from verify.gpu.probes import PROBES, Context
from verify.plain import decode
from verify.runner import STICKY

TAIL = 4000


def main(argv: list[str]) -> None:
    """Answer {"order": names, "done": {name: outcome or exception}, "now": the running one}."""
    faulthandler.enable()
    for file in argv[0].split("+"):
        importlib.import_module(file if "." in file else f"verify.gpu.{file}")
    context: Context = decode(Context, json.loads(argv[1]))
    order = argv[2:] or list(PROBES)
    said: dict[str, Any] = {"order": order, "done": {}, "now": ""}
    for name in order:
        said["now"] = name
        answer(said)
        started = time.monotonic()
        try:
            made = PROBES[name](context)
            found: dict[str, Any] = {
                "status": made.status,
                "message": made.message,
                "hint": made.hint,
                "data": dict(made.data),
            }
        except BaseException as error:
            trace = traceback.format_exc()
            found = {"raised": type(error).__name__, "message": str(error), "trace": trace[-TAIL:]}
        found["seconds"] = round(time.monotonic() - started, 3)
        said["done"][name], said["now"] = found, ""
        answer(said)
        if "raised" in found and STICKY.search(str(found["message"])):
            break  # every later CUDA call of this process would fail; the parent starts another for the rest
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # a library's atexit handlers are not under test, and may hang


if __name__ == "__main__":
    main(sys.argv[1:])
