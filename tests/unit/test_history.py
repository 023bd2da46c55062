"""The history file, and the commands that read it."""

import json
import multiprocessing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit import helpers
from verify import cli, history
from verify.core import Run, Sample, UsageError
from verify.regression import Verdict
from verify.report import json_


def measured(day: int = 1, factor: float = 1.0, *, clock: float = 2520.0, card: str = "", **setting: object) -> Run:
    """A night: one time around 20 ms x factor by five processes, and a ratio that stays."""
    spread = (1.0, 1.001, 0.999, 1.0005, 0.9995)
    how = {"clocks_mhz": [clock] * 5, **setting}
    time = Sample("gemm.square", "ms", "lower", tuple(20 * factor * s for s in spread), how)
    run = helpers.run_of(helpers.result(), samples=(time, Sample("a.b", "x", "higher", tuple(spread), how)))
    run = replace(run, started=f"2026-09-{day:02}T03:00:00+00:00")
    if card:
        gpus = [{**run.machine["gpus"][0], "name": card}]
        run = replace(run, machine={**run.machine, "gpus": gpus})
    return run


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "deep" / "history.jsonl")


def test_runs_come_back_as_they_were(place: str) -> None:
    runs = [measured(1), measured(2)]
    for run in runs:
        history.append(place, run)
    found = history.read(place)
    assert [e.number for e in found.entries] == [1, 2]
    assert [e.run.samples for e in found.entries] == [r.samples for r in runs]
    assert [json_.render(e.run) for e in found.entries] == [json_.render(r) for r in runs]
    assert found.problems == ()


def test_a_line_cut_off_by_a_kill_costs_that_line_alone(place: str) -> None:
    history.append(place, measured(1))
    history.append(place, measured(2))
    whole = Path(place).read_bytes()
    Path(place).write_bytes(whole[: len(whole) - 200])
    found = history.read(place)
    assert [e.run.started[:10] for e in found.entries] == ["2026-09-01"]
    assert found.problems == ("line 2 is no record and is left out: cut off, its writer was ended",)
    history.append(place, measured(3))
    after = history.read(place)
    assert [e.run.started[:10] for e in after.entries] == ["2026-09-01", "2026-09-03"]
    assert len(after.problems) == 1


@pytest.mark.parametrize(
    "line", [b"[]", b"{}", b"nonsense", b"\xff\xfe{}", b'{"baseline": 5}', b'{"baseline": "x"}', b"[" * 5000]
)
def test_a_foreign_line_is_reported_and_skipped(place: str, line: bytes) -> None:
    history.append(place, measured(1))
    with open(place, "ab") as stream:
        stream.write(line + b"\n")
    history.append(place, measured(2))
    found = history.read(place)
    assert (len(found.entries), len(found.problems)) == (2, 1)
    assert found.problems[0].startswith("line 2 is no record")


def write_many(place: str, day: int) -> None:
    for _ in range(8):
        history.append(place, measured(day))


def test_writers_at_the_same_time_lose_nothing(place: str) -> None:
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=write_many, args=(place, day)) for day in (1, 2, 3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    found = history.read(place)
    assert (len(found.entries), found.problems) == (24, ())


def test_a_full_disk_leaves_the_history_as_it_was(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    history.append(place, measured(1))
    before, real = Path(place).read_bytes(), history.os.write
    monkeypatch.setattr(history.os, "write", lambda handle, data: real(handle, data[:100]))
    with pytest.raises(UsageError, match="it is as before"):
        history.append(place, measured(2))
    assert Path(place).read_bytes() == before


def test_a_history_that_cannot_be_written_or_read_says_why(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be written"):
        history.append(str(tmp_path), measured(1))
    with pytest.raises(UsageError, match="cannot be read"):
        history.read(str(tmp_path / "none"))


def nights(place: str, *runs: Run, baseline: str = "1") -> history.History:
    for run in runs:
        history.append(place, run)
        if len(history.read(place).entries) == 1 and baseline:
            history.accept(history.read(place), baseline)
    return history.judged(history.read(place))


def test_the_second_slow_night_in_a_row_is_an_alarm(place: str) -> None:
    found = nights(place, measured(1), measured(2, 1.05), measured(3), measured(4, 1.05), measured(5, 1.05))
    assert [e.alarms for e in found.entries] == [(), (), (), (), ("gemm.square",)]
    assert found.entries[1].comparisons is not None
    assert found.entries[1].comparisons["gemm.square"].verdict is Verdict.SLOW
    assert found.entries[1].comparisons["a.b"].verdict is Verdict.SAME


def test_the_baseline_stays_however_slow_the_nights_become(place: str) -> None:
    found = nights(place, *(measured(day, 1 + day / 100) for day in range(1, 8)))
    assert [e.baseline for e in found.entries] == [True] + [False] * 6
    assert found.entries[-1].comparisons is not None
    assert found.entries[-1].comparisons["gemm.square"].verdict is Verdict.SLOW
    history.accept(history.read(place), "last")
    again = history.judged(history.read(place))
    assert [e.baseline for e in again.entries] == [False] * 6 + [True]


def test_without_an_accepted_baseline_nothing_is_compared(place: str) -> None:
    found = nights(place, measured(1), measured(2, 1.5), baseline="")
    assert [e.comparisons for e in found.entries] == [None, None]


def test_a_baseline_holds_for_its_card_alone(place: str) -> None:
    found = nights(place, measured(1), measured(2, 1.5, card="NVIDIA H200"))
    assert found.entries[1].comparisons is None
    other = history.against(measured(1), measured(2, card="NVIDIA H200"))
    assert {c.verdict for c in other.values()} == {Verdict.INSUFFICIENT}
    assert "another card" in other["a.b"].reason


def test_what_was_measured_in_another_way_is_not_compared() -> None:
    found = history.against(measured(1, amp="bf16"), measured(2, 1.5, amp="none"))
    assert found["gemm.square"].verdict is Verdict.INSUFFICIENT
    assert "amp bf16 → none" in found["gemm.square"].reason


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (helpers.run_of(helpers.result()), "measured no speed"),
        (replace(measured(1), complete=False), "did not pass"),
    ],
)
def test_what_cannot_be_a_baseline(place: str, run: Run, words: str) -> None:
    history.append(place, run)
    with pytest.raises(UsageError, match=words):
        history.accept(history.read(place), "1")


@pytest.mark.parametrize("name", ["3", "2026-09", "2027", "x"])
def test_a_run_that_is_not_one_run_is_refused(place: str, name: str) -> None:
    for day in (1, 2):
        history.append(place, measured(day))
    with pytest.raises(UsageError, match="verify history"):
        history.find(history.read(place), name)
    assert history.find(history.read(place), "2026-09-02").number == 2


def test_the_history_command(place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for day, factor in ((1, 1.0), (2, 1.05), (3, 1.05)):
        report = tmp_path / f"{day}.json"
        report.write_text(json_.render(measured(day, factor)))
        more = ["--accept-baseline", "1"] if day == 1 else []
        code = cli.main(["history", place, "--add", str(report), *more])
    out = capsys.readouterr().out
    assert code == 1
    assert "ALARM  gemm.square was slow twice in a row" in out
    assert "baseline" in out
    assert cli.main(["history", place, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["runs"][2]["alarms"] == ["gemm.square"]


def test_the_compare_command(place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = tmp_path / "a.json", tmp_path / "b.json"
    a.write_text(json_.render(measured(1)))
    b.write_text(json_.render(measured(2, 1.05)))
    assert cli.main(["compare", str(a), str(a)]) == 0
    assert "2 SAME" in capsys.readouterr().out
    assert cli.main(["compare", str(a), str(b), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["gemm.square"]["verdict"] == "SLOW"
    history.append(place, measured(1))
    assert cli.main(["compare", "last", str(b), "--history", place]) == 1


@pytest.mark.parametrize("text", ["", "[]", "{}", "nonsense", '{"schema": 1}'])
def test_compare_refuses_what_is_no_report(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    odd = tmp_path / "odd.json"
    odd.write_text(text)
    assert cli.main(["compare", str(odd), str(odd)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_compare_needs_runs_that_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    calm = tmp_path / "calm.json"
    calm.write_text(json_.render(helpers.run_of(helpers.result())))
    assert cli.main(["compare", str(calm), str(calm)]) == 2
    assert "measured no speed" in capsys.readouterr().err
