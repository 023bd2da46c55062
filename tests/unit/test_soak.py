from typing import Any

import pytest

from tests.unit import helpers, speeds
from verify.checks import soak as checks
from verify.core import Status
from verify.gpu import soak
from verify.machine import Machine

LOADED = {"minutes": 10.0, "products": 30000, "wrong": 0, "tflops": 140.0, "card": dict(speeds.CARD)}


def loaded(**facts: Any) -> dict[str, Any]:
    card = {**speeds.CARD, **facts.pop("card", {})}
    return {**LOADED, "card": card, **facts}


def test_one_wrong_word_fails_with_its_place() -> None:
    bad = {"pattern": "0x5555555555555555", "chunk": 3, "words": 1, "offset": 805306376}
    found = checks.judge_memory({"gib": 22.5, "wrong": [bad]})
    assert found.status is Status.FAIL
    assert "byte 805306376" in found.message
    assert found.hint


def test_memory_that_holds_passes() -> None:
    assert checks.judge_memory({"gib": 22.5, "wrong": []}).status is Status.PASS


@pytest.mark.parametrize(
    ("facts", "status", "words"),
    [
        ({}, Status.PASS, "at most 62 °C"),
        ({"wrong": 2}, Status.FAIL, "2 of 30000 equal products differ"),
        ({"card": {"throttled": ["hardware thermal slowdown"]}}, Status.FAIL, "slows itself down"),
        ({"card": {"others": ["pid 9 (1 MiB)"]}}, Status.INCONCLUSIVE, "Not alone"),
        ({"card": {"looks": 0}}, Status.WARN, "could not be watched"),
    ],
)
def test_the_load_is_judged(facts: dict[str, Any], status: Status, words: str) -> None:
    found = checks.judge_load(loaded(**facts))
    assert found.status is status
    assert words in found.message
    assert found.hint or status is Status.PASS


@pytest.mark.parametrize(("text", "value"), [("2.5", 2.5), ("", 10.0), ("long", 10.0), ("-1", 10.0), ("inf", 10.0)])
def test_minutes(monkeypatch: pytest.MonkeyPatch, text: str, value: float) -> None:
    monkeypatch.setenv(soak.MINUTES, text)
    assert soak.minutes() == value


@pytest.mark.parametrize("name", ["soak.memory", "soak.load"])
def test_a_recorded_machine_is_not_loaded(healthy: Machine, name: str) -> None:
    recorded = helpers.change(healthy, "recorded", True)
    assert helpers.ask(name, recorded).status is Status.SKIP
