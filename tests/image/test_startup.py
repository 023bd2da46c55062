"""The start itself: silence, exit codes, signals, hooks, an init of Docker's or none."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"init": True},
        {"environment": {"PUID": "1234"}, "init": True},
        {"entrypoint": ["/opt/verify/entrypoint.sh"]},
        {"user": "12345:12345"},
        {"network_mode": "none"},
        {"cap_drop": ["ALL"], "security_opt": ["no-new-privileges"]},
    ],
)
def test_silent(run: Any, settings: dict[str, Any]) -> None:
    done = run("true", **settings)
    assert (done.code, done.out, done.err) == (0, "", "")


@pytest.mark.parametrize(
    ("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137), ("kill -ABRT $$", 134)]
)
def test_exit_code_passes_through(client: Any, image: Any, script: str, code: int) -> None:
    container = client.containers.create(image.attrs["asked"], ["bash", "-c", script])
    try:
        container.start()
        assert container.wait(timeout=60)["StatusCode"] == code
    finally:
        container.remove(force=True)


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        ("no-such-program", 127, "no-such-program is no command"),
        ("--version", 127, "--version is no command"),
        ("/etc/passwd", 126, "/etc/passwd is not executable"),
    ],
)
def test_command_that_cannot_be_run(client: Any, image: Any, command: str, code: int, words: str) -> None:
    container = client.containers.create(image.attrs["asked"], [command])
    try:
        container.start()
        assert container.wait(timeout=60)["StatusCode"] == code
        assert words in container.logs().decode()
        assert len(container.logs().decode().splitlines()) == 1
    finally:
        container.remove(force=True)


@pytest.mark.parametrize(
    "settings", [{}, {"init": True}, {"environment": {"PUID": "1234"}}], ids=["tini", "init", "mapped"]
)
def test_stop_needs_no_kill(client: Any, image: Any, settings: dict[str, Any]) -> None:
    """A child of the command ends with it, within 3 s: later it would be killed, and the exit code 137."""
    script = "trap 'exit 5' TERM; python -c 'import time; print(1, flush=True); time.sleep(99)' & wait"
    container = client.containers.create(image.attrs["asked"], ["bash", "-c", script], **settings)
    try:
        container.start()
        next(iter(container.logs(stream=True, follow=True)))
        container.stop(timeout=3)
        assert container.wait(timeout=60)["StatusCode"] == 5
    finally:
        container.remove(force=True)


def test_first_process(run: Any, sh: Any) -> None:
    assert sh("cat /proc/1/comm").out.strip() == "tini"
    assert sh("cat /proc/1/comm", init=True).out.strip() == "docker-init"


def test_default_command_is_a_login_shell_in_workspace(client: Any, image: Any) -> None:
    assert image.attrs["Config"]["Cmd"] == ["bash", "-l"]
    assert image.attrs["Config"]["WorkingDir"] == "/workspace"
    out = client.containers.run(image.attrs["asked"], remove=True, stderr=True)
    assert out == b""


def test_hooks_run_in_order_as_the_user(sh: Any) -> None:
    files = {
        "/opt/verify/hooks.d/20-b.sh": "export TRAIL=$TRAIL,b:$(id -u); return 3",
        "/opt/verify/hooks.d/10-a.sh": "export TRAIL=a",
    }
    done = sh("echo $TRAIL", files=files, environment={"PUID": "1234"})
    assert (done.code, done.out) == (0, "a,b:1234\n")
    assert "20-b.sh failed with exit code 3" in done.err


def test_restart_keeps_the_mapping(create: Any) -> None:
    container = create("sh", "-c", "id -u; stat -c %u README.md", environment={"PUID": "1234"})
    for _ in range(2):
        container.start()
        assert container.wait(timeout=60)["StatusCode"] == 0
    assert container.logs(stderr=True).decode().split() == ["1234"] * 4
