"""What an H200 measured, kept in tests/data: the reports, the claims and the self-measurement from real figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from verify import core, limits, selfmeasure
from verify.claims import judge, render
from verify.claims.words import Fact, Word
from verify.core import Run, Status
from verify.machine import Machine
from verify.report import html, text

DATA = Path(__file__).parents[1] / "data"
core.discover()


def data(name: str) -> Any:
    return json.loads((DATA / f"h200-{name}.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def quick() -> Run:
    return Run.from_dict(data("quick"))


def test_the_data_is_small_and_names_no_machine() -> None:
    files = sorted(DATA.glob("h200-*.json"))
    assert len(files) == 4
    assert sum(f.stat().st_size for f in files) < 300_000
    for f in files:
        words = f.read_text(encoding="utf-8").lower()
        assert not [w for w in ("uuid", "serial", "hostname", "gpu-") if w in words], f.name


def test_a_page_of_a_real_run(quick: Run) -> None:
    page = html.render(quick)
    for result in quick.results:
        assert result.id in page
    assert "<h1>UNRATED</h1>" in page  # nothing was judged: that is no pass
    assert page.count('class="finding unrated"') == 1
    assert page.count('class="speed unrated"') == 16
    assert "0 % of the ceiling" not in page.replace("10 % of", "")
    assert "e+0" not in page


def test_a_text_of_a_real_run(quick: Run) -> None:
    words = text.render(quick)
    assert "UNRATED" in words
    assert "Nothing was judged." in words


def test_the_gpu_tier_of_a_real_run() -> None:
    """Warm, torch 2.11; xFormers' compiled part did not load there, for want of CUDA 12's runtime."""
    run = Run.from_dict(data("gpu"))
    assert {s.value: n for s, n in run.counts().items() if n} == {"pass": 53, "error": 3, "skip": 2}
    assert not run.ok()
    words = text.render(run)
    assert "ERROR attention_xformers.dense, varlen, bias" in words
    assert "FAIL  58 checks in" in words
    ran = {r.id for r in run.results}
    known = {i for i, c in core.REGISTRY.items() if c.tier == "gpu"}
    assert known <= ran, known - ran  # every check of the tier has run on a card


def test_the_limits_of_this_card_are_met_by_what_they_come_from(quick: Run) -> None:
    table, judged = limits.load(core.BENCHES), 0
    for result in quick.results:
        limit, _ = table.limit(result.id, "NVIDIA H200", "2.11.0+cu130")
        if limit is None or core.BENCHES[result.id].figure == "ratio":
            continue
        judged += 1
        edge = result.data["low"] if limit.better == "higher" else result.data["high"]
        assert (edge > limit.value) if limit.better == "higher" else (edge < limit.value), result.id
    assert judged == 10
    assert table.limit("gemm.bf16", "NVIDIA H200", "2.8.0+cu128")[0] is None  # another torch has another cuBLAS
    assert table.limit("resnet.tf32_nchw", "NVIDIA H200", "2.11.0+cu130")[0] is None


def test_the_claims_from_real_facts(quick: Run) -> None:
    facts = {n: Fact(**f) for c in data("claims")["claims"] for n, f in c["facts"].items()}
    rows = judge.rows(Machine.from_dict(quick.machine), {**judge.from_run(quick), **facts}, {"yolo": "Not installed."})
    words = {r.id: r.verdict for r in rows}
    assert [i for i, w in words.items() if w is Word.CONTRADICTED] == ["C7", "C9", "C14"]
    assert words["C11"] is Word.CONDITIONAL
    assert {words[i] for i in ("C2", "C3", "C4", "C5", "C8", "C13")} == {Word.OTHER_CARD}
    assert words["C12"] is Word.NOT_RUN
    assert words["C15"] is Word.NOT_MEASURABLE  # torch 2.11 says nothing about torch 2.8's cuDNN
    table = render.markdown(rows, "NVIDIA H200")
    assert table.count("\n| C") == 18
    assert "int8 7.24 GB taken from the driver" in table
    assert "fp16 13.6 GB taken from the driver" in table
    assert "gb fp32" not in table


def test_the_self_measurement_meets_its_goals() -> None:
    found = selfmeasure.analyse(str(DATA / "h200-selftest.json"), nights=15, sizes=(3,))
    assert set(found.counts.values()) == {22}
    assert found.spread["speed-up"] < 0.005
    assert found.achieved[0.02] == pytest.approx(0.02, abs=0.0005)
    rates = found.rates[0]
    assert rates.false.value <= 0.01
    assert rates.detected[0.02].value >= 0.95
    assert rates.gain_width <= 0.005


def test_every_process_of_the_file_is_used() -> None:
    processes, about, left_out = selfmeasure.read(str(DATA / "h200-selftest.json"))
    assert (len(processes), left_out, about["device"]["name"]) == (110, 0, "NVIDIA H200")
    assert {p.order for p in processes} == set(range(22))


def test_an_unrated_figure_is_told_by_its_reason_alone(quick: Run) -> None:
    first = next(r for r in quick.results if r.status is Status.UNRATED)
    assert html.brief(first).message.startswith("Measured, see below, but not judged: no limit")
    skipped = next(r for r in quick.results if r.status is Status.SKIP)
    assert html.brief(skipped) == skipped
