"""`verify bench`, the registry of benchmarks, and what of them shows in the other commands. No process is started."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.unit import helpers, speeds
from verify import cli, core, limits, machine
from verify.core import DefinitionError, Run, Status
from verify.limits import toml
from verify.machine import Machine
from verify.report import json_
from verify.speed import record, rounds, selftest

core.discover()
QUICK = {b.id for b in core.BENCHES.values() if b.quick}
Answer = Callable[[str, int], dict[str, Any]]


def healthy_answer(ident: str, turn: int) -> dict[str, Any]:
    """What a healthy 4090 D measures."""
    figure = core.BENCHES[ident].figure
    if figure == "ratio":
        return speeds.ratios(1.4, 3)[turn % 3]
    ms = {"rate": 8.0, "bandwidth": 2.5, "time": 0.1, "items": 20.0}[figure]
    return speeds.kernels(60.0 if ident == "memory.h2d_pinned" else ms, 3)[turn % 3]


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch, healthy: Machine) -> Callable[[Answer], list[tuple[str, ...]]]:
    """Stand-ins for the fresh processes; gives the list of what each was asked for."""

    def install(answer: Answer) -> list[tuple[str, ...]]:
        asked: list[tuple[str, ...]] = []

        def process(ids: Sequence[str], device: str) -> dict[str, dict[str, Any]]:
            turn = sum(set(ids) & set(before) != set() for before in asked)
            asked.append(tuple(ids))
            return {i: answer(i, turn) for i in ids}

        monkeypatch.setattr(rounds, "process", process)
        h = healthy
        packages = {**h.python.packages, "flash-attn": "2.8.2"}
        able = replace(h, python=replace(h.python, packages=packages))
        monkeypatch.setattr(machine, "read", lambda: able)
        monkeypatch.delenv("VERIFY_REQUIRE", raising=False)
        return asked

    return install


def report(path: Path) -> Run:
    return Run.from_dict(json.loads(path.read_text()))


def test_a_bench_is_a_check_of_tier_speed() -> None:
    checks = core.discover()
    assert set(core.BENCHES) == {c.id for c in checks.values() if c.tier == "speed"}
    assert {"gpu", "torch"} <= set(checks["gemm.bf16"].needs)
    assert "flash_attn" in checks["attention.flash_attn"].needs


def test_an_unknown_figure_is_an_error_at_import() -> None:
    with pytest.raises(DefinitionError, match="unknown figure 'speed'"):
        core.bench(figure="speed")


def test_it_shows_in_list_and_explain(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["list", "--tier", "speed"]) == 0
    assert "gemm.bf16" in capsys.readouterr().out
    assert cli.main(["explain", "resnet.tf32_nchw"]) == 0
    assert "what a script gets that" in capsys.readouterr().out


def test_a_plain_run_measures_nothing(processes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = processes(healthy_answer)
    assert cli.main(["run", "-q", "stack.lock"]) in {0, 1}
    assert asked == []


def test_quick_runs_the_quick_ones_three_times_and_passes(processes: Any, tmp_path: Path) -> None:
    asked = processes(healthy_answer)
    out = tmp_path / "r.json"
    assert cli.main(["bench", "-q", "--json", str(out)]) == 0
    run = report(out)
    jsonschema.validate(json.loads(out.read_text()), json_.schema())
    assert {r.id for r in run.results} == QUICK
    assert {r.status for r in run.results} == {Status.PASS, Status.UNRATED}
    assert len(asked) == 3 * 4
    assert {s.id for s in run.samples} >= QUICK
    assert all("samples" not in r.data for r in run.results)
    assert all(len(s.values) == 3 for s in run.samples if ":" not in s.id)


def test_run_with_the_tier_speed_does_the_same(processes: Any, tmp_path: Path) -> None:
    processes(healthy_answer)
    out = tmp_path / "r.json"
    assert cli.main(["run", "-q", "--tier", "speed", "--json", str(out), "--require", "none"]) == 0
    assert {r.id for r in report(out).results} == QUICK
    assert report(out).samples


def test_what_is_unrated_fails_where_a_speed_is_required(processes: Any, tmp_path: Path) -> None:
    processes(healthy_answer)
    out = tmp_path / "r.json"
    assert cli.main(["bench", "-q", "attention.sdpa_flash", "--require", "speed", "--json", str(out)]) == 1
    assert "No speed verdict" in report(out).results[0].message


def test_a_slow_card_fails_with_exit_code_1(processes: Any, tmp_path: Path) -> None:
    processes(lambda ident, turn: speeds.kernels(12.0, 3)[turn % 3])
    out = tmp_path / "r.json"
    assert cli.main(["bench", "-q", "gemm.bf16", "--json", str(out)]) == 1
    assert report(out).results[0].status is Status.FAIL


def test_retries_are_bounded_and_reported(processes: Any, tmp_path: Path) -> None:
    asked = processes(lambda ident, turn: speeds.ratios(1.0985, 3)[turn % 3])
    out = tmp_path / "r.json"
    assert cli.main(["bench", "-q", "resnet.tf32_nchw", "--json", str(out)]) == 0
    found = report(out).results[0]
    assert (found.status, found.data["retries"], found.data["processes"]) == (Status.INCONCLUSIVE, 2, 5)
    assert len(asked) == 5


def test_what_crashed_or_is_not_here_is_not_tried_again(processes: Any, tmp_path: Path) -> None:
    def answer(ident: str, turn: int) -> dict[str, Any]:
        if ident == "gemm.fp8":
            return {"not_here": "No fp8."}
        if ident == "gemm.fp16":
            return {"raised": "Crash", "message": "The process ended by a segmentation fault.", "trace": ""}
        return healthy_answer(ident, turn)

    asked = processes(answer)
    out = tmp_path / "r.json"
    assert cli.main(["bench", "-q", "gemm.fp8", "gemm.fp16", "gemm.bf16", "--json", str(out)]) == 1
    assert {r.id: r.status for r in report(out).results} == {
        "gemm.fp8": Status.SKIP,
        "gemm.fp16": Status.ERROR,
        "gemm.bf16": Status.PASS,
    }
    assert [len(ids) for ids in asked] == [3, 1, 1]


def test_the_budget_leaves_out_and_says_so(processes: Any, tmp_path: Path) -> None:
    processes(healthy_answer)
    out = tmp_path / "r.json"
    assert cli.main(["bench", "-q", "--budget", "1", "--json", str(out)]) == 0
    left = [r for r in report(out).results if "did not fit into the budget" in r.message]
    assert left
    assert {r.status for r in left} == {Status.INCONCLUSIVE}
    assert {r.id for r in report(out).results} == QUICK


def test_nothing_starts_after_the_deadline(processes: Any, healthy: Machine) -> None:
    asked = processes(healthy_answer)
    session = rounds.Session(limits.load(core.BENCHES), None, time.monotonic() - 1)
    found = list(rounds.results([core.REGISTRY["gemm.bf16"]], healthy, session))
    assert (found[0].status, asked) == (Status.INCONCLUSIVE, [])


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--budget", "soon"], "not a number of minutes"),
        (["--budget", "0"], "not a number of minutes"),
        (["--quick", "--full"], "not allowed with"),
        (["--limits", "/does/not/exist.toml"], "cannot be read"),
        (["gemm.bf61"], "no check or check file called 'gemm.bf61'"),
        (["stack.lock"], "no check or check file called 'stack.lock'"),
        (["--require", "coffee"], "'coffee' cannot be required"),
        (["--record", "--json", "-"], "Only one of"),
        (["selftest"], "needs a file"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(
    processes: Any, argv: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = processes(healthy_answer)
    assert cli.main(["bench", *argv]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert len(said.strip().splitlines()) == 1
    assert asked == []


def test_without_a_gpu_it_is_skipped_and_required_fails(
    processes: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = processes(healthy_answer)
    monkeypatch.setattr(machine, "read", lambda: helpers.load("container-without-gpus"))
    out = tmp_path / "r.json"
    assert cli.main(["bench", "-q", "gemm", "--require", "gpu", "--json", str(out)]) == 1
    assert {r.status for r in report(out).results} == {Status.FAIL}
    assert cli.main(["bench", "-q", "gemm", "--require", "none", "--json", str(out)]) == 0
    assert {r.status for r in report(out).results} == {Status.SKIP}
    assert asked == []


def test_a_recorded_machine_is_not_measured(healthy: Machine) -> None:
    found = core.REGISTRY["gemm.bf16"].function(replace(healthy, recorded=True))
    assert found.status is Status.SKIP


def test_the_check_alone_measures(processes: Any, healthy: Machine) -> None:
    asked = processes(healthy_answer)
    assert core.REGISTRY["gemm.bf16"].function(healthy).status is Status.PASS
    assert len(asked) == 3


def test_recorded_limits_are_read_back_and_pass(
    processes: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new = {"name": "NVIDIA GeForce RTX 5090", "torch": "2.9.1"}
    processes(lambda ident, turn: {**healthy_answer(ident, turn), "device": {**speeds.DEVICE, **new}})
    assert cli.main(["bench", "--record", "-q"]) == 0
    text = capsys.readouterr().out
    made = toml().loads(text)["gpu"]["rtx-5090"]
    assert made["names"] == [new["name"]]
    assert set(made["limit"]) == QUICK
    assert made["limit"]["resnet.tf32_nchw"]["torch"] == "2.9"
    assert "torch" not in made["limit"]["gemm.bf16"]
    assert "measured on NVIDIA GeForce RTX 5090, torch 2.9.1" in made["limit"]["gemm.bf16"]["source"]
    assert made["limit"]["launch.kernel"]["at_most"] > 0
    site, out = tmp_path / "site.toml", tmp_path / "r.json"
    site.write_text(text)
    assert cli.main(["bench", "-q", "--limits", str(site), "--json", str(out)]) == 0
    assert {r.status for r in report(out).results} == {Status.PASS}


def test_nothing_is_proposed_from_a_disturbed_card(processes: Any, capsys: pytest.CaptureFixture[str]) -> None:
    processes(lambda ident, turn: {**healthy_answer(ident, turn), "others": ["pid 7 (1 MiB)"]})
    assert cli.main(["bench", "--record", "-q", "gemm.bf16"]) == 0
    assert "nothing to propose" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "key"), [("NVIDIA H200", "h200"), ("NVIDIA GeForce RTX 4090 D", "rtx-4090-d"), ("", "card")]
)
def test_slug(name: str, key: str) -> None:
    assert record.slug(name) == key


def test_the_self_measurement_keeps_what_it_has(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def stand_in(count: int, device: str, pairs: int, deadline: float) -> Any:
        assert count == selftest.PROCESSES + 1
        for number in range(4):
            if number == 2:
                yield {"raised": "exit code 1: no memory"}
                continue
            common = {"clock_mhz": 1980, "start_s": 1.0, "seconds": 2.0, "eager": [25.7] * pairs}
            step = 99.0 if number == 0 else 21.0  # the first process compiles, and is thrown away
            levels = [
                {"injected": level, "achieved": level, "compiled": [step * (1 + level)] * pairs, **common}
                for level in (0.0, *selftest.LEVELS)
            ]
            yield {"levels": levels, "device": {"name": "X"}}

    monkeypatch.setattr(selftest, "processes", stand_in)
    out, stream = tmp_path / "s.json", io.StringIO()
    made = selftest.run(str(out), pairs=5, stream=stream)
    saved = json.loads(out.read_text())
    assert saved == made
    assert (saved["complete"], saved["device"]) == (False, {"name": "X"})
    size = 1 + len(selftest.LEVELS)
    assert [p["order"] for p in saved["processes"]] == [0] * size + [1] + [2] * size
    assert all(max(p["compiled"]) < 23 for p in saved["processes"] if "raised" not in p)
    assert "no memory" in stream.getvalue()
    assert "slowed by +1.00 +2.00 +3.00 +5.00 %" in stream.getvalue()
    assert "1 process(es) failed" in selftest.table(made)
    assert "    2 %           2  1.1998  0.00 %   -1.96 %" in selftest.table(made)
