"""verify in the finished image, and its launcher on the host."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def launch(image: Any, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "verify", "image", "--image", image.attrs["asked"], *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=580, check=False)


def launched(client: Any) -> list[Any]:
    found: list[Any] = client.containers.list(all=True, filters={"label": "pytorch-workspace.launcher"})
    return found


@pytest.mark.timeout(600)
def test_static_tier_passes(image: Any, client: Any, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    done = launch(image, "--gpus", "none", "--json", str(report))
    assert done.returncode == 0, done.stdout
    assert "No GPU is used" in done.stderr
    results = json.loads(report.read_text())["results"]
    assert [r["id"] for r in results if r["status"] in ("fail", "error")] == []
    assert sum(r["status"] == "pass" for r in results) > 0
    assert launched(client) == []


def test_exit_codes_of_the_launcher(image: Any, client: Any) -> None:
    assert launch(image, "--gpus", "none", "--", "list").returncode == 0
    assert launch(image, "--gpus", "none", "--", "run", "no.such_check").returncode == 2
    slow = launch(image, "--gpus", "none", "--timeout", "1")
    assert slow.returncode == 2
    assert "not done after 1 s" in slow.stderr
    assert launched(client) == []


def test_image_that_is_not_there() -> None:
    command = [sys.executable, "-m", "verify", "image", "--image", "no-such-image:1", "--gpus", "none"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    sentence = done.stderr.splitlines()[-1]
    assert sentence.startswith("error: There is no image no-such-image:1 on this machine")
    assert "build it with `make image`" in sentence
    assert "Traceback" not in done.stderr


def test_verify_works_from_any_directory(box: Any) -> None:
    assert box("cd / && verify list").out == box("cd /tmp && verify list").out != ""


def test_verify_writes_nothing_beside_itself(box: Any) -> None:
    box("verify list")
    assert box("find /opt/verify/verify -newer /opt/verify/image.json -name '*.json'").out == ""
