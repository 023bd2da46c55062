"""The claims: every row, every verdict word, and what is said when nothing can be measured. No GPU, no torch."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit import helpers
from verify import cli
from verify.claims import judge, measure, render
from verify.claims.rows import CLAIMS
from verify.claims.words import Fact, Figure, Row, Word
from verify.claims.worker import WORKS
from verify.core import Result, Run, Sample, Status
from verify.machine import Machine
from verify.report import json_

CARD = helpers.load("healthy-4090d")
OTHER = helpers.load("h200")


def fact(value: float | None, unit: str = "GB", note: str = "") -> Fact:
    return Fact(value, unit, note)


def verdict(ident: str, facts: dict[str, Fact], m: Machine = CARD, reasons: dict[str, str] | None = None) -> Row:
    return judge.rows(m, facts, reasons or {}, [ident])[0]


def test_every_claim_is_there_and_complete() -> None:
    assert [c.id for c in CLAIMS] == [f"C{n}" for n in range(1, 19)]
    for c in CLAIMS:
        assert c.claim, c.id
        assert c.published, c.id
        assert c.physics, c.id
        assert c.figures or c.judge or c.reason, c.id
        assert set(c.works) <= set(WORKS), c.id
        measured = {n.partition(".")[0] for f in c.figures for n in (*f.facts, *f.shown)} - {"bench"}
        assert measured <= set(c.works), c.id


@pytest.mark.parametrize(
    ("value", "rule", "expected"),
    [
        (1.0, "about", True),
        (1.1, "about", True),
        (1.12, "about", False),
        (0.88, "about", False),
        (5.0, "at least", True),
        (0.91, "at least", True),
        (0.89, "at least", False),
        (None, "about", None),
    ],
)
def test_a_published_number_holds_within_its_tolerance(value: float | None, rule: str, expected: bool | None) -> None:
    assert judge.holds(Figure("", 1.0, "s", ("a.b",), rule), {"a.b": fact(value)}) is expected


def test_one_of_several_facts_is_enough() -> None:
    facts = {"resnet.gb_fp32": fact(22.3), "resnet.gb_amp": fact(11.5)}
    assert verdict("C7", facts).verdict is Word.CONTRADICTED
    assert verdict("C7", {**facts, "resnet.gb_amp": fact(18.0)}).verdict is Word.CONFIRMED


def test_a_speed_is_settled_by_the_card_alone_and_a_size_by_any() -> None:
    facts = {"llama_int8.rate": fact(28.0, "tokens/s"), "llama_int8.gb": fact(7.4)}
    assert verdict("C8", facts).verdict is Word.CONFIRMED
    speed, size = verdict("C8", facts, OTHER), verdict("C9", facts, OTHER)
    assert (speed.verdict, size.verdict) == (Word.OTHER_CARD, Word.CONTRADICTED)
    assert "about the RTX 4090 D; this is NVIDIA H200" in speed.why
    assert "28 tokens/s" in speed.measured


def test_the_article_s_spelling_of_the_card_is_understood() -> None:
    spelled = helpers.change(CARD, "gpus", (replace(CARD.gpus[0], name="NVIDIA GeForce RTX 4090D"),))
    assert verdict("C8", {"llama_int8.rate": fact(28.0)}, spelled).verdict is Word.CONFIRMED


def test_what_did_not_run_says_why() -> None:
    row = verdict("C8", {}, reasons={"llama_int8": "bitsandbytes is not installed here."})
    assert (row.verdict, row.why) == (Word.NOT_RUN, "bitsandbytes is not installed here.")
    assert "`verify claims --from F`" in verdict("C2", {}).why
    assert verdict("C11", {}, reasons={"train7b": "No GPU."}).why == "No GPU."
    assert "ImageNet" in verdict("C17", {}).why


@pytest.mark.parametrize(
    ("plain", "lean", "expected"),
    [(41.0, 15.5, Word.CONDITIONAL), (18.0, 15.5, Word.CONFIRMED), (41.0, 30.0, Word.CONTRADICTED)],
)
def test_training_memory_under_conditions(plain: float, lean: float, expected: Word) -> None:
    facts = {"train7b.gb_plain": fact(plain, note="as printed"), "train7b.gb_lean": fact(lean, note="leanest")}
    row = verdict("C11", facts, OTHER)
    assert row.verdict is expected
    assert f"{lean:.1f} GB leanest" in row.measured


def test_training_memory_that_does_not_fit() -> None:
    facts = {"train7b.gb_plain": fact(None, note="as printed: it does not fit"), "train7b.gb_lean": fact(15.0)}
    row = verdict("C11", facts)
    assert (row.verdict, "does not fit" in row.measured) == (Word.CONDITIONAL, True)
    assert verdict("C11", {**facts, "train7b.gb_lean": fact(None)}).verdict is Word.NOT_RUN


def test_names_and_versions() -> None:
    assert verdict("C1", {}).verdict is Word.NEAR
    assert verdict("C1", {}, helpers.package(CARD, "torch", "2.7.0")).verdict is Word.CONTRADICTED
    assert verdict("C1", {}, OTHER).verdict is Word.OTHER_CARD
    assert verdict("C1", {}, helpers.change(CARD, "gpus", ())).why == "no GPU here"
    assert verdict("C15", {}).verdict is Word.CONTRADICTED
    assert "cuDNN 9.10" in verdict("C15", {}).measured
    old = helpers.package(CARD, "nvidia-cudnn-cu12", "8.9.7")
    assert verdict("C15", {}, old).verdict is Word.CONFIRMED
    assert verdict("C15", {}, Machine()).verdict is Word.NOT_RUN


def test_power_and_instance() -> None:
    assert verdict("C16", {}).verdict is Word.NEAR
    assert verdict("C16", {}, helpers.change(CARD, "gpus", ())).verdict is Word.NOT_RUN
    assert "10 cores, 120 GB" in verdict("C18", {}).measured
    small = helpers.change(CARD, "container.cpu_limit", 4.0)
    assert verdict("C18", {}, small).verdict is Word.CONTRADICTED
    assert verdict("C18", {}, OTHER).verdict is Word.OTHER_CARD


def bench_run() -> Run:
    data = {"value": 1.36, "low": 1.35, "high": 1.37, "unit": "x"}
    result = Result("resnet.tf32_nchw", "", "speed", "machine", Status.PASS, "", "", data, 1.0)
    sample = Sample("resnet.tf32_nchw:eager", "ms", "lower", (30.0, 32.0, 31.0))
    return helpers.run_of(result, samples=(sample,))


def test_benchmarks_come_from_a_report() -> None:
    facts = judge.from_run(bench_run())
    assert facts["bench.resnet.tf32_nchw"] == Fact(1.36, "×", "(1.35 to 1.37)")
    assert facts["bench.resnet.tf32_nchw:eager"].value == 31.0
    row = verdict("C2", facts)
    assert row.verdict is Word.CONFIRMED
    assert "1.36 × (1.35 to 1.37)" in row.measured


def test_all_three_forms_say_the_same() -> None:
    facts = {**judge.from_run(bench_run()), "resnet.gb_fp32": fact(22.3), "resnet.gb_amp": fact(11.5)}
    rows = judge.rows(CARD, facts, {"yolo": "ultralytics | is not installed here."})
    plain, table = render.text(rows, "a card", 80), render.markdown(rows, "a card")
    data = json.loads(render.as_json(rows, "a card", {"resnet": 3.0}))
    assert len(data["claims"]) == 18
    for row, one in zip(rows, data["claims"], strict=True):
        assert f" {row.id} " in plain
        assert f"| {row.id} |" in table
        assert one["verdict"] == str(row.verdict)
    assert "18 claims: 2 confirmed, 2 nearly right" in plain
    assert max(map(len, plain.splitlines())) <= 80
    assert "ultralytics \\| is" in table


def test_a_work_that_is_not_installed_says_so() -> None:
    facts, problem, _ = measure.one("yolo", device="cpu", tiny=True)
    assert facts == {}
    assert "ultralytics is not installed here" in problem


def test_a_work_that_dies_is_named_by_its_ending(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure.sys, "executable", "/bin/false")
    assert measure.one("resnet")[1] == "The measurement ended by exit code 1."


def test_works_are_those_of_the_claims_asked_for() -> None:
    assert measure.wanted(["C8", "C9"]) == ["llama_fp16", "llama_int8"]
    assert measure.wanted(["C5"]) == []
    assert measure.wanted([]) == list(WORKS)


def test_the_command_without_measuring(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report, out = tmp_path / "run.json", tmp_path / "claims.md"
    report.write_text(json_.render(bench_run()))
    assert cli.main(["claims", "c2", "C7", "--from", str(report), "--no-measure", "--markdown", str(out)]) == 0
    text = capsys.readouterr().out
    assert "confirmed" in text
    assert "Left out by --no-measure." in text
    assert out.read_text().count("\n| C") == 2


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["C19"], "no claim 'C19'"),
        (["--from", "/nowhere.json"], "cannot be read"),
        (["--json", "-", "--markdown", "-"], "Only one report"),
        (["--json", "/nowhere/x.json"], "does not exist"),
    ],
)
def test_the_command_refuses(argv: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["claims", "--no-measure", *argv]) == 2
    err = capsys.readouterr().err
    assert words in err
    assert err.count("\n") == 1
