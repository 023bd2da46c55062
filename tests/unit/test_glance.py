"""`gpu` and the message of the day on recorded answers of NVML."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from verify import glance
from verify.facts import Driver
from verify.probe import driver

CARD: dict[str, Any] = {
    "name": "NVIDIA GeForce RTX 4090 D",
    "sm": "sm_89",
    "memory": 24 * 2**30,
    "memory_used": 2**30,
    "busy": 7,
    "clock": 210,
    "clock_max": 3105,
    "power": 15.4,
    "power_limit": 425.0,
    "temperature": 35,
    "processes": 1,
    "throttle": [],
}
ABOUT = {"name": "pytorch-workspace", "version": "2.8.0", "python": "3.13.5", "toolkit": "12.4.131"}


def answer(monkeypatch: pytest.MonkeyPatch, said: dict[str, Any], facts: Driver | None = None) -> None:
    monkeypatch.setattr(driver, "ask", lambda *_, **__: said)
    monkeypatch.setattr(driver, "read", lambda _: (facts or Driver(), ()))


def test_gpu_prints_one_line_for_each_card(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    hot = {**CARD, "throttle": ["hardware thermal slowdown"], "temperature": 90}
    answer(monkeypatch, {"driver": "550.90.07", "cuda": 12040, "gpus": [CARD, hot]})
    assert glance.gpu([]) == 0
    first, _, one, two, slow = capsys.readouterr().out.splitlines()
    assert first == "driver 550.90.07 (CUDA 12.4)"
    cells = ("0", "RTX 4090 D", "sm_89", "1.0 of 24.0 GiB", "7 %", "210 of 3105 MHz", "15 of 425 W", "35 °C")
    assert all(cell in one for cell in cells)
    assert "90 °C" in two
    assert slow == "GPU 1 is slowed down by: hardware thermal slowdown"


def test_a_card_that_does_not_say_gets_dashes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answer(monkeypatch, {"driver": "550.90.07", "gpus": [{"name": "X", "sm": "", "power": None}]})
    assert glance.gpu([]) == 0
    out = capsys.readouterr().out
    assert "driver 550.90.07\n" in out
    assert "– of – W" in out


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (Driver(), "this machine has no NVIDIA driver"),
        (Driver(kernel_module="550.90.07"), "this container was not given it. "),
        (Driver(kernel_module="550.90.07", cuinit=804), "cuInit says 804"),
    ],
)
def test_no_gpu_is_one_sentence_and_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], facts: Driver, words: str
) -> None:
    answer(monkeypatch, {"problem": "NVML 12"}, facts)
    assert glance.gpu([]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert words in said.err
    assert len(said.err.splitlines()) == 1


@pytest.mark.parametrize(("argument", "code"), [("--help", 0), ("-h", 0), ("--json", 2)])
def test_arguments(argument: str, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert glance.gpu([argument]) == code
    said = capsys.readouterr()
    assert (said.err == "") == (code == 0)
    assert (said.out + said.err).startswith("usage: gpu" if code == 0 else "error: gpu takes no arguments")


def test_message_has_at_most_six_lines_and_keeps_the_three_versions_apart() -> None:
    said = {"driver": "550.90.07", "cuda": 12040, "gpus": [CARD, CARD]}
    lines = glance.message(ABOUT, ("2.8.0+cu128", "12.8"), said)
    assert len(lines) <= 6
    assert lines[0] == "pytorch-workspace 2.8.0 · PyTorch 2.8.0+cu128 · Python 3.13.5"
    assert lines[1].split(maxsplit=1)[1] == "toolkit 12.4.131 · runtime 12.8 · driver 550.90.07 (CUDA 12.4)"
    assert lines[2].split(maxsplit=1)[1] == "2 × NVIDIA GeForce RTX 4090 D · sm_89 · 24.0 GiB, 23.0 free"


def test_message_without_anything() -> None:
    lines = glance.message({}, ("", ""), {})
    assert "PyTorch missing" in lines[0]
    assert "no toolkit · runtime unknown · no driver" in lines[1]
    assert "gpu says why" in lines[2]


def test_space(tmp_path: Path) -> None:
    assert "no volume" in glance.space(str(tmp_path))
    assert "no volume" not in glance.space("/")
    assert "No such file" in glance.space(str(tmp_path / "none"))


def test_motd_prints_even_where_nothing_can_be_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answer(monkeypatch, {"problem": "no answer within 1.5 s, so it was ended"})
    assert glance.motd() == 0
    assert 3 < len(capsys.readouterr().out.splitlines()) <= 6
