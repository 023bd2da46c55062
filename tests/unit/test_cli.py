import argparse
import json
import os
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.unit import helpers
from verify import child, cli, core
from verify.commands import run as command
from verify.core import Check, Outcome, check, fail, pass_, skip
from verify.machine import Machine
from verify.signals import Stopped

CHECKS = '''
import time
from verify.core import check, pass_

@check()
def quick(m):
    """Passes."""
    return pass_("Well.")

@check({isolate})
def slow(m):
    """Takes long."""
    open({mark!r}, "w").close()
    time.sleep(60)
    return pass_("?")
'''


@pytest.fixture
def shipped(registry: dict[str, Check], monkeypatch: pytest.MonkeyPatch, healthy: Machine) -> dict[str, Check]:
    """A registry of four checks, on the healthy machine."""

    @check()
    def fine(m: Machine) -> Outcome:
        """All is well."""
        return pass_("Well.")

    @check(about="container")
    def broken(m: Machine) -> Outcome:
        """Nothing is well.

        In detail.
        """
        return fail("Broken.", hint="Mend it.")

    @check(needs="gpu")
    def unsure(m: Machine) -> Outcome:
        """The GPU is well."""
        return skip("Cannot tell.")

    @check(tier="soak")
    def long(m: Machine) -> Outcome:
        """It lasts."""
        return pass_("Lasted.")

    monkeypatch.setattr(core, "discover", lambda: registry)
    monkeypatch.setattr(command.machine, "read", lambda: healthy)
    return registry


def test_exit_codes(shipped: dict[str, Check], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", "test_cli.fine"]) == 0
    assert cli.main(["run", "test_cli.broken"]) == 1
    assert cli.main(["run", "nothing"]) == 2
    assert "no check or check file called 'nothing'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ([], "arguments are required: COMMAND"),
        (["bogus"], "invalid choice: 'bogus'"),
        (["run", "--tier", "fast"], "'fast' is not one of static, gpu, speed, soak, all"),
        (["run", "--require", "coffee"], "'coffee' is not one of gpu"),
        (["run", "--frobnicate"], "--frobnicate"),
        (["run", "--json"], "expected one argument"),
        (["run", "--json", "/nonexistent/r.json"], "the folder /nonexistent does not exist"),
        (["run", "--json", "/tmp"], "it is a folder"),
        (["run", "--json", "-", "--junit", "-"], "Only one report can go to stdout"),
        (["run", "--machine", "/nonexistent.json"], "cannot be read"),
        (["run", "--tier", "speed"], "No check is of these tiers"),
        (["explain", "nothing"], "no check or check file"),
    ],
)
def test_bad_arguments_are_one_sentence_and_code_2(
    shipped: dict[str, Check], capsys: pytest.CaptureFixture[str], argv: list[str], words: str
) -> None:
    assert cli.main(argv) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.startswith("error: ")
    assert len(error.strip().splitlines()) == 1


def test_a_defect_of_verify_is_no_verdict(
    shipped: dict[str, Check], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken() -> dict[str, Check]:
        raise core.DefinitionError("check a.b has no docstring")

    monkeypatch.setattr(core, "discover", broken)
    assert cli.main(["run"]) == 2
    assert "error: verify itself stopped with DefinitionError: check a.b has no docstring" in capsys.readouterr().err


def test_help_says_what_is_required_when(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["run", "--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert "--require none accepts every skip" in text
    assert "$VERIFY_REQUIRE" in text


def statuses(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, str]:
    capsys.readouterr()
    cli.main(["run", "--json", "-", *argv])
    return {r["id"].partition(".")[2]: r["status"] for r in json.loads(capsys.readouterr().out)["results"]}


def test_tiers_and_subjects(shipped: dict[str, Check], capsys: pytest.CaptureFixture[str]) -> None:
    assert statuses(capsys) == {"fine": "pass", "broken": "fail", "unsure": "fail"}
    assert statuses(capsys, "--tier", "static") == {"fine": "pass", "broken": "fail"}
    assert statuses(capsys, "--tier", "all").keys() == {"fine", "broken", "unsure", "long"}
    assert statuses(capsys, "--about", "image") == {"fine": "pass"}
    assert statuses(capsys, "test_cli.long") == {"long": "pass"}


@pytest.mark.parametrize(
    ("argv", "variable", "expected"),
    [
        ([], None, {"gpu"}),
        (["--require", "none"], None, set()),
        (["--require", "gpu,speed"], None, {"gpu", "speed"}),
        (["--about", "image"], None, set()),
        (["--tier", "static"], None, set()),
        (["--tier", "static,gpu"], None, {"gpu"}),
        ([], "none", set()),
        ([], "speed", {"speed"}),
        (["--require", "gpu"], "none", {"gpu"}),
    ],
)
def test_what_is_required_inside_the_image(
    healthy: Machine, monkeypatch: pytest.MonkeyPatch, argv: list[str], variable: str | None, expected: set[str]
) -> None:
    monkeypatch.delenv("VERIFY_REQUIRE", raising=False)
    if variable:
        monkeypatch.setenv("VERIFY_REQUIRE", variable)
    assert command.requirements(cli.parse(["run", *argv]), healthy) == expected


def test_nothing_is_required_outside_the_image_or_of_a_record(
    healthy: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VERIFY_REQUIRE", raising=False)
    options = cli.parse(["run"])
    assert command.requirements(options, helpers.change(healthy, "image", None)) == set()
    assert command.requirements(options, helpers.change(healthy, "recorded", True)) == set()


def test_a_bad_require_variable_is_a_usage_error(healthy: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERIFY_REQUIRE", "coffee")
    with pytest.raises(core.UsageError, match="VERIFY_REQUIRE: 'coffee' is not one of"):
        command.requirements(cli.parse(["run"]), healthy)


def test_json_on_stdout_sends_the_text_to_stderr(shipped: dict[str, Check], capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["run", "--json", "-", "--no-progress"])
    out, err = capsys.readouterr()
    assert json.loads(out)["ok"] is False
    assert "FAIL" in err.splitlines()[-1]
    assert "Mend it." in err


def test_quiet_prints_nothing(shipped: dict[str, Check], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", "--quiet"]) == 1
    assert capsys.readouterr() == ("", "")


def test_verbose_says_what_was_found(shipped: dict[str, Check], capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["run", "test_cli.fine", "--no-progress", "-v"])
    assert "✔ fine  Well." in capsys.readouterr().out


def test_every_report_is_written(shipped: dict[str, Check], tmp_path: Path) -> None:
    names = {name: tmp_path / f"r.{name}" for name in ("json", "junit", "prometheus", "markdown")}
    cli.main(["run", "-q", *(word for name, path in names.items() for word in (f"--{name}", str(path)))])
    assert json.loads(names["json"].read_text())["complete"] is True
    assert ET.parse(names["junit"]).getroot().get("tests") == "3"
    assert "verify_ok 0" in names["prometheus"].read_text()
    assert names["markdown"].read_text().startswith("## verify: FAIL")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["r.json", "r.junit", "r.markdown", "r.prometheus"]


def test_a_report_that_cannot_be_written_at_the_end_is_code_2_and_leaves_nothing(
    shipped: dict[str, Check], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("verify.report.os.replace", full)
    assert cli.main(["run", "--json", str(tmp_path / "r.json")]) == 2
    out, err = capsys.readouterr()
    assert "r.json cannot be written: No space left on device." in err
    assert "FAIL" in out
    assert list(tmp_path.iterdir()) == []


def test_a_recorded_machine_is_judged(tmp_path: Path, shipped: dict[str, Check]) -> None:
    out = tmp_path / "r.json"
    record = helpers.MACHINES / "container-without-gpus.json"
    cli.main(["run", "-q", "--machine", str(record), "--json", str(out)])
    run = json.loads(out.read_text())
    assert run["machine"]["recorded"] is True
    assert [r["status"] for r in run["results"]] == ["pass", "fail", "skip"]


def test_list_and_explain(shipped: dict[str, Check], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["list"]) == 0
    assert "test_cli.fine    static  image      All is well." in capsys.readouterr().out
    assert cli.main(["list", "--json", "--about", "container"]) == 0
    assert [c["id"] for c in json.loads(capsys.readouterr().out)] == ["test_cli.broken"]
    assert cli.main(["explain", "test_cli.broken"]) == 0
    text = capsys.readouterr().out
    assert "Nothing is well." in text
    assert "In detail." in text
    assert "about the container" in text


def test_machine_prints_a_record(
    capsys: pytest.CaptureFixture[str], shipped: dict[str, Check], healthy: Machine
) -> None:
    assert cli.main(["machine"]) == 0
    assert Machine.from_dict(json.loads(capsys.readouterr().out)) == healthy


@pytest.mark.parametrize("isolate", [False, True])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_run_leaves_readable_partial_reports(
    tmp_path: Path, number: int, code: int, isolate: bool
) -> None:
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut/__init__.py").touch()
    mark = tmp_path / "running"
    (tmp_path / "cut/pair.py").write_text(CHECKS.format(isolate="isolate=True" if isolate else "", mark=str(mark)))
    main = "import sys; from verify import cli, core; find = core.discover; core.discover = lambda: find('cut')"
    files = {name: tmp_path / name for name in ("json", "junit", "prometheus", "markdown")}
    argv = [word for name, path in files.items() for word in (f"--{name}", str(path))]
    process = subprocess.Popen(
        [sys.executable, "-c", f"{main}; sys.exit(cli.main(['run', *sys.argv[1:]]))", *argv],
        env={**child.environment(), "PYTHONPATH": os.pathsep.join([str(tmp_path), str(child.ROOT)])},
        stdout=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while not mark.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(number)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == code
    assert "INCOMPLETE" in out.splitlines()[-1]
    run = json.loads(files["json"].read_text())
    assert (run["complete"], run["ok"], [r["id"] for r in run["results"]]) == (False, False, ["pair.quick"])
    assert ET.parse(files["junit"]).getroot().get("errors") == "1"
    assert "verify_complete 0" in files["prometheus"].read_text()
    assert "INCOMPLETE" in files["markdown"].read_text()


@pytest.mark.parametrize(("raised", "code"), [(Stopped(15), 143), (KeyboardInterrupt(), 130)])
def test_a_command_told_to_end_says_so(
    raised: BaseException, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(_: object) -> int:
        raise raised

    monkeypatch.setattr(cli, "parse", lambda argv: argparse.Namespace(run=run))
    assert cli.main(["claims"]) == code
    assert capsys.readouterr().err == "error: Stopped before it was done.\n"
