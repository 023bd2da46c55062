"""These tests need an NVIDIA GPU and torch, and say so where there is none."""

from __future__ import annotations

import pytest


def reason() -> str:
    """Why they cannot run, "" when they can."""
    try:
        import torch
    except ImportError:
        return "torch is not installed"
    return "" if torch.cuda.is_available() else "torch sees no GPU"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder, and skip all of them with the reason where there is no GPU."""
    why = reason()
    for item in items:
        if "gpu" in item.path.parts[-2:]:
            item.add_marker(pytest.mark.gpu)
            if why:
                item.add_marker(pytest.mark.skip(reason=f"NOT PROVEN HERE: {why}"))
