"""/workspace at start: what is missing is put there, what is a person's stays, and no mount stops a container."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

SKELETON = Path(__file__).parents[2] / "workspace-skeleton"
NAMES = sorted(str(p.relative_to(SKELETON)) for p in SKELETON.rglob("*") if p.suffix in (".py", ".md") or p.is_dir())
NAMES = [name for name in NAMES if "__pycache__" not in name]
TOP = sorted(name for name in NAMES if "/" not in name)
LIST = r"find . -mindepth 1 -not -path './.cache*' -printf '%P %U:%G\n' | sort"


def listed(owner: str) -> list[str]:
    return [f"{name} {owner}" for name in NAMES]


@pytest.mark.parametrize("puid", ["", "1234"])
@pytest.mark.parametrize("script", ["true", "mkdir lost+found", "mkdir data && chown 1234 data ."])
def test_empty_and_partly_filled(sh: Any, prepared: Any, puid: str, script: str) -> None:
    done = sh(LIST, environment={"PUID": puid}, **prepared(script))
    assert (done.code, done.err) == (0, "")
    lines = [line for line in done.out.splitlines() if "lost+found" not in line]
    assert [line.split()[0] for line in lines] == NAMES
    owner = f"{puid or 0}:{puid or 0}"
    assert {line.split()[1] for line in lines if not line.startswith("data ")} == {owner}


def test_volume_that_docker_makes(sh: Any, volume: Any) -> None:
    done = sh(LIST, user="12345:12345", volumes=[f"{volume.name}:/workspace"])
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == listed("12345:12345")


def test_what_is_there_is_kept(sh: Any, prepared: Any) -> None:
    mount = prepared(
        "echo mine >README.md; touch README.zh-CN.md; echo file >models; ln -s /etc scripts; ln -s /nowhere output;"
        "mkdir data; echo x >data/x; chown -hR 1234:1234 . ; chmod 700 data"
    )
    script = "cat README.md models data/x; readlink scripts output; ls /etc/quick_check.py /nowhere 2>&1 | wc -l; "
    done = sh(script + r"find . -not -path './.cache*' -printf '%U %m\n' | sort | uniq -c", **mount)
    assert done.err == ""
    assert done.out.split()[:6] == ["mine", "file", "x", "/etc", "/nowhere", "2"]
    assert {line.split()[1] for line in done.out.splitlines()[6:]} == {"1234"}


def test_second_start_overwrites_nothing(sh: Any, prepared: Any) -> None:
    mount = prepared("true")
    assert sh("echo changed >scripts/quick_check.py", **mount).code == 0
    done = sh("cat scripts/quick_check.py; ls -A", **mount)
    assert done.out.split() == ["changed", ".cache", *TOP]


@pytest.mark.parametrize(
    ("prepare", "settings", "words"),
    [
        ("true", {"read-only": "yes"}, ("/workspace is read-only", "mount a volume there, without ':ro'")),
        (
            "mkdir -m 700 data; chown 4242:42 .",
            {"PUID": "1234"},
            ("/workspace belongs to user 4242", "PUID=4242 PGID=42"),
        ),
        ("mkdir data", {"user": "12345:12345"}, ("/workspace belongs to user 0", "as root")),
        ("mkdir -p .cache/triton; chown 1234 .", {"PUID": "1234"}, ("/workspace/.cache belongs to user 0", "chown -R")),
        (
            "mkdir -p .cache/triton; chown 1234 . .cache",
            {"PUID": "1234"},
            ("/workspace/.cache/triton belongs", "chown"),
        ),
    ],
    ids=["read-only", "foreign", "foreign-arbitrary-uid", "foreign-cache", "foreign-cache-folder"],
)
def test_mount_that_cannot_be_written(
    sh: Any, prepared: Any, prepare: str, settings: dict[str, str], words: tuple[str, ...]
) -> None:
    mount = prepared(prepare, read_only="read-only" in settings)
    environment = {"PUID": settings.get("PUID", "")}
    done = sh(
        'mkdir -p "$TRITON_CACHE_DIR" "$TORCHINDUCTOR_CACHE_DIR" "$HF_HOME" "$PIP_CACHE_DIR" && '
        'touch "$XDG_CACHE_HOME/x" && echo "$XDG_CACHE_HOME $(id -u)"',
        environment=environment,
        user=settings.get("user", ""),
        **mount,
    )
    cache, uid = done.out.split()
    assert (done.code, cache) == (0, f"/tmp/workspace-{uid}/cache")
    assert len(done.err.splitlines()) == 1
    assert done.err.startswith(f"warning: {words[0]}")
    assert words[1] in done.err


@pytest.mark.parametrize("size", ["4k", "512k"])
def test_tiny_disk(sh: Any, size: str) -> None:
    fill = "" if size == "4k" else "head -c 1M /dev/zero >/workspace/data/big; exec /opt/verify/entrypoint.sh "
    done = sh(f"{fill}true; echo end", tmpfs={"/workspace": f"size={size},exec"})
    assert done.code == 0
    assert [line for line in done.err.splitlines() if line.startswith("warning: /workspace is full")] != []
    assert "the caches are in /tmp/workspace-0/cache" in done.err


def test_read_only_container_with_a_volume_is_silent(sh: Any, volume: Any) -> None:
    settings = {"read_only": True, "tmpfs": {"/tmp": "exec"}, "volumes": [f"{volume.name}:/workspace"]}
    done = sh('touch "$HOME/x" && ls', **settings)
    assert (done.code, done.err) == (0, "")
    assert done.out.split() == TOP


@pytest.mark.parametrize(
    ("tmpfs", "warnings"),
    [
        ({"/tmp": "exec"}, ["warning: /workspace is read-only"]),
        ({"/tmp": ""}, ["warning: /workspace is read-only", "warning: torch.compile cannot load what it compiles"]),
        ({"/tmp": "", "/workspace": "exec"}, []),
        ({"/tmp": "exec", "/workspace": ""}, []),
        ({"/tmp": "", "/workspace": ""}, ["warning: torch.compile cannot load what it compiles"]),
        ({}, ["warning: /workspace is read-only"]),
    ],
    ids=["exec-tmp", "noexec-tmp", "exec-workspace", "noexec-workspace", "both-noexec", "nothing-writable"],
)
def test_read_only_container(sh: Any, tmpfs: dict[str, str], warnings: list[str]) -> None:
    done = sh("echo started", read_only=True, tmpfs=tmpfs)
    assert (done.code, done.out) == (0, "started\n")
    lines = done.err.splitlines()
    assert len(lines) == len(warnings)
    for line, start in zip(lines, warnings, strict=True):
        assert line.startswith(start)
        assert line.endswith(".")
    if warnings and "torch.compile" in warnings[-1]:
        assert "--tmpfs /tmp:exec" in lines[-1]
