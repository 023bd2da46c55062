import json
import sys
from pathlib import Path

import pytest

from tests.unit import helpers
from verify import core
from verify.core import Check, DefinitionError, Outcome, Run, Sample, Status, UsageError, check, fail, pass_, skip, warn
from verify.machine import Machine


def declare(
    registry: dict[str, Check], name: str = "fine", doc: str | None = "All is well.", **options: object
) -> Check:
    def function(m: Machine) -> Outcome:
        return pass_("Well.")

    function.__name__, function.__doc__ = name, doc
    check(**options)(function)  # type: ignore[arg-type]
    return list(registry.values())[-1]


def test_id_is_file_and_function_and_title_is_the_first_paragraph(registry: dict[str, Check]) -> None:
    made = declare(registry, doc="A sentence that\n    goes on.\n\n    And more.")
    assert made.id == "test_core.fine"
    assert made.title == "A sentence that goes on."
    assert "And more." in made.text


@pytest.mark.parametrize(
    ("options", "tier", "about"),
    [
        ({}, "static", "image"),
        ({"needs": "gpu"}, "gpu", "machine"),
        ({"needs": ("torch", "multi_gpu")}, "gpu", "machine"),
        ({"needs": "gpu", "tier": "static", "about": "image"}, "static", "image"),
        ({"needs": "torch", "about": "container"}, "static", "container"),
    ],
)
def test_tier_and_about_follow_from_the_needs(
    registry: dict[str, Check], options: dict[str, str], tier: str, about: str
) -> None:
    made = declare(registry, **options)
    assert (made.tier, made.about) == (tier, about)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"doc": None}, "has no docstring"),
        ({"doc": "  "}, "has no docstring"),
        ({"needs": "coffee"}, "unknown need 'coffee'"),
        ({"tier": "slow"}, "unknown tier 'slow'"),
        ({"about": "me"}, "unknown about 'me'"),
    ],
)
def test_a_wrong_declaration_is_an_error_at_import(
    registry: dict[str, Check], options: dict[str, str], message: str
) -> None:
    with pytest.raises(DefinitionError, match=message):
        declare(registry, **options)


def test_two_checks_of_one_name_are_an_error_at_import(registry: dict[str, Check]) -> None:
    declare(registry)
    with pytest.raises(DefinitionError, match=r"two checks are called test_core\.fine"):
        declare(registry)


def test_files_are_found_not_listed(
    registry: dict[str, Check], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "found_checks"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "disk.py").write_text(
        "from verify.core import check, pass_\n@check()\ndef free(m):\n    'Room.'\n    return pass_('Room.')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    try:
        assert list(core.discover("found_checks")) == ["disk.free"]
    finally:
        for name in [n for n in sys.modules if n.startswith("found_checks")]:
            del sys.modules[name]


def test_a_failure_without_a_hint_is_refused() -> None:
    with pytest.raises(ValueError, match="needs a hint"):
        fail("Broken.", hint=" ")


def test_outcomes_carry_what_they_are_given() -> None:
    assert fail("B.", hint="Do.", data={"a": 1}) == Outcome(Status.FAIL, "B.", "Do.", {"a": 1})
    assert [o.status for o in (pass_("."), warn("."), skip("."))] == [Status.PASS, Status.WARN, Status.SKIP]


def test_selection(registry: dict[str, Check]) -> None:
    fast = declare(registry, "fast")
    slow = declare(registry, "slow", tier="speed")
    box = declare(registry, "box", about="container")
    assert core.select(registry, [], ["static"], []) == [fast, box]
    assert core.select(registry, [], ["static"], ["container"]) == [box]
    assert core.select(registry, ["test_core.slow"], ["static"], []) == [slow]
    assert core.select(registry, ["test_core"], [], []) == [fast, slow, box]
    with pytest.raises(UsageError, match="no check or check file called 'test'"):
        core.select(registry, ["test"], [], [])


def test_a_run_comes_back_from_json() -> None:
    sample = Sample("matmul", "TFLOP/s", "higher", (1.0, 2.0), {"sm_clock": 2520})
    run = helpers.run_of(helpers.result(), helpers.result("a.b", Status.FAIL), samples=(sample,))
    back = Run.from_dict(json.loads(json.dumps(run.to_dict())))
    assert back.results == run.results
    assert back.samples == run.samples
    assert back.counts() == {Status.PASS: 1, Status.FAIL: 1}


@pytest.mark.parametrize("data", [{}, {"schema": 99}, [], {"schema": 1}, {"schema": 1, "results": [], "samples": []}])
def test_what_is_no_run_is_refused(data: object) -> None:
    with pytest.raises(ValueError, match="not a"):
        Run.from_dict(data)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("statuses", "complete", "ok"),
    [
        ([Status.PASS, Status.WARN, Status.SKIP, Status.UNRATED, Status.INCONCLUSIVE], True, True),
        ([Status.PASS, Status.FAIL], True, False),
        ([Status.ERROR], True, False),
        ([Status.PASS], False, False),
    ],
)
def test_what_counts_as_well(statuses: list[Status], complete: bool, ok: bool) -> None:
    assert helpers.run_of(*(helpers.result(status=s) for s in statuses), complete=complete).ok() is ok


def test_every_shipped_check_has_a_title_that_is_a_sentence() -> None:
    titles = {made.id: made.title for made in core.discover().values()}
    assert titles
    assert [ident for ident, title in titles.items() if not title.endswith((".", ")"))] == []
