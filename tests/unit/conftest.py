"""Fixtures of the unit tests: no Docker, no GPU, no torch."""

from __future__ import annotations

import pytest

from tests.unit import helpers
from verify import core
from verify.machine import Machine


@pytest.fixture
def healthy() -> Machine:
    """An RTX 4090 D in the devel image, all well."""
    return helpers.load("healthy-4090d")


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> dict[str, core.Check]:
    """An empty registry, for checks declared by a test."""
    made: dict[str, core.Check] = {}
    monkeypatch.setattr(core, "REGISTRY", made)
    return made
