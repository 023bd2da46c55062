"""Who the command runs as, and what such a user finds."""

from __future__ import annotations

from typing import Any

import pytest


def test_every_kind_of_user_starts_silently_and_can_work(sh: Any, user: tuple[dict[str, Any], str]) -> None:
    settings, who = user
    script = (
        'echo "$(id -u):$(id -g)" && test -n "$USER" && test "$USER" = "$LOGNAME" && test "$SHELL" = /bin/bash && '
        'touch "$HOME/a" && touch models/b && mkdir -p "$TRITON_CACHE_DIR/c" && echo "$TRITON_CACHE_DIR"'
    )
    done = sh(script, **settings)
    assert (done.code, done.err) == (0, "")
    assert done.out.split() == [who, "/workspace/.cache/triton"]


@pytest.mark.parametrize(
    ("environment", "who"),
    [
        ({"PUID": "1001"}, "uid=1001(workspace) gid=1001(workspace) groups=1001(workspace)"),
        ({"PUID": "0501", "PGID": "20"}, "uid=501(workspace) gid=20(dialout) groups=20(dialout)"),
        ({"PUID": "33"}, "uid=33(www-data) gid=33(www-data) groups=33(www-data)"),
        ({"PUID": "4294967294"}, "uid=4294967294(workspace)"),
        ({"PUID": "1000", "PGID": "0"}, "uid=1000(workspace) gid=0(root)"),
        ({"PUID": "", "PGID": ""}, "uid=0(root) gid=0(root) groups=0(root)"),
    ],
)
def test_mapping(sh: Any, environment: dict[str, str], who: str) -> None:
    done = sh('id; stat -c %u "$HOME"', environment=environment)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(who)
    assert done.out.split()[-1] == who.partition("=")[2].partition("(")[0]


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"PUID": "abc"}, "PUID=abc is not a number"),
        ({"PUID": "-5"}, "PUID=-5 is not a number"),
        ({"PUID": "1.5"}, "PUID=1.5 is not a number"),
        ({"PUID": "4294967295"}, "PUID=4294967295 is not a number"),
        ({"PUID": "1000", "PGID": "users"}, "PGID=users is not a number"),
        ({"PUID": "0"}, "PUID=0 is root"),
        ({"PUID": "00"}, "PUID=00 is root"),
        ({"PGID": "1000"}, "PGID=1000 is set and PUID is not"),
    ],
)
def test_bad_number_stops_the_container(sh: Any, environment: dict[str, str], words: str) -> None:
    done = sh("echo started", environment=environment)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"error: {words}")
    assert len(done.err.splitlines()) == 1


def test_mapping_without_the_right_to_change_user_stops(sh: Any) -> None:
    done = sh("echo started", environment={"PUID": "1000"}, cap_drop=["ALL"])
    assert (done.code, done.out) == (2, "")
    assert "may not become user 1000" in done.err


def test_puid_beside_user_is_told(sh: Any) -> None:
    done = sh("id -u", environment={"PUID": "1000"}, user="12345:0")
    assert (done.code, done.out.strip()) == (0, "12345")
    assert "PUID=1000 has no effect" in done.err


def test_group_add_survives_mapping(sh: Any) -> None:
    assert sh("id -G", environment={"PUID": "1234"}, group_add=["44"]).out.split() == ["1234", "44"]


def test_mapped_user_cannot_become_root_again(sh: Any) -> None:
    done = sh("grep -E 'Cap(Eff|Prm)' /proc/self/status", environment={"PUID": "1234"})
    assert set(done.out.split()[1::2]) == {"0000000000000000"}


def test_home_that_was_mounted_is_left_alone(sh: Any, prepared: Any) -> None:
    script = "mkdir keys && echo x >keys/id && chown -R 1000:1000 ."
    mount = prepared(script, target="/home/workspace")
    done = sh(
        "stat -c %u /home/workspace /home/workspace/keys /home/workspace/keys/id", environment={"PUID": "1234"}, **mount
    )
    assert done.out.split() == ["1000", "1000", "1000"]


@pytest.mark.parametrize("shell", [("bash", "-lc"), ("sh", "-lc"), ("su", "-", "workspace", "-c")])
def test_login_shell_finds_the_tools(box: Any, facts: dict[str, Any], shell: tuple[str, ...]) -> None:
    done = box("command -v python; python --version; echo cuda=$CUDA_HOME; echo ld=$LD_LIBRARY_PATH", shell=shell)
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[:2] == ["/opt/venv/bin/python", f"Python {facts['python']}"]
    assert done.out.splitlines()[-1] == "ld="
    if facts["target"] == "devel":
        assert "cuda=/usr/local/cuda\n" in done.out
        assert f"V{facts['toolkit']}" in box("nvcc --version", shell=shell).out


def test_login_shell_of_a_user_without_an_entry(create: Any) -> None:
    container = create("sleep", "60", user="12345:12345", read_only=True, tmpfs={"/tmp": "exec"})
    container.start()
    script = "until [ -d /tmp/workspace-12345/cache ]; do sleep 0.1; done; . /etc/profile; "
    script += 'echo "$USER $LOGNAME $HOME $TRITON_CACHE_DIR"; test -w "$HOME"'
    code, out = container.exec_run(["bash", "-c", script])
    assert (code, out.decode().split()[:2]) == (0, ["workspace", "workspace"])
    assert out.decode().split()[2:] == ["/tmp/workspace-12345/home", "/tmp/workspace-12345/cache/triton"]


def test_ssh_lets_in_the_key_and_nobody_else(create: Any) -> None:
    script = """
        ssh-keygen -q -t ed25519 -N '' -f /tmp/key && ssh-keygen -q -t ed25519 -N '' -f /tmp/other
        export PUBLIC_KEY="$(cat /tmp/key.pub)"
        /opt/verify/entrypoint.sh true || exit 9
        try() { ssh -q -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null "$@"; }
        for i in 1 2 3 4 5 6 7 8 9 10; do try -i /tmp/key root@127.0.0.1 true && break; sleep 0.3; done
        try -i /tmp/key root@127.0.0.1 'command -v python' && ! try -i /tmp/other root@127.0.0.1 true
    """
    container = create("bash", "-c", script)
    container.start()
    assert container.wait(timeout=120)["StatusCode"] == 0
    assert container.logs(stdout=True).decode() == "/opt/venv/bin/python\n"
