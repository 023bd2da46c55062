"""The HTML report: complete, self-contained, and safe with any text."""

import builtins
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.unit import helpers, nights
from verify import cli, history, report
from verify.core import Run, Sample, Status, UsageError
from verify.report import charts, html, json_

ODD = 'a | b\x00\x1b[31m <script>alert(1)</script> & "d"\\ \n`e` — 中文'
VOID = {"meta", "br"}


class Reader(HTMLParser):
    """Complains about tags that are not closed; gathers attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def parsed(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    assert reader.open == []
    return reader


@pytest.fixture(scope="module")
def night() -> Run:
    return nights.run()


def test_the_page_needs_nothing_from_outside(night: Run) -> None:
    page = html.render(night)
    reader = parsed(page)
    assert not {"script", "link", "img", "iframe", "object"} & set(reader.tags)
    assert not [a for a, _ in reader.attributes if a in {"href", "src", "action"} or a.startswith("on")]
    assert not re.search(r"https?://|url\(|@import", page)


def test_the_verdict_comes_first_then_the_speed_then_the_machine(night: Run) -> None:
    page = html.render(night)
    order = ("<h1>FAIL</h1>", "What needs attention", ">Speed<", "The machine", "All checks")
    places = [page.index(text) for text in order]
    assert places == sorted(places)


def test_every_check_and_every_process_is_there(night: Run) -> None:
    page = html.render(night)
    for r in night.results:
        assert f"<code>{r.id}</code>" in page
    assert page.count('<circle class="dot"') == sum(len(s.values) for s in night.samples)


def test_a_strip_shows_limit_ceiling_and_what_was_published() -> None:
    chart = charts.strip((140.0, 141.0), "TFLOP/s", "higher", limit=112, ceiling=158.3, published=300)
    parsed(chart)
    assert "limit ≥ 112" in chart
    assert "ceiling 158.3" in chart
    assert '<svg class="mark"' in chart
    assert "published 300" in charts.strip((140.0,), "TFLOP/s", "higher", published=300)
    lower = charts.strip((0.13,), "s", "lower", limit=0.38)
    assert "limit ≤ 0.38" in lower
    assert '<rect class="good" x="0.0%"' in lower


@pytest.mark.parametrize("values", [(1.0,), (1.0, 1.0), (0.0,), (-1.0, 2.0), (1e-9, 2e-9), (1e12, 1.0)])
def test_charts_stand_any_number(values: tuple[float, ...]) -> None:
    for unit in ("×", "s"):
        parsed(charts.strip(values, unit, "lower", limit=values[0]))
    points = [charts.Night(str(i), v, v, v) for i, v in enumerate(values)]
    parsed(charts.trend(points, "s", values[0], 0.01))
    for place in re.findall(r'(?:x|x1|x2|cx)="([-0-9.e]+)%"', charts.strip(values, "s", "higher", limit=1e15)):
        assert 0 <= float(place) <= 100


def test_speed_ups_stand_beside_what_was_published(night: Run) -> None:
    page = html.render(night)
    assert "Speed-up by torch.compile" in page
    assert "1.49× published" in page
    assert "published 148.9" in page


def test_any_text_is_only_text(night: Run) -> None:
    loud = helpers.result("stack.lock", Status.FAIL, ODD, hint=ODD)
    bench = replace(night.results[-1], id=ODD, title=ODD, hint=ODD, message=ODD)
    sample = Sample(ODD, ODD, "higher", (1.0, 2.0), {"amp": ODD})
    run = replace(night, results=(loud, bench), samples=(sample,), image={"name": ODD}, started=ODD)
    page = html.render(run)
    assert "<script" not in parsed(page).tags
    assert "<script" not in page
    assert "\x00" not in page
    assert "\x1b" not in page


def test_backticks_become_code_and_a_single_one_stays() -> None:
    assert html.prose("run `a < b` now") == "run <code>a &lt; b</code> now"
    assert html.prose("it`s") == "it`s"


def test_a_run_without_anything_is_still_a_page() -> None:
    for run in (helpers.run_of(), Run("", "", False, {}, None, ()), helpers.run_of(complete=False)):
        page = html.render(run)
        parsed(page)
        assert "<h2>Speed</h2>" not in page


@pytest.fixture
def past(tmp_path: Path) -> str:
    place = str(tmp_path / "history.jsonl")
    for day, factor in ((0, 1.0), (1, 1.0), (2, 1.05)):
        run = nights.run(day, factor=factor)
        calm = replace(run, results=tuple(r for r in run.results if r.status is not Status.FAIL))
        history.append(place, calm)
        if day == 0:
            history.accept(history.read(place), "1")
    return place


def test_the_trend_shows_every_night_and_marks_the_slow(past: str) -> None:
    found = history.read(past)
    page = html.render(found.entries[-1].run, found)
    assert "Night by night" in page
    assert page.count('class="trend"') == len(nights.BENCHES)
    assert page.count('<em class="slow">SLOW</em>') == page.count('<svg class="slow"') == len(nights.BENCHES)
    assert "2026-08-01 – 2026-08-03" in page


def test_one_night_is_no_trend(night: Run, tmp_path: Path) -> None:
    place = str(tmp_path / "one.jsonl")
    history.append(place, night)
    assert "Night by night" not in html.render(night, history.read(place))


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """jinja2 is not installed."""
    real = builtins.__import__

    def without(name: str, *args: object, **kwargs: object) -> object:
        if name.partition(".")[0] == "jinja2":
            raise ImportError(name)
        return real(name, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", without)


@pytest.mark.usefixtures("bare")
def test_without_jinja2_one_sentence_says_so_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    assert cli.main(["run", "--tier", "static", "--html", str(page)]) == 2
    captured = capsys.readouterr()
    assert "needs the Python package jinja2" in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""
    assert not page.exists()
    with pytest.raises(UsageError, match="jinja2"):
        report.ready(["html"])
    report.ready(["json", "markdown"])


def test_the_report_command(night: Run, past: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, page, table = tmp_path / "run.json", tmp_path / "page.html", tmp_path / "page.md"
    file.write_text(json_.render(night))
    assert cli.main(["report", str(file)]) == 1
    assert "FAIL" in capsys.readouterr().out
    argv = ["report", str(file), "--html", str(page), "--markdown", str(table), "--history", past]
    assert cli.main(argv) == 1
    assert "Night by night" in page.read_text()
    assert table.read_text().startswith("## verify: FAIL")
    assert cli.main(["report", str(file), "--json", "-"]) == 1
    assert json.loads(capsys.readouterr().out)["ok"] is False


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["/nowhere.json"], "cannot be read"),
        (["/dev/null"], "is not a report"),
        (["/dev/null", "--html", "-", "--json", "-"], "Only one report"),
        (["/dev/null", "--html", "/nowhere/a.html"], "does not exist"),
        (["/dev/null", "/dev/null", "--html", "x.html"], "as text or --markdown"),
    ],
)
def test_the_report_command_refuses(argv: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["report", *argv]) == 2
    err = capsys.readouterr().err
    assert words in err
    assert err.count("\n") == 1
