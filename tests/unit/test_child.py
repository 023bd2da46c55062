import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from verify import child
from verify.child import Child


def code(text: str, timeout: float = 20) -> Child:
    return child.run([sys.executable, "-c", text], timeout=timeout)


@pytest.mark.parametrize(
    ("text", "name", "phrase"),
    [
        ("pass", "", ""),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "segfault", "SIGSEGV"),
        ("import os; os.abort()", "abort", "134"),
        ("import sys; sys.exit(134)", "abort", "134"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGBUS)", "bus error", "/dev/shm"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGUSR1)", "signal", "SIGUSR1"),
        ("import sys; sys.exit(3)", "exit", "exit code 3"),
    ],
)
def test_every_way_to_end_has_a_name(text: str, name: str, phrase: str) -> None:
    found = code(text).ending
    assert found[0] == name
    assert phrase in found[1]


def test_a_hang_is_ended_and_named() -> None:
    ended = code("import time; time.sleep(60)", timeout=0.3)
    assert ended.timed_out
    assert ended.ending == ("hang", "no answer within 0.3 s, so it was ended")


def test_what_a_hanging_child_started_is_ended_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # A loaded machine may take seconds to start an interpreter, so the time limit strikes when the grandchild is there.
    pid = tmp_path / "pid"

    def strike(process: subprocess.Popen[bytes], timeout: float | None = None) -> int:
        monkeypatch.undo()
        while not pid.exists():
            assert process.poll() is None, "the child ended by itself"
            time.sleep(0.01)
        raise subprocess.TimeoutExpired(process.args, timeout or 0)

    monkeypatch.setattr(subprocess.Popen, "wait", strike)
    ended = code(
        "import os, subprocess, sys, time\n"
        "p = subprocess.Popen(['sleep', '600'])\n"
        f"open({str(tmp_path / 'new')!r}, 'w').write(str(p.pid)); os.rename({str(tmp_path / 'new')!r}, {str(pid)!r})\n"
        "time.sleep(600)",
    )
    assert ended.ending[0] == "hang"
    gone(int(pid.read_text()))


def gone(pid: int) -> None:
    """Wait until `pid` has ended; SIGKILL takes effect when the process is next scheduled."""
    while True:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return
        if state in {"Z", "X"}:
            return
        time.sleep(0.01)


def test_a_grandchild_that_keeps_the_output_open_does_not_block() -> None:
    ended = code("import subprocess; print(subprocess.Popen(['sleep', '60'], start_new_session=True).pid)")
    os.kill(int(ended.stdout), signal.SIGKILL)  # it is still there, so nobody waited for it
    assert ended.ending == ("", "")


@pytest.mark.parametrize(
    ("killed", "name", "phrase"),
    [
        (True, "out of memory", "counted an out-of-memory kill"),
        (None, "out of memory", "most likely for lack of memory"),
        (False, "killed", "from outside"),
    ],
)
def test_sigkill_is_told_apart_by_the_cgroups_counter(killed: bool | None, name: str, phrase: str) -> None:
    found = Child(-signal.SIGKILL, "", "", "", 1.0, memory_killed=killed).ending
    assert found[0] == name
    assert phrase in found[1]


def test_the_counter_before_and_after_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = iter([4, 5])
    monkeypatch.setattr(child, "memory_kills", lambda: next(counts))
    ended = code("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    assert ended.ending[0] == "out of memory"
    assert ended.memory_killed is True


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"memory.events": "low 0\noom 3\noom_kill 2\noom_group_kill 0\n"}, 2),
        ({"memory/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 7\n"}, 7),
        ({"memory.events": "oom_kill many\n"}, None),
        ({}, None),
    ],
)
def test_memory_kills_of_both_cgroup_versions(tmp_path: Path, files: dict[str, str], expected: int | None) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert child.memory_kills(tmp_path) == expected


def test_the_answer_passes_by_what_libraries_print() -> None:
    text = (
        "from verify.child import answer\nprint('noise', flush=True)\nanswer({'a': 1})\nanswer({'a': 2})\nprint('more')"
    )
    ended, said = child.python(text, timeout=20)
    assert said == {"a": 2}
    assert ended.stdout == "noise\nmore\n"


def test_what_was_said_before_a_crash_is_kept() -> None:
    ended, said = child.python(
        "import os\nfrom verify.child import answer, ANSWER_FD\nanswer({'step': 1})\n"
        "os.write(int(os.environ[ANSWER_FD]), b'{\"step\": 2')\nos.abort()",
        timeout=20,
    )
    assert said == {"step": 1}
    assert ended.ending[0] == "abort"


def test_no_answer_is_none() -> None:
    assert child.python("pass", timeout=20)[1] is None


def test_a_program_that_does_not_exist_is_an_os_error() -> None:
    with pytest.raises(FileNotFoundError):
        child.run(["/nonexistent/program"], timeout=5)
