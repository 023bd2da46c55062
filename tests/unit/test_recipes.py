"""The recipes of the skeleton say what they are, and both READMEs name all of them and nothing else."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

SKELETON = Path(__file__).parents[2] / "workspace-skeleton"
SCRIPTS = sorted((SKELETON / "scripts").glob("[!_]*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_explains_itself(script: Path) -> None:
    text = script.read_text()
    made = ast.parse(text)
    assert len((ast.get_docstring(made) or "").splitlines()[0]) > 20
    assert "argparse" in text or "common.parser(__doc__)" in text
    calls = [node for node in ast.walk(made) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    for call in calls:
        if isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument":
            assert "help" in {word.arg for word in call.keywords}, f"line {call.lineno}"


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_shows_only_forms_that_work(script: Path) -> None:
    text = script.read_text()
    assert not re.findall(r"cuda\.amp|torch\.compile\([^)]*exclude=|setattr\(\w+, .gradient_checkpointing", text)


@pytest.mark.parametrize("readme", ["README.md", "README.zh-CN.md"])
def test_readme_names_every_script(readme: str) -> None:
    named = set(re.findall(r"`(?:scripts/)?(\w+\.py)`", (SKELETON / readme).read_text()))
    assert named == {path.name for path in SCRIPTS}
