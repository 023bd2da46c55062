"""Every recorded failure is named, in every form people paste it, and nothing else is."""

from __future__ import annotations

from pathlib import Path

import pytest

from verify.doctor import score
from verify.doctor.catalogue import BY_ID, ENTRIES

CASES = list(score.cases(score.CASES))
FILES = sorted({case.file for case in CASES})


@pytest.mark.parametrize("form", score.FORMS)
@pytest.mark.parametrize("file", FILES)
def test_named_right(file: str, form: str) -> None:
    mine = [case for case in CASES if case.file == file]
    told = {f"{case.number} {case.expected}": score.judge(case, form) for case in mine}
    wrong = {name: said for name, (kind, said) in told.items() if kind != "right"}
    assert not wrong


def test_every_failure_has_a_recorded_text() -> None:
    named = {ident.strip() for case in CASES for ident in case.expected.removeprefix("harmless:").split(",")}
    assert named - set(BY_ID) == {"none", "fine", "program"}
    # Two machines look alike in a text; test_doctor_machine tells this one by its facts.
    assert set(BY_ID) - named <= {"no-driver-on-machine"}


def test_unrelated_errors_are_many_and_never_blamed_on_the_stack() -> None:
    mine = [case for case in CASES if case.file == "unrelated"]
    assert len(mine) >= 30
    assert [case.number for case in mine if score.judge(case)[0] == "alarm"] == []


def test_score_counts_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.txt").write_text(
        "@@@ stub-libcuda\nError 34: CUDA driver is a stub library\n@@@ stub-libcuda\nall is well\n"
        "@@@ fine\nCUDA out of memory\n"
    )
    assert score.main(tmp_path) == 1
    said = capsys.readouterr().out
    assert "33.3% right of 3 texts" in said
    assert "8 false alarms" in said
    assert "entries: 0 of 1 named right in every text and form; 0 wrong and 1 unknown" in said
    assert score.main(tmp_path / "none") == 2


def test_score_of_the_recorded_texts(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    few = tmp_path / "few.txt"
    few.write_text((score.CASES / "driver.txt").read_text())
    assert score.main(tmp_path) == 0
    assert "100.0% right" in capsys.readouterr().out


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: e.id)
def test_entry_is_whole(entry: object) -> None:
    from verify.doctor.entry import FAULTS, LAYERS, Entry, fill

    assert isinstance(entry, Entry)
    assert entry.layer in LAYERS
    assert entry.fault in FAULTS
    assert (entry.layer == "harmless") == (entry.fault == "none")
    for text in (entry.title, entry.cause, entry.fix):
        assert text
        assert "{" not in fill(text, {}).replace('{"cdi": true}', ""), "every word needs one to stand in for it"
    assert fill(entry.cause, {}).endswith((".", ".)"))
    assert fill(entry.fix, {}).endswith((".", ".)"))
    assert not entry.title.endswith(".")
    assert set(entry.hides) <= set(BY_ID) - {entry.id}
    assert all("#" in source for source in entry.source)
    assert entry.text or entry.weak or entry.engine


def test_no_two_entries_hide_each_other() -> None:
    assert [(e.id, h) for e in ENTRIES for h in e.hides if e.id in BY_ID[h].hides] == []


def test_the_readme_counts_the_catalogue() -> None:
    text = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    _, marker, rest = text.partition("<!-- doctor: generated count -->")
    if not marker:
        pytest.skip("README.md has no section on the doctor")
    said = rest.partition("<!-- doctor: end -->")[0]
    assert f"[{len(ENTRIES)} failures](verify/doctor/catalogue/)" in said
