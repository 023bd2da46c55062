"""What can stand in for a library when a process starts: another libcuda, LD_LIBRARY_PATH, LD_PRELOAD."""

from __future__ import annotations

import sys
from pathlib import Path

from verify import child, loader, shadowing
from verify.core import Outcome, check, fail, pass_, skip
from verify.machine import Machine
from verify.wording import some

_VARIABLES = ("LD_LIBRARY_PATH", "LD_PRELOAD")
_PROBE = "import torch; torch.backends.cudnn.version(); torch.zeros(2).sum(); print('import-ok')"


@check()
def libcuda_is_the_drivers(m: Machine) -> Outcome:
    """The image holds no stub and no cuda-compat library that the loader would take for the driver.

    A stub ends in error 34, cuda-compat in error 804 on every GeForce card. Without a GPU there is no libcuda at all;
    LD_LIBRARY_PATH is judged elsewhere.
    """
    if m.recorded:
        return skip("The libraries of a recorded machine are not here to be read.")
    wrong = shadowing.wrong_driver_library(loader.present_search({}))
    if wrong and wrong[1] == "stub":
        return fail(
            f"The loader takes the stub {wrong[0]} for the driver, and every CUDA call ends in error 34.",
            hint="Take its folder out of /etc/ld.so.conf.d, or delete the link, and run ldconfig; -L is for linking.",
            data={"libcuda": str(wrong[0])},
        )
    compat = [wrong[0]] if wrong else list(shadowing.compat_libraries())
    if compat:
        return fail(
            f"cuda-compat is installed ({compat[0]}); its libcuda ends in error 804 on every GeForce card.",
            hint="Remove the cuda-compat package and its file in /etc/ld.so.conf.d, then run ldconfig.",
            data={"libcuda": str(compat[0])},
        )
    return pass_("No stub and no cuda-compat library stands in for the driver.")


@check(needs="torch", about="container", timeout=180)
def environment_leaves_torch_alone(m: Machine) -> Outcome:
    """LD_LIBRARY_PATH and LD_PRELOAD, if set, do not stop torch and cuDNN from loading.

    With one of them set, a child process really imports torch and loads cuDNN. A path that only repeats what torch
    finds by itself (/usr/local/cuda/lib64) does no harm with torch 2.8 and is not reported.
    """
    if m.recorded:
        return skip("The environment of a recorded machine cannot be tried.")
    given = {name: m.env[name] for name in _VARIABLES if m.env.get(name)}
    if not given:
        return pass_("LD_LIBRARY_PATH and LD_PRELOAD are not set.")
    python = m.python.executable or sys.executable
    ended = child.run([python, "-c", _PROBE], timeout=80, env=dict(m.env))
    settings = ", ".join(f"{name}={value}" for name, value in given.items())
    if ended.rc == 0 and "import-ok" in ended.stdout:
        return pass_(f"torch and cuDNN load with {settings}.")
    how = ended.ending[1] or "no answer"
    why = next((line.strip() for line in reversed(ended.tail.splitlines()) if line.strip()), "no message")
    plain = {name: value for name, value in m.env.items() if name not in _VARIABLES}
    alone = child.run([python, "-c", _PROBE], timeout=80, env=plain)
    if alone.rc != 0:
        return fail(
            f"torch does not load, with or without {' and '.join(given)}: it ended with {how} ({why}).",
            hint="The environment is not the cause: look at the other failed checks of this group first.",
            data={"stderr": ended.tail},
        )
    taken = {
        folder: list(names)
        for folder in loader.present_search(m.env).library_path
        if (names := shadowing.shadows(Path(folder)))
    }
    named = some(f"{', '.join(names)} in {folder}" for folder, names in taken.items())
    return fail(
        f"With {settings} loading torch and cuDNN ends with {how}: {why}"
        + (f" (taken from there: {named})." if named else "."),
        hint=f"Unset {' and '.join(given)}: torch finds its libraries by itself, and loads without.",
        data={"shadowing": taken, "stderr": ended.tail},
    )
