"""The whole run as JSON; schema.json beside this file describes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from verify.core import Run
from verify.plain import finite


def render(run: Run) -> str:
    """One JSON object with two more keys than a Run: `ok` and `counts`, so that a shell needs no arithmetic."""
    data = run.to_dict()
    data["ok"] = run.ok()
    data["counts"] = {str(status): number for status, number in run.counts().items()}
    return json.dumps(finite(data), indent=1, default=str, ensure_ascii=False, allow_nan=False) + "\n"


def schema() -> dict[str, Any]:
    """The published JSON schema (draft 2020-12) of `render`'s output."""
    found: dict[str, Any] = json.loads((Path(__file__).parent / "schema.json").read_text())
    return found
