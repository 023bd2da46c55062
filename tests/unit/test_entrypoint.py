"""docker/entrypoint.sh without Docker, in a folder that stands for /: words, seeding, caches, hooks, the command.

What needs root or mounts (user mapping, read-only and foreign folders) is in tests/image.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "docker/entrypoint.sh"
SKELETON = ROOT / "workspace-skeleton"
CACHES = {
    "HF_HOME": "huggingface",
    "PIP_CACHE_DIR": "pip",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TRITON_CACHE_DIR": "triton",
}

Start = Callable[..., "subprocess.CompletedProcess[str]"]
pytestmark = pytest.mark.skipif(not shutil.which("getent"), reason="the script runs on Linux only")


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Runs the script with every path of the image moved below tmp_path."""
    text = SCRIPT.read_text()
    for path in ("/workspace", "/opt/verify", "/run/sshd", "/etc/passwd", "/etc/group", "/home"):
        text = text.replace(f" {path}", f" {tmp_path}{path}").replace(f"={path}", f"={tmp_path}{path}")
        text = text.replace(f'"{path}', f'"{tmp_path}{path}')
    script = tmp_path / "entrypoint.sh"
    script.write_text(text)
    for folder in ("workspace", "opt/verify/hooks.d", "home", "tmp"):
        (tmp_path / folder).mkdir(parents=True)
    shutil.copytree(SKELETON, tmp_path / "opt/verify/skeleton")
    caches = {name: f"{tmp_path}/workspace/.cache/{folder}" for name, folder in CACHES.items()}
    base = {"PATH": os.environ["PATH"], "HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path / "tmp")}
    base |= caches | {"XDG_CACHE_HOME": f"{tmp_path}/workspace/.cache"}

    def run(*command: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", str(script), *command], env=base | env, capture_output=True, text=True, timeout=60, check=False
        )

    return run


def test_silent_when_all_is_well(start: Start) -> None:
    done = start("true")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        (("sh", "-c", "exit 7"), 7, ""),
        (("no-such-program",), 127, "no-such-program is no command in this image."),
        (("--help",), 127, "--help is no command"),
        ((str(SKELETON / "README.md"),), 126, "README.md is not executable"),
    ],
)
def test_command(start: Start, command: tuple[str, ...], code: int, words: str) -> None:
    done = start(*command)
    assert done.returncode == code
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == bool(words)


def test_arguments_arrive_unchanged(start: Start) -> None:
    done = start("printf", "<%s>", "a b", "", "$HOME", "*")
    assert done.stdout == "<a b><><$HOME><*>"


@pytest.mark.parametrize("value", ["abc", "-1", "1.5", "4294967295", "99999999999", "0x10", "1 2", "1;id"])
def test_bad_number_stops_with_one_sentence(start: Start, value: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root maps users; the image tests cover it")
    done = start("id", PUID=value)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: PUID={value} is not a number from 0 to 4294967294")
    assert len(done.stderr.splitlines()) == 1


def test_skeleton_is_copied_without_git_files(start: Start, tmp_path: Path) -> None:
    assert start("true").returncode == 0
    found = {str(p.relative_to(tmp_path / "workspace")) for p in (tmp_path / "workspace").rglob("*")}
    wanted = {str(p.relative_to(SKELETON)) for p in SKELETON.rglob("*") if p.name not in (".gitkeep", "__pycache__")}
    wanted = {name for name in wanted if not name.endswith(".pyc")}
    assert {"README.md", "README.zh-CN.md", "models", "data", "output", "scripts/quick_check.py"} <= wanted
    assert found == wanted | {".cache", *(f".cache/{name}" for name in CACHES.values())}
    assert (tmp_path / "workspace/README.md").read_bytes() == (SKELETON / "README.md").read_bytes()


def test_what_is_there_is_kept(start: Start, tmp_path: Path) -> None:
    workspace, outside = tmp_path / "workspace", tmp_path / "outside"
    outside.mkdir()
    (workspace / "README.md").write_text("mine")
    (workspace / "models").write_text("a file in place of a folder")
    (workspace / "scripts").symlink_to(outside)
    (workspace / "output").symlink_to(tmp_path / "nowhere")
    done = start("true")
    assert (done.returncode, done.stderr) == (0, "")
    assert (workspace / "README.md").read_text() == "mine"
    assert (workspace / "models").is_file()
    assert list(outside.iterdir()) == []
    assert not (tmp_path / "nowhere").exists()
    assert (workspace / "data").is_dir()


def test_second_start_changes_nothing(start: Start, tmp_path: Path) -> None:
    start("true")
    (tmp_path / "workspace/scripts/quick_check.py").write_text("changed")
    before = sorted((str(p), p.lstat().st_mtime_ns) for p in (tmp_path / "workspace").rglob("*") if p.is_file())
    assert start("true").stderr == ""
    after = sorted((str(p), p.lstat().st_mtime_ns) for p in (tmp_path / "workspace").rglob("*") if p.is_file())
    assert after == before


def test_deleted_example_comes_back(start: Start, tmp_path: Path) -> None:
    start("true")
    (tmp_path / "workspace/scripts/quick_check.py").unlink()
    start("true")
    assert (tmp_path / "workspace/scripts/quick_check.py").is_file()


def test_caches_that_cannot_be_made_move_to_tmp(start: Start, tmp_path: Path) -> None:
    (tmp_path / "workspace/.cache").write_text("a file in place of the folder")
    done = start("sh", "-c", "env")
    scratch = f"{tmp_path}/tmp/workspace-{os.geteuid()}/cache"
    env = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    assert {name: env[name] for name in CACHES} == {name: f"{scratch}/{folder}" for name, folder in CACHES.items()}
    assert env["XDG_CACHE_HOME"] == scratch
    assert len(done.stderr.splitlines()) == 1
    assert "so the caches are in" in done.stderr


def test_a_persons_own_cache_setting_is_kept(start: Start, tmp_path: Path) -> None:
    (tmp_path / "workspace/.cache").write_text("")
    assert start("printenv", "HF_HOME", HF_HOME="/data/hub").stdout == "/data/hub\n"


def test_scratch_of_somebody_else_is_not_used(start: Start, tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    trap.mkdir()
    (tmp_path / f"tmp/workspace-{os.geteuid()}").symlink_to(trap)
    (tmp_path / "workspace/.cache").write_text("")
    moved = start("printenv", "TRITON_CACHE_DIR").stdout.strip()
    assert moved.startswith(f"{tmp_path}/tmp/tmp.")
    assert list(trap.iterdir()) == []


def test_home_that_cannot_be_written_is_replaced(start: Start, tmp_path: Path) -> None:
    done = start("printenv", "HOME", HOME=str(tmp_path / "none"))
    assert done.stdout.strip() == f"{tmp_path}/tmp/workspace-{os.geteuid()}/home"


def test_names_for_programs_that_ask(start: Start) -> None:
    user, logname, shell = start("printenv", "USER", "LOGNAME", "SHELL").stdout.split()
    assert user == logname != ""
    assert shell == "/bin/bash"


def test_hooks_run_in_order_and_one_that_fails_is_told(start: Start, tmp_path: Path) -> None:
    hooks = tmp_path / "opt/verify/hooks.d"
    (hooks / "10-first.sh").write_text("export TRAIL=first; echo $NOT_SET")
    (hooks / "20-second.sh").write_text("export TRAIL=$TRAIL,second; return 3")
    (hooks / "30-third.sh").write_text("export TRAIL=$TRAIL,third")
    (hooks / "40-not-a-hook.txt").write_text("export TRAIL=wrong")
    done = start("printenv", "TRAIL")
    assert done.stdout.split() == ["first,second,third"]
    assert "20-second.sh failed with exit code 3" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_proxies_hold_in_either_case_and_not_for_the_container_itself(start: Start) -> None:
    names = ("http_proxy", "HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy")
    given = {"HTTP_PROXY": "http://p:1", "https_proxy": "http://q:2", "NO_PROXY": "a.example"}
    own = "a.example,localhost,127.0.0.1,::1"
    assert start("printenv", *names, **given).stdout.split() == ["http://p:1", "http://q:2", "http://q:2", own, own]
    assert start("printenv", "no_proxy").stdout == ""
    assert start("printenv", "no_proxy", http_proxy="http://p:1", no_proxy="*").stdout == "*\n"


def test_settings_that_only_root_can_follow_are_told(start: Start) -> None:
    if os.geteuid() != 0:
        assert "PUBLIC_KEY has no effect" in start("true", PUBLIC_KEY="ssh-ed25519 AAAA").stderr
    else:
        assert "PUBLIC_KEY holds no public key" in start("true", PUBLIC_KEY="ssh-ed25519 AAAA").stderr
        assert "APT_MIRROR=mirror is not the address of a mirror" in start("true", APT_MIRROR="mirror").stderr
