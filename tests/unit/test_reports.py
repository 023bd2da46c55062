import builtins
import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import jsonschema
import pytest

from tests.unit import helpers
from verify import report
from verify.core import Result, Run, Sample, Status, UsageError
from verify.report import group, json_, junit, markdown, prometheus, text

ODD = 'a | b\x00\x1b[31m <c> & "d"\\ \n`e` — 中文'


@pytest.fixture
def mixed() -> Run:
    """One of everything."""
    return helpers.run_of(
        helpers.result("stack.lock", Status.PASS, "All 161 packages are as locked."),
        helpers.result("stack.family", Status.FAIL, "torchvision 0.22.1 is of another torch.", hint="Install 0.23.0."),
        helpers.result("container.memory", Status.WARN, "Little memory.", hint="Give it more."),
        helpers.result("gpu.works", Status.SKIP, "No GPU: none.", hint="Start with --gpus all."),
        helpers.result("gpu.computes", Status.SKIP, "No GPU: none.", hint="Start with --gpus all."),
        helpers.result("gpu.lasts", Status.SKIP, "No GPU: none.", hint="Start with --gpus all."),
        helpers.result("speed.matmul", Status.INCONCLUSIVE, "Noise of 8 %."),
        helpers.result("speed.memory", Status.UNRATED, "No limit for this card."),
        helpers.result("libraries.loads", Status.ERROR, "The check's process ended by an abort.", data={"output": ODD}),
        samples=(Sample("matmul", "TFLOP/s", "higher", (140.0, 150.0, 149.0), {"sm_clock": 2520}),),
    )


def test_json_follows_the_published_schema(mixed: Run) -> None:
    jsonschema.Draft202012Validator.check_schema(json_.schema())
    data = json.loads(json_.render(mixed))
    jsonschema.validate(data, json_.schema())
    assert data["counts"] == {"pass": 1, "warn": 1, "fail": 1, "error": 1, "skip": 3, "unrated": 1, "inconclusive": 1}
    assert data["ok"] is False


def test_json_has_no_nan() -> None:
    nan = float("nan")
    run = helpers.run_of(
        helpers.result(data={"ratio": nan, "inner": [float("inf")]}), samples=(Sample("a", "s", "lower", (nan, 1.0)),)
    )
    data = json.loads(json_.render(run), parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    jsonschema.validate(data, json_.schema())
    assert data["samples"][0]["values"] == [None, 1.0]
    assert data["results"][0]["data"] == {"ratio": None, "inner": [None]}


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.pop("machine"),
        lambda d: d["results"][0].update(status="fine"),
        lambda d: d["results"][1].update(hint=""),
        lambda d: d.update(novelty=1),
    ],
    ids=["no machine", "unknown status", "fail without hint", "unknown key"],
)
def test_the_schema_refuses_what_is_wrong(mixed: Run, change: object) -> None:
    data = json.loads(json_.render(mixed))
    change(data)  # type: ignore[operator]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(data, json_.schema())


def test_a_report_reads_back_as_a_run(mixed: Run) -> None:
    data = json.loads(json_.render(mixed))
    assert Run.from_dict(data).results == mixed.results


def test_junit_counts_and_texts(mixed: Run) -> None:
    root = ET.fromstring(junit.render(mixed))
    assert {k: root.get(k) for k in ("tests", "failures", "errors", "skipped")} == {
        "tests": "9",
        "failures": "1",
        "errors": "1",
        "skipped": "3",
    }
    failure = root.find(".//testcase[@name='family']/failure")
    assert failure is not None
    assert failure.text == "torchvision 0.22.1 is of another torch.\nInstall 0.23.0."
    assert [s.get("name") for s in root] == ["stack", "container", "gpu", "speed", "libraries"]


def test_junit_of_a_run_cut_short_has_an_error() -> None:
    root = ET.fromstring(junit.render(helpers.run_of(helpers.result(), complete=False)))
    assert (root.get("tests"), root.get("errors")) == ("2", "1")


@pytest.mark.parametrize("status", list(Status))
def test_odd_characters_survive_every_format(status: Status) -> None:
    run = helpers.run_of(helpers.result("a.b", status, ODD, hint=ODD, data={"output": ODD}))
    assert ET.fromstring(junit.render(run)).tag == "testsuites"
    assert json.loads(json_.render(run))["results"][0]["message"] == ODD
    assert prometheus.render(run).count("\n") > 5
    for line in markdown.render(run).splitlines():
        assert not re.search(r"<c>", line)
    assert "中文" in text.render(run, verbose=True)


def test_prometheus_format(mixed: Run) -> None:
    lines = prometheus.render(mixed).splitlines()
    assert "verify_ok 0" in lines
    assert 'verify_checks{status="skip"} 3' in lines
    assert 'verify_check_status{check="stack.family",tier="static",about="image",status="fail"} 1' in lines
    assert 'verify_sample_median{sample="matmul",unit="TFLOP/s",better="higher"} 149' in lines
    assert "verify_finished_timestamp_seconds 1788059580" in lines
    row = re.compile(r'^[a-z_]+(\{([a-z]+="[^"\n]*",?)*\})? (\S+)$')
    assert [line for line in lines if not line.startswith("#") and not row.match(line)] == []
    names = {line.split("{")[0].split(" ")[0] for line in lines if not line.startswith("#")}
    assert names == {line.split()[2] for line in lines if line.startswith("# TYPE")}


@pytest.mark.parametrize(
    ("value", "expected"), [(float("nan"), "NaN"), (float("inf"), "+Inf"), (float("-inf"), "-Inf"), (0.5, "0.5")]
)
def test_prometheus_numbers(value: float, expected: str) -> None:
    assert prometheus.number(value) == expected


def test_prometheus_labels_are_escaped() -> None:
    assert prometheus.label('a"b\\c\nd') == 'a\\"b\\\\c\\nd'


def test_markdown_puts_the_verdict_and_the_failures_first(mixed: Run) -> None:
    lines = markdown.render(mixed).splitlines()
    assert lines[0] == "## verify: FAIL"
    attention = [line for line in lines if line.startswith("- ") and "**" in line]
    assert [re.findall(r"\*\*(.+?)\*\*", line)[0] for line in attention] == [
        "libraries.loads",
        "stack.family",
        "speed.matmul",
        "speed.memory",
        "container.memory",
    ]
    assert "| ❌ stack | 1 passed, 1 failed | 0.5 |" in lines


def test_text_is_calm_when_all_is_well(healthy: object) -> None:
    run = helpers.run_of(*(helpers.result(f"{f}.{n}") for f in ("stack", "image") for n in ("a", "b")))
    lines = text.render(run).splitlines()
    assert len(lines) == 9
    assert lines[0] == "pytorch-workspace 2.8.0 · devel · sm_89 · on debian:trixie-slim"
    assert lines[-1] == "PASS  4 checks in 1.0 s: 4 passed."


def test_text_is_loud_when_not_and_gives_the_fix(mixed: Run) -> None:
    shown = text.render(mixed)
    assert "│ FAIL stack.family" in shown
    assert "│ → Install 0.23.0." in shown
    assert shown.index("torchvision 0.22.1") < shown.index("→ Install 0.23.0.")
    assert [n for n in shown.splitlines()[-2:] if n.startswith("FAIL  9 checks in ")]


def test_text_says_a_common_failure_once() -> None:
    run = helpers.run_of(*(helpers.result(f"gpu.{n}", Status.FAIL, "Required, but skipped: no GPU.") for n in "abc"))
    shown = text.render(run)
    assert "│ FAIL gpu.a, b, c" in shown
    assert shown.count("no GPU.") == 1


def test_text_says_a_common_reason_for_skips_once(mixed: Run) -> None:
    shown = text.render(mixed)
    assert shown.count("No GPU: none.") == 1
    assert "3 checks skipped. No GPU: none." in shown


def test_text_names_a_single_skip() -> None:
    shown = text.render(helpers.run_of(helpers.result("gpu.works", Status.SKIP, "No GPU.")))
    assert "gpu.works skipped. No GPU." in shown


def test_text_fits_its_width(mixed: Run) -> None:
    for width in (60, 80, 100):
        assert [line for line in text.render(mixed, width=width).splitlines() if len(line) > width] == []


def test_colour_changes_nothing_but_colour(mixed: Run) -> None:
    pytest.importorskip("rich")
    coloured = text.render(mixed, color=True)
    assert "\x1b[1;31m" in coloured
    bare = re.sub(r"\x1b\[[0-9;]*m", "", coloured)
    odd = ODD.splitlines()[0]
    assert [line.rstrip() for line in bare.splitlines()] == text.render(mixed).splitlines()
    assert odd not in bare


def test_without_rich_the_same_is_said(mixed: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: object) -> object:
        if name.startswith("rich"):
            raise ImportError(name)
        return real(name, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", without)
    assert text.render(mixed, color=True) == text.render(mixed)


@pytest.mark.parametrize(
    ("results", "complete", "word"),
    [
        ([helpers.result()], True, "PASS"),
        ([helpers.result(), helpers.result("a.b", Status.SKIP)], True, "PASS"),
        ([helpers.result("a.b", Status.SKIP)], True, "SKIPPED"),
        ([helpers.result("a.b", Status.FAIL)], True, "FAIL"),
        ([helpers.result()], False, "INCOMPLETE"),
        ([], False, "INCOMPLETE"),
    ],
)
def test_the_verdict(results: list[Result], complete: bool, word: str) -> None:
    assert group.verdict(helpers.run_of(*results, complete=complete))[0] == word


def test_what_was_skipped_is_said_not_to_be_proven() -> None:
    run = helpers.run_of(helpers.result(), helpers.result("a.b", Status.SKIP))
    assert group.verdict(run)[1].endswith("What was skipped is not proven.")


@pytest.mark.parametrize("machine", ["healthy-4090d", "container-without-gpus", "image-build"])
def test_every_format_renders_every_machine(machine: str) -> None:
    run = helpers.run_of(helpers.result(), machine=machine)
    assert all(render(run) for render in report.RENDERERS.values())
    assert ("NVIDIA GeForce RTX 4090 D 24 GiB" in text.render(run)) is (machine == "healthy-4090d")


def test_an_empty_machine_renders() -> None:
    run = Run("", "", False, {}, None, ())
    assert all(render(run) for render in (*report.RENDERERS.values(), text.render))


def test_a_report_replaces_the_old_one_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text("old")
    report.write(str(path), "new")
    assert path.read_text() == "new"
    assert [p.name for p in tmp_path.iterdir()] == ["r.json"]


def test_a_report_to_nowhere_is_refused_beforehand(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none" / "r.json"):
        with pytest.raises(UsageError, match="cannot be written"):
            report.writable(str(path))
    report.writable(str(tmp_path / "r.json"))
    report.writable("/dev/null")
    report.write("/dev/null", "text")
