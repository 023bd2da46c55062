"""The table of many nodes: order, bad files, outliers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit import helpers
from verify.core import Run, Sample, Status
from verify.report import fleet, json_
from verify.report.outliers import cutoff, odd_facts, outliers


def node(*figures: float, machine: str = "healthy-4090d", complete: bool = True, **results: Status) -> Run:
    """A run with checks c.<name> of these statuses and one sample of these values."""
    made = [helpers.result(f"c.{name}", status, f"{name} is {status}.") for name, status in results.items()]
    samples = (Sample("matmul", "TFLOP/s", "higher", figures, {}),) if figures else ()
    return helpers.run_of(*(made or [helpers.result()]), complete=complete, machine=machine, samples=samples)


def changed(run: Run, path: str, value: Any) -> Run:
    return helpers.change(run, f"machine.{path}", value)


def order(text: str) -> list[str]:
    """The names of the table, from the top."""
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("node "))
    return [line.split()[0] for line in lines[start + 1 :] if line and not line.startswith(" ")][
        : next((i for i, line in enumerate(lines[start + 1 :]) if not line), len(lines))
    ]


def test_worst_node_comes_first() -> None:
    nodes: list[fleet.Node] = [
        ("well", node(a=Status.PASS)),
        ("warned", node(a=Status.WARN)),
        ("one", node(a=Status.FAIL)),
        ("two", node(a=Status.FAIL, b=Status.ERROR)),
        ("cut", node(a=Status.PASS, complete=False)),
        ("unproven", node(a=Status.SKIP)),
        ("gone", "The file is empty: the node wrote no report."),
    ]
    text = fleet.render(nodes)
    assert order(text) == ["gone", "cut", "two", "one", "unproven", "warned", "well"]
    assert text.startswith("7 nodes: 1 UNREADABLE, 1 INCOMPLETE, 2 FAIL, 1 SKIPPED, 2 PASS.\n")
    assert "the node wrote no report" in text
    assert not fleet.ok(nodes)


def test_fleet_that_is_well() -> None:
    nodes: list[fleet.Node] = [(f"n{i}", node(150.0 + i / 10)) for i in range(4)]
    text = fleet.render(nodes)
    assert fleet.ok(nodes)
    assert text.startswith("4 nodes: 4 PASS.\n")
    assert "differs" not in text
    assert "attention" not in text


def test_no_node_is_not_well() -> None:
    assert not fleet.ok([])
    assert fleet.render([]).startswith("0 nodes: none.")


def test_one_finding_of_many_nodes_is_said_once() -> None:
    nodes: list[fleet.Node] = [(f"n{i}", node(a=Status.FAIL)) for i in range(9)]
    text = fleet.render(nodes)
    assert text.count("a is fail.") == 1
    assert "FAIL c.a on n0, n1, n2, n3, n4, n5 and 3 more: a is fail." in text
    assert text.count("→ Do this.") == 1


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "is empty"),
        ("{", "no JSON"),
        ('{"schema": 1, "results": [', "cut short"),
        ("[]", "not a report"),
        ('{"schema": 99}', "schema 1: found 99"),
        ('{"schema": 1}', "not a report"),
        ("[" * 100_000, "not a report"),
        (b"\xff\xfe\x00", "not a report"),
        (None, "cannot be read"),
    ],
)
def test_bad_files_are_bad_nodes(tmp_path: Path, content: str | bytes | None, words: str) -> None:
    path = tmp_path / "n1.json"
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    (name, why), *rest = fleet.read([str(path)])
    assert (name, rest) == ("n1", [])
    assert isinstance(why, str)
    assert words in why
    for markdown in (False, True):
        assert "UNREADABLE" in fleet.render([(name, why)], markdown=markdown)


def test_files_are_read_and_named(tmp_path: Path) -> None:
    for name in ("a/n1", "b/n1", "n2"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / f"{name}.json").write_text(json_.render(node(150.0, a=Status.PASS)))
    read = fleet.read(str(tmp_path / f"{n}.json") for n in ("a/n1", "b/n1", "n2"))
    assert [n for n, _ in read] == [str(tmp_path / "a/n1.json"), str(tmp_path / "b/n1.json"), "n2"]
    assert all(isinstance(run, Run) and run.samples[0].values == (150.0,) for _, run in read)
    assert fleet.ok(read)


def fleet_of(*figures: float) -> dict[str, Run]:
    return {f"n{i}": node(f) for i, f in enumerate(figures)}


def test_slow_node_is_an_outlier_and_comes_before_the_well() -> None:
    runs = fleet_of(150.1, 149.8, 150.3, 149.9, 120.0, 150.0, 150.2, 149.7)
    (found,) = outliers(runs)
    assert (found.node, found.worse, found.nodes) == ("n4", True, 8)
    text = fleet.render(list(runs.items()))
    assert order(text)[0] == "n4"
    assert "OUTLIER" in text
    assert "n4: matmul is 120 TFLOP/s, 20.0% worse than the median 149.9 of 8 nodes" in text
    assert fleet.ok(list(runs.items()))


def test_outlier_that_is_better_is_told_and_is_no_bad_node() -> None:
    runs = fleet_of(*[150.0 + i / 10 for i in range(9)], 190.0)
    (found,) = outliers(runs)
    assert not found.worse
    text = fleet.render(list(runs.items()))
    assert "OUTLIER" not in text
    assert "better than the median" in text


@pytest.mark.parametrize(
    ("figures", "outlying"),
    [
        ((100.0, 100.0, 100.0, 100.0, 100.0, 99.0), []),  # a spread of zero makes no outlier of 1 %
        ((100.0, 100.0, 100.0, 100.0, 100.0, 90.0), ["n5"]),
        ((100.0, 104.0, 97.0, 101.0, 95.0, 99.0, 103.0, 93.0), []),  # a wide spread is no outlier
        ((100.0, 101.0, 80.0), ["n2"]),  # few nodes: told when far off
        ((100.0, 101.0, 95.0), []),
        ((100.0, 50.0), []),  # nobody knows which of two is right
        ((float("nan"), 100.0, 100.0, 100.0), []),
    ],
)
def test_who_is_an_outlier(figures: tuple[float, ...], outlying: list[str]) -> None:
    assert [o.node for o in outliers(fleet_of(*figures))] == outlying


def test_lower_is_better_for_times() -> None:
    runs = {
        f"n{i}": helpers.run_of(helpers.result(), samples=(Sample("step", "ms", "lower", (v,), {}),))
        for i, v in enumerate((20.0, 20.1, 19.9, 20.05, 19.95, 20.02, 19.98, 30.0))
    }
    (found,) = outliers(runs)
    assert (found.node, found.worse) == ("n7", True)


def test_nodes_with_other_gpus_are_not_compared() -> None:
    runs = fleet_of(*[150.0 + i / 10 for i in range(6)])
    runs |= {f"h{i}": node(700.0 + i, machine="h200") for i in range(2)}
    assert outliers(runs) == []


def test_cutoff_falls_with_the_number_of_nodes() -> None:
    assert cutoff(4) is None
    limits = [cutoff(n) for n in (5, 6, 9, 10, 49, 1000)]
    assert limits == sorted((limit for limit in limits if limit), reverse=True)


def test_odd_facts_name_the_node_and_the_majority() -> None:
    runs = {f"n{i}": node() for i in range(4)}
    runs["n2"] = changed(runs["n2"], "driver", {**runs["n2"].machine["driver"], "version": "550.54.14"})
    assert odd_facts(runs) == {"n2": {"driver": "driver 550.54.14, where 3 of 4 nodes have 550.90.07."}}
    text = fleet.render(list(runs.items()))
    assert "other driver" in text
    assert order(text)[0] == "n2"


def test_no_majority_makes_nobody_odd() -> None:
    runs = {f"n{i}": node() for i in range(4)}
    for name in ("n0", "n1"):
        runs[name] = changed(runs[name], "driver", {**runs[name].machine["driver"], "version": "535.1"})
    assert odd_facts(runs) == {}


def test_hostile_text_stays_text() -> None:
    odd = "a\x1b[31m | <b>\nc"
    nodes: list[fleet.Node] = [(odd, helpers.run_of(helpers.result("c.a", Status.FAIL, odd, hint=odd))), ("n", odd)]
    text, marked = fleet.render(nodes), fleet.render(nodes, markdown=True)
    assert "\x1b" not in text + marked
    assert "<b>" not in marked
    rows = [line for line in marked.splitlines() if line.startswith("| ")]
    assert len(rows) == 3
    assert all(row.replace("\\|", "").count("|") == 7 for row in rows)


def test_report_without_any_fact_is_shown() -> None:
    run = Run.from_dict(json.loads(json_.render(node(a=Status.PASS))) | {"machine": {}, "image": None})
    assert "no GPU" in fleet.render([("bare", run)])
