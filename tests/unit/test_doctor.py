"""`verify doctor` as a command, and the other places that use what it knows."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from verify import child, cli, engine, runner
from verify.commands import doctor
from verify.core import Check, Outcome, Status, check, pass_
from verify.doctor import diagnosis, digest, show
from verify.doctor.catalogue import BY_ID
from verify.machine import Machine

STUB = "RuntimeError: Unexpected error. Error 34: CUDA driver is a stub library\n"


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "log.txt"
    path.write_text(STUB)
    return path


def start(*words: str, stdin: object = subprocess.DEVNULL, **more: object) -> subprocess.CompletedProcess[str]:
    """`verify doctor` as a process of its own, as a person starts it."""
    argv = [sys.executable, "-S", "-m", "verify", "doctor", *words]
    environment = {**child.environment(), "VERIFY_REQUIRE": "none"}
    given = {"stdin": stdin} if "input" not in more else {}
    return subprocess.run(
        argv, check=False, capture_output=True, text=True, timeout=120, env=environment, **given, **more
    )  # type: ignore[call-overload,no-any-return]


def test_text_on_stdin_with_a_bare_python() -> None:
    ended = start(input=STUB)
    assert ended.returncode == 1
    assert ended.stdout.startswith("A stub libcuda is loaded (error 34)  [stub-libcuda]\n")
    assert "seen    line 1: RuntimeError" in ended.stdout
    assert "LIBRARY_PATH" in ended.stdout
    assert ended.stderr == ""


@pytest.mark.parametrize("name", ["-", None])
def test_text_from_stdin_or_file(text: Path, name: str | None) -> None:
    with text.open() as stream:
        assert start(*([name] if name else []), stdin=stream).returncode == 1
    assert cli.main(["doctor", str(text)]) == 1


@pytest.mark.parametrize(
    ("said", "code", "words"),
    [
        (STUB, 1, "stub libcuda"),
        ("epoch 1 loss 0.3\n", 0, "Nothing wrong was found."),
        (
            "Traceback (most recent call last):\n  File \"a.py\", line 3, in f\nKeyError: 'x'\n",
            3,
            "error of the program",
        ),
        ("frobnicator: error: it went wrong\n", 3, "Line 1 tells of an error that fits no failure known here"),
        ("SomethingNewError: nobody knows this\n", 3, "ends in SomethingNewError, which fits no failure"),
        ("Can't initialize NVML\nTrue 1\n", 0, "Harmless (line 1)"),
    ],
)
def test_exit_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str], said: str, code: int, words: str) -> None:
    path = tmp_path / "t.txt"
    path.write_text(said)
    assert cli.main(["doctor", str(path)]) == code
    shown = " ".join(capsys.readouterr().out.split())
    assert words in shown
    if code == 3:
        assert "Looked at: " in shown


def test_program_error_names_the_line_of_the_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t.txt"
    frames = '  File "/w/train.py", line 12, in main\n    f()\n'
    frames += '  File "/opt/venv/lib/python3.13/site-packages/x.py", line 5, in f\n'
    path.write_text(f"Traceback (most recent call last):\n{frames}    g()\nValueError: bad\n")
    assert cli.main(["doctor", str(path)]) == 3
    assert "raised in /w/train.py line 12" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("name", ["none.txt", "."])
def test_unreadable_text_is_a_bad_argument(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor", name]) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_empty_file_is_a_bad_argument(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "t").write_text(" \n\n")
    assert cli.main(["doctor", str(tmp_path / "t")]) == 2
    assert "is empty" in capsys.readouterr().err


def test_json(text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor", str(text), "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    first = said["findings"][0]
    assert (said["schema"], said["verdict"], first["id"], first["fault"]) == (1, "cause named", "stub-libcuda", "stack")
    assert first["line"] == 1
    assert set(first) >= {"title", "layer", "cause", "evidence", "fix", "command", "source", "versions"}
    assert "known failures" in said["looked_at"]


def test_silent_pipe_does_not_hang(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(doctor, "PATIENCE", 0.05)
    reading, writing = os.pipe()
    with os.fdopen(reading) as stream, os.fdopen(writing, "w"):
        assert doctor.given(None, stream) is None
    assert "no text came on stdin" in capsys.readouterr().err


def test_terminal_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.openpty()
    with os.fdopen(reading, "rb", buffering=0), os.fdopen(writing) as stream:
        assert stream.isatty()
        assert doctor.given(None, stream) is None


@pytest.mark.parametrize("stdin", [None, SimpleNamespace(closed=True)])
def test_no_stdin_at_all(stdin: object) -> None:
    assert doctor.given(None, stdin) is None


def test_stand_in_for_stdin_is_read() -> None:
    stream = doctor.given(None, io.StringIO("abc"))
    assert stream is not None
    assert stream.read() == b"abc"


def test_empty_stdin_looks_at_the_machine(monkeypatch: pytest.MonkeyPatch, healthy: Machine) -> None:
    asked: list[str | None] = []

    def machine_here(path: str | None) -> Machine:
        asked.append(path)
        return healthy

    monkeypatch.setattr(diagnosis, "machine_here", machine_here)
    monkeypatch.setattr(diagnosis, "quick", list)
    with open(os.devnull) as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        assert cli.main(["doctor"]) == 0
    assert asked == [None]


def test_facts_are_used_inside_the_image_only(
    monkeypatch: pytest.MonkeyPatch, text: Path, healthy: Machine, tmp_path: Path
) -> None:
    from verify import probe

    asked: list[str | None] = []
    monkeypatch.setattr(diagnosis, "machine_here", lambda path: (asked.append(path), healthy)[1])
    monkeypatch.setattr(probe, "IMAGE", tmp_path / "image.json")
    assert cli.main(["doctor", str(text)]) == 1
    assert asked == []
    (tmp_path / "image.json").write_text("{}")
    assert cli.main(["doctor", str(text)]) == 1
    assert asked == [None]


def test_most_fundamental_first_and_the_rest_in_short() -> None:
    log = (
        "torch._dynamo hit config.recompile_limit (8)\nOSError: [Errno 24] Too many open files\n"
        "Error 803: system has unsupported display driver\n"
    )
    found = diagnosis.of_text(digest.of(log))
    assert [f.id for f in found.findings] == ["driver-library-mismatch", "too-many-open-files", "recompile-limit"]
    shown = show.render(found, 100)
    assert shown.count("  cause   ") == 1
    assert "Also in the text" in shown


def test_consequences_are_left_out() -> None:
    log = (
        "Error 804: forward compatibility was attempted on non supported HW\nRuntimeError: No CUDA GPUs are available\n"
    )
    assert [f.id for f in diagnosis.of_text(digest.of(log)).findings] == ["compat-library-on-geforce"]


def test_wrapped_line_is_read_across_its_end() -> None:
    found = diagnosis.of_text(digest.of("RuntimeError: CUDA driver is a\nstub library\n"))
    assert [f.id for f in found.findings] == ["stub-libcuda"]


@pytest.mark.parametrize("ident", BY_ID)
def test_explain_knows_every_failure(ident: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", ident]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"{ident}\n")
    assert "  cause " in shown
    assert "  fix " in shown


def test_explain_still_knows_checks_and_refuses_the_rest(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", "stack.lock"]) == 0
    assert "Every locked package" in capsys.readouterr().out
    assert cli.main(["explain", "no.such-thing"]) == 2


def test_check_that_errors_gets_cause_and_fix(registry: dict[str, Check], healthy: Machine) -> None:
    @check()
    def breaks(m: Machine) -> Outcome:
        """Passes."""
        raise RuntimeError("Error 34: CUDA driver is a stub library")

    @check()
    def stumbles(m: Machine) -> Outcome:
        """Passes."""
        raise KeyError("x")

    @check()
    def works(m: Machine) -> Outcome:
        """Passes."""
        return pass_("CUDA driver is a stub library, says a check that passed.")

    told = {c.function.__name__: runner.run_one(c, healthy) for c in registry.values()}
    assert told["breaks"].status is Status.ERROR
    assert told["breaks"].hint.startswith(BY_ID["stub-libcuda"].cause)
    assert BY_ID["stub-libcuda"].fix in told["breaks"].hint
    assert "says nothing about the machine" in told["stumbles"].hint
    assert told["works"].hint == ""


@pytest.mark.parametrize(
    ("said", "ident"),
    [
        ('could not select device driver "" with capabilities: [[gpu]]', "toolkit-missing"),
        ("unknown or invalid runtime name: nvidia", "runtime-unknown"),
        ("write /var/lib/docker/x: no space left on device", "engine-disk-full"),
        (
            "nvidia-container-cli: initialization error: nvml error: driver not loaded: unknown",
            "kernel-module-not-loaded",
        ),
    ],
)
def test_engine_and_doctor_say_the_same(said: str, ident: str) -> None:
    sentence = engine.explain(said, image="a:1", socket="unix:///s")
    assert BY_ID[ident].fix[1:40] in sentence
    assert diagnosis.of_text(digest.of(f"docker: Error response from daemon: {said}")).findings[0].id == ident


def test_plain_words_of_another_program_are_not_the_engines() -> None:
    found = diagnosis.of_text(digest.of("FileNotFoundError: [Errno 2] No such file or directory: 'x.csv'\n"))
    assert found.findings == ()
    assert "No Docker engine" in engine.explain("FileNotFoundError: [Errno 2] No such file or directory")
