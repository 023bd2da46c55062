"""Child processes: what must not take `verify` down with it runs here, and every way to end has a name.

Output and answer go through anonymous memory files: nothing blocks on a full pipe or on a grandchild that keeps one
open, and nothing needs a writable disk, which may be the very thing that is broken.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ANSWER_FD = "VERIFY_ANSWER_FD"
TAIL = 4000  # characters of output kept for a report
ROOT = Path(__file__).resolve().parent.parent

# Ending → what a person reads. "signal" and "exit" are completed with their number.
SIGNALS = {
    signal.SIGSEGV: ("segfault", "a segmentation fault (SIGSEGV)"),
    signal.SIGABRT: ("abort", "an abort (SIGABRT, exit code 134)"),
    signal.SIGBUS: ("bus error", "a bus error (SIGBUS), as a full /dev/shm causes"),
    signal.SIGILL: ("illegal instruction", "an illegal instruction (SIGILL)"),
    signal.SIGFPE: ("arithmetic fault", "an arithmetic fault (SIGFPE)"),
}


@dataclass(frozen=True)
class Child:
    """A child process that has ended. `rc` is negative for a signal, as subprocess gives it.

    `memory_killed` is True or False when the cgroup's counters tell, None when they cannot be read.
    """

    rc: int
    stdout: str
    stderr: str
    answer: str
    seconds: float
    timed_out: bool = False
    memory_killed: bool | None = None
    timeout: float = 0.0

    @property
    def ending(self) -> tuple[str, str]:
        """How it ended, as a name and a phrase: ("abort", "an abort (SIGABRT, exit code 134)"); ("", "") if well."""
        if self.timed_out:
            return "hang", f"no answer within {self.timeout:g} s, so it was ended"
        if self.rc == 0:
            return "", ""
        number = -self.rc if self.rc < 0 else self.rc - 128
        if number == signal.SIGKILL:
            if self.memory_killed:
                return "out of memory", "a kill for lack of memory (SIGKILL; the cgroup counted an out-of-memory kill)"
            if self.memory_killed is None:
                return "out of memory", "SIGKILL, most likely for lack of memory (the cgroup's counters cannot be read)"
            return "killed", "SIGKILL from outside (the cgroup counted no out-of-memory kill)"
        with contextlib.suppress(ValueError):
            known = signal.Signals(number)
            return SIGNALS.get(known, ("signal", f"signal {known.name}"))
        return "exit", f"exit code {self.rc}"

    @property
    def tail(self) -> str:
        """The end of what it wrote to stderr, or to stdout when stderr is empty."""
        return (self.stderr.strip() or self.stdout.strip())[-TAIL:]


def memory_kills(root: Path = Path("/sys/fs/cgroup")) -> int | None:
    """How often the kernel killed something in this cgroup for lack of memory; None when no counter can be read."""
    for path in (root / "memory.events", root / "memory" / "memory.oom_control"):
        with contextlib.suppress(OSError, ValueError):
            for line in path.read_text().splitlines():
                key, _, value = line.partition(" ")
                if key == "oom_kill":
                    return int(value)
    return None


def scratch() -> io.BufferedRandom:
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("verify"), "w+b")
    return tempfile.TemporaryFile()


def _text(file: io.BufferedRandom) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def run(
    argv: Sequence[str | os.PathLike[str]],
    *,
    timeout: float,
    env: Mapping[str, str] | None = None,
    stdin: str = "",
    cwd: str | os.PathLike[str] | None = None,
) -> Child:
    """Run `argv` in a process group of its own and wait at most `timeout` seconds; whatever is left of it is killed.

    `env` replaces the environment. OSError when the program cannot be started.
    """
    with scratch() as given, scratch() as out, scratch() as err, scratch() as answer:
        given.write(stdin.encode())
        given.seek(0)
        environment = {**(os.environ if env is None else env), ANSWER_FD: str(answer.fileno())}
        kills, started, timed_out = memory_kills(), time.monotonic(), False
        process = subprocess.Popen(
            argv,
            stdin=given,
            stdout=out,
            stderr=err,
            env=environment,
            cwd=cwd,
            pass_fds=[answer.fileno()],
            start_new_session=True,
        )
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            timed_out = True
        finally:
            # The group outlives its leader when a compiler or a DataLoader worker is still running.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        after = memory_kills()
        killed = None if kills is None or after is None else after > kills
        seconds = time.monotonic() - started
        return Child(process.returncode, _text(out), _text(err), _text(answer), seconds, timed_out, killed, timeout)


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment with this very `verify` importable, and `extra` on top."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH", "")])])
    return {**os.environ, "PYTHONPATH": path, **(extra or {})}


def python(code: str, *args: str, timeout: float, env: Mapping[str, str] | None = None) -> tuple[Child, Any]:
    """Run `code` in a fresh interpreter; it calls `verify.child.answer(data)` as often as it likes, the last counts.

    Gives the child and its last answer, None when there is none. `env` is added to the environment.
    """
    child = run([sys.executable, "-c", code, *args], timeout=timeout, env=environment(env))
    return child, last_answer(child)


def last_answer(child: Child) -> Any:
    """The last whole line a child gave to `answer`; a child that dies half-way keeps what it said before."""
    for line in reversed(child.answer.split("\n")[:-1]):
        with contextlib.suppress(ValueError):
            return json.loads(line)
    return None


def answer(data: Any) -> None:
    """Called in a child: hand `data` (JSON) to the parent, past whatever libraries print."""
    os.write(int(os.environ[ANSWER_FD]), (json.dumps(data, default=str) + "\n").encode())


def main() -> None:
    """In the child: run the check named on stdin and answer with its outcome or its exception."""
    faulthandler.enable()
    order = json.loads(sys.stdin.read())
    sys.path[:] = order["path"]
    from verify.machine import Machine

    try:
        function = getattr(importlib.import_module(order["module"]), order["function"])
        outcome = function(Machine.from_dict(order["machine"]))
        answer({"status": outcome.status, "message": outcome.message, "hint": outcome.hint, "data": dict(outcome.data)})
    except BaseException as error:
        import traceback

        traceback.print_exc()
        answer({"raised": type(error).__name__, "message": str(error)})
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # a library's atexit handlers are not under test, and may hang


if __name__ == "__main__":
    main()
