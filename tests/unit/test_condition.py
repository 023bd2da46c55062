"""The card's condition: what an H200 really showed under load, and every way to be ill."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from tests.unit.helpers import ask, load
from verify.checks import condition
from verify.core import Outcome, Status
from verify.machine import Machine

# One of four samples of the H200 while it multiplied matrices and copied from pinned memory.
SAMPLE = {"throttle": [], "pcie_gen": 5, "pcie_width": 16, "clock": 1980, "temperature": 41, "power": 243.4}
CARD = {
    "index": 0,
    "pcie_gen_max": 5,
    "pcie_width_max": 16,
    "slowdown_temperature": 89,
    "persistence": 1,
    "virtualization": 1,
    "rows": [0, 0, 0, 0],
}


def card(**changed: Any) -> dict[str, Any]:
    """The H200 with other facts, of the card or of its samples."""
    sample = {**SAMPLE, **{k: v for k, v in changed.items() if k in SAMPLE}}
    return {**CARD, **{k: v for k, v in changed.items() if k not in SAMPLE}, "samples": [SAMPLE, sample]}


JUDGES = {
    "throttling": condition.judge_throttling,
    "temperature": condition.judge_temperature,
    "pcie": condition.judge_pcie,
    "memory": lambda cards: condition.judge_memory(cards, load("h200").gpus),
}


@pytest.mark.parametrize("name", JUDGES)
def test_the_h200_is_well(name: str) -> None:
    assert JUDGES[name]([card()]).status is Status.PASS


ILL: list[tuple[str, dict[str, Any], Status, str]] = [
    ("throttling", {"throttle": ["hardware slowdown"]}, Status.FAIL, "power cables"),
    ("throttling", {"throttle": ["hardware power brake"]}, Status.FAIL, "power cables"),
    ("throttling", {"throttle": ["software thermal slowdown"]}, Status.FAIL, "cooling"),
    ("throttling", {"throttle": ["applications clocks setting"]}, Status.WARN, "-rac"),
    ("throttling", {"throttle": ["software power cap"]}, Status.PASS, ""),
    ("temperature", {"temperature": 86}, Status.FAIL, "cooling"),
    ("temperature", {"temperature": 80}, Status.PASS, ""),
    ("pcie", {"pcie_width": 8}, Status.PASS, ""),  # full width was seen in another sample
    ("memory", {"rows": [0, 1, 1, 0]}, Status.FAIL, "reset"),
    ("memory", {"rows": [0, 1, 0, 1]}, Status.FAIL, "replacement"),
    ("memory", {"rows": [2, 0, 0, 0]}, Status.PASS, ""),
    ("memory", {"rows": None}, Status.PASS, ""),
]


@pytest.mark.parametrize(("name", "changed", "status", "hint"), ILL, ids=[f"{i[0]}-{i[1]}" for i in ILL])
def test_an_ill_card(name: str, changed: dict[str, Any], status: Status, hint: str) -> None:
    found = JUDGES[name]([card(**changed)])
    assert found.status is status, found
    assert hint in found.hint


@pytest.mark.parametrize(
    ("gen", "width", "status"), [(5, 8, Status.FAIL), (1, 16, Status.FAIL), (3, 16, Status.FAIL), (4, 16, Status.WARN)]
)
def test_a_narrow_or_slow_link_under_load(gen: int, width: int, status: Status) -> None:
    slow = {**CARD, "samples": [{**SAMPLE, "pcie_gen": gen, "pcie_width": width}] * 3}
    found = condition.judge_pcie([slow])
    assert found.status is status
    assert f"generation {gen} x{width}" in found.message


def test_generation_one_at_idle_alone_is_no_fault() -> None:
    waking = {**CARD, "samples": [{**SAMPLE, "pcie_gen": 1}, SAMPLE]}
    assert condition.judge_pcie([waking]).status is Status.PASS


@pytest.mark.parametrize("name", ["throttling", "temperature", "pcie"])
def test_a_card_that_does_not_tell_is_skipped(name: str) -> None:
    silent = {"index": 0, "samples": [dict.fromkeys(SAMPLE)]}
    assert JUDGES[name]([silent]).status is Status.SKIP


def on_the_card(m: Machine, **facts: Any) -> Machine:
    return dataclasses.replace(m, gpus=tuple(dataclasses.replace(g, **facts) for g in m.gpus))


FACTS: list[tuple[str, dict[str, Any], Status, str]] = [
    ("condition.power_limit", {"power_limit": 250.0}, Status.FAIL, "-pl 425"),
    ("condition.power_limit", {"power_limit": 400.0}, Status.WARN, "-pl 425"),
    ("condition.power_limit", {"power_limit": None}, Status.PASS, ""),
    ("condition.room", {"memory_used": 23 << 30}, Status.FAIL, "Stop"),
    ("condition.room", {"memory_used": 4 << 30}, Status.WARN, "CUDA_VISIBLE_DEVICES"),
    ("condition.room", {"processes": 2}, Status.WARN, "CUDA_VISIBLE_DEVICES"),
    ("condition.room", {"compute_mode": "exclusive process"}, Status.WARN, "-c DEFAULT"),
    ("condition.room", {"memory_used": 600 << 20}, Status.PASS, ""),
]


@pytest.mark.parametrize(("ident", "facts", "status", "hint"), FACTS, ids=[f"{i[0]}-{i[1]}" for i in FACTS])
def test_facts_of_the_record(healthy: Machine, ident: str, facts: dict[str, Any], status: Status, hint: str) -> None:
    found = ask(ident, on_the_card(healthy, **facts))
    assert found.status is status, found
    assert hint in found.hint


def test_uncorrectable_errors_fail_even_on_a_record(healthy: Machine) -> None:
    m = dataclasses.replace(on_the_card(healthy, ecc=True, ecc_errors=3), recorded=True)
    found = ask("condition.memory_rows", m)
    assert (found.status, "3 uncorrectable" in found.message) == (Status.FAIL, True)


def test_a_share_of_a_card_is_told(healthy: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(virtualization: int) -> Outcome:
        watched = [card(virtualization=virtualization, persistence=0)]
        monkeypatch.setattr(condition, "ask", lambda *_: Outcome(Status.PASS, "", "", {"cards": watched}))
        return ask("condition.whole_card", healthy)

    assert "vGPU" in answer(2).message
    assert "passed through" in answer(1).message
    assert "persistence mode is off" in answer(0).message
    sliced = dataclasses.replace(on_the_card(healthy, mig=True), recorded=True)
    assert "MIG" in ask("condition.whole_card", sliced).message


def test_what_could_not_be_watched_is_passed_on(healthy: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(condition, "ask", lambda *_: Outcome(Status.SKIP, "NVML does not answer."))
    assert ask("condition.throttling", healthy).message == "NVML does not answer."
    nothing = Outcome(Status.PASS, "", "", {"cards": [{"index": 0, "samples": []}]})
    monkeypatch.setattr(condition, "ask", lambda *_: nothing)
    assert ask("condition.temperature", healthy).status is Status.SKIP


@pytest.mark.parametrize("ident", ["condition.power_limit", "condition.room"])
def test_the_h200_record_passes(ident: str) -> None:
    assert ask(ident, load("h200")).status is Status.PASS
