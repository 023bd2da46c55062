"""Every recipe of /workspace/scripts runs in the image: on the CPU, with tiny sizes, its results where they belong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SCRIPTS = Path(__file__).parents[2] / "workspace-skeleton" / "scripts"
NAMES = sorted(path.stem for path in SCRIPTS.glob("[!_]*.py"))
SELF_CONTAINED = {"quick_check"}  # prints its answer, keeps nothing
Script = Callable[..., Any]


@pytest.fixture
def script(box: Any) -> Script:
    """Runs a recipe by name with a line of arguments."""

    def call(name: str, arguments: str = "", before: str = "true") -> Any:
        command = f"timeout --kill-after=5 200 python scripts/{name}.py {arguments}"
        ready = "until [ -e README.md ] && [ -e scripts/warm_cache.py ]; do sleep 0.2; done"  # the entrypoint fills it
        return box(f"cd /workspace && timeout 30 sh -c '{ready}' && {before} && {command}")

    return call


@pytest.mark.parametrize("name", [name for name in NAMES if name not in SELF_CONTAINED])
def test_runs_tiny(script: Script, box: Any, name: str) -> None:
    done = script(name, f"--device cpu --output /tmp/recipes/{name}")
    assert done.code == 0, done.err[-2000:]
    assert "tiny sizes" in done.out
    kept = json.loads(box(f"cat /tmp/recipes/{name}/{name}/*/result.json").out)
    assert (kept["script"], kept["device"], kept["tiny"]) == (name, "cpu", True)
    assert f"result: {kept['result']}" in done.out
    assert box(f"find /tmp/recipes/{name} -name '*.part'").out == ""


def test_goes_on_from_a_checkpoint(script: Script, box: Any) -> None:
    assert script("train_resnet50", "--device cpu --steps 2 --output /tmp/recipes/first").code == 0
    found = box("ls /tmp/recipes/first/train_resnet50/*/checkpoint.pt").out.strip()
    done = script("train_resnet50", f"--device cpu --steps 4 --resume {found} --output /tmp/recipes/second")
    assert done.code == 0, done.err[-2000:]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--batch 0", "not a whole number above zero"),
        ("--batch many", "not a whole number above zero"),
        ("--data /nowhere", "--data /nowhere"),
        ("--resume /etc/hostname", "--resume /etc/hostname"),
        ("--output /etc/hostname", "name another folder with --output"),
        ("--device cuda", "no usable GPU"),
    ],
)
def test_asked_wrongly(script: Script, arguments: str, words: str) -> None:
    where = "" if "--output" in arguments else "--output /tmp/recipes/wrong"
    done = script("train_resnet50", f"{arguments} {where}")
    assert done.code == 2, done.err[-2000:]
    assert words in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize("change", ["printf x >>/tmp/recipes/c", 'sed -i \'1s/"torch": "/&0/\' /tmp/recipes/c'])
def test_a_cache_that_does_not_fit_is_ignored(script: Script, change: str) -> None:
    common = "--device cpu --output /tmp/recipes/warm --file /tmp/recipes/c"
    made = script("warm_cache", common, before="rm -f /tmp/recipes/c")
    assert "kept" in made.out, made.err[-2000:]
    done = script("warm_cache", common, before=change)
    assert done.code == 0, done.err[-2000:]
    assert "cold start: /tmp/recipes/c is ignored" in done.out
