"""The parent's side of the probes: whatever their process does, each gets an outcome, and want of the JIT is named."""

from __future__ import annotations

import dataclasses
import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.helpers import ask as ask_check
from tests.unit.helpers import change, package
from verify import core
from verify.checks import multi_gpu
from verify.child import Child
from verify.core import Outcome, Status
from verify.gpu import ask, worker
from verify.gpu.probes import PROBES, Context
from verify.machine import Machine

GPU_FILES = ("attention_flash", "attention_sdpa", "attention_xformers", "compile", "computes", "memory")

PROBES_OF_A_TEST = """
import os
from verify.core import fail, pass_
from verify.gpu.probes import probe


@probe
def well(context):
    return pass_(f"sm_{context.sm}, JIT off: {os.environ.get('CUDA_DISABLE_PTX_JIT')}")


@probe
def ill(_):
    return fail("Ill.", hint="Heal.")


@probe
def raises(_):
    raise ValueError("unexpected")


@probe
def jit(_):
    if os.environ.get("CUDA_DISABLE_PTX_JIT") == "1":
        raise RuntimeError("cuFFT error: CUFFT_INTERNAL_ERROR")
    return pass_("with the driver's compiler")


@probe
def sticky(_):
    raise RuntimeError("CUDA error: device-side assert triggered")


@probe
def dies(_):
    os.abort()


@probe
def last(_):
    return pass_("still here")
"""


@pytest.fixture
def made_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The dotted name of a module of probes the child processes can import."""
    (tmp_path / "made_up").mkdir()
    (tmp_path / "made_up" / "probes.py").write_text(PROBES_OF_A_TEST)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    ask.collect.cache_clear()
    return "made_up.probes"


def answers(file: str, jit: bool) -> dict[str, Outcome]:
    text = json.dumps(dataclasses.asdict(Context(89, jit=jit)), sort_keys=True)
    return dict(ask.collect(file, text, 60.0))


def test_each_probe_gets_its_own_end(made_up: str) -> None:
    found = answers(made_up, False)
    assert {n.removeprefix("probes."): o.status.value for n, o in found.items()} == {
        "well": "pass",
        "ill": "fail",
        "raises": "error",
        "jit": "fail",
        "sticky": "error",
        "dies": "error",
        "last": "pass",
    }
    assert found["probes.well"].message == "sm_89, JIT off: 1"
    assert "compiles PTX" in found["probes.jit"].message
    assert "CUFFT_INTERNAL_ERROR" in found["probes.jit"].message
    assert "abort" in found["probes.dies"].message
    assert found["probes.sticky"].data["ending"] == "sticky CUDA error"


def test_want_of_the_jit_is_a_warning_where_the_driver_can_compile(made_up: str) -> None:
    found = answers(made_up, True)["probes.jit"]
    assert (found.status, "older one would fail" in found.hint) == (Status.WARN, True)


def test_a_library_that_has_the_driver_compile_on_purpose_is_no_failure(
    made_up: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ask, "BY_DRIVER", {"probes.jit": "made so", "probes.raises": "made so"})
    found = answers(made_up, False)
    assert found["probes.jit"].status is Status.PASS
    assert found["probes.jit"].message == "with the driver's compiler (made so)."
    assert found["probes.raises"].status is Status.ERROR  # what the compiler does not cure stays


def test_every_exception_is_for_a_probe_that_exists() -> None:
    importlib.import_module("verify.gpu.computes")
    assert set(ask.BY_DRIVER) <= set(PROBES)


def test_a_file_that_cannot_even_start_answers_for_all() -> None:
    text = json.dumps(dataclasses.asdict(Context(89)), sort_keys=True)
    found = ask.collect("no_such_file", text, 60.0)
    assert list(found) == ["*"]
    assert found["*"].status is Status.ERROR


def test_a_record_is_not_asked(healthy: Machine) -> None:
    m = dataclasses.replace(healthy, recorded=True)
    assert ask.ask(m, "computes", "matmul").status is Status.SKIP


@pytest.mark.parametrize("file", [*GPU_FILES, "devices", "load"])
def test_every_check_asks_for_a_probe_that_exists(file: str, healthy: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str]] = []

    def note(m: Machine, source: str, name: str) -> Outcome:
        asked.append((source, name))
        return Outcome(Status.SKIP, "noted")

    modules = [importlib.import_module(f"verify.checks.{f}") for f in (*GPU_FILES, "condition", "driver", "visibility")]
    modules.append(multi_gpu)
    for module in modules:
        monkeypatch.setattr(module, "ask", note)
    for check in core.discover().values():
        if check.tier == "gpu":
            check.function(healthy)
    for source in {s for s, _ in asked}:
        importlib.import_module(f"verify.gpu.{source}")
    assert [f"{s}.{n}" for s, n in asked if f"{s}.{n}" not in PROBES] == []
    assert file in {s for s, _ in asked}


def test_what_the_probes_are_told(healthy: Machine) -> None:
    m = change(healthy, "image.flash_attn", {"disabled": ["alibi"]})
    told = ask.context(m)
    assert (told.sm, told.disabled, told.jit, told.nvcc != "") == (89, ("alibi",), False, True)
    assert ask.context(change(m, "driver.cuda", 12080)).jit


@pytest.mark.parametrize("name", ["xformers", "flash_attn", "bitsandbytes"])
def test_what_is_not_installed_is_skipped_as_such(healthy: Machine, name: str) -> None:
    m = package(healthy, name.replace("_", "-"), None)
    needing = [c for c in core.discover().values() if name in c.needs and c.tier == "gpu"]
    assert needing
    for check in needing:
        assert "is not installed" in m.unmet(next(n for n in check.needs if m.unmet(n)))


def test_the_worker_tells_where_it_is(monkeypatch: pytest.MonkeyPatch, made_up: str) -> None:
    told: list[Any] = []
    monkeypatch.setattr(worker, "answer", lambda data: told.append(json.loads(json.dumps(data))))
    monkeypatch.setattr(worker.os, "_exit", lambda code: None)
    text = json.dumps(dataclasses.asdict(Context(89)))
    worker.main([made_up, text, *(f"probes.{n}" for n in ("ill", "sticky", "last"))])
    assert [t["now"] for t in told] == ["probes.ill", "", "probes.sticky", ""]  # nothing runs after a sticky error
    assert told[-1]["done"]["probes.ill"]["status"] == "fail"
    sys.modules.pop(made_up)


def rank(**said: Any) -> tuple[Child, Any]:
    return Child(0, "", "", "", 1.0), {"wrong": [], "gbs": 20.0, "peers": [False], **said}


DEAD: tuple[Child, Any] = (Child(1, "", "RuntimeError: NCCL error: unhandled cuda error", "", 1.0), None)


def test_several_gpus() -> None:
    well = [rank(), rank()]
    assert multi_gpu.judge(well, None).status is Status.PASS
    assert multi_gpu.judge([rank(gbs=0.3), rank()], None).status is Status.WARN
    broken = [rank(), rank(wrong=["all_reduce"])]
    only_direct = multi_gpu.judge(broken, well)
    assert (only_direct.status, "NCCL_P2P_DISABLE=1" in only_direct.hint) == (Status.FAIL, True)
    always = multi_gpu.judge([rank(), DEAD], [rank(), DEAD])
    assert (always.status, "unhandled cuda error" in always.message) == (Status.FAIL, True)


def test_several_gpus_are_started_once_more_without_direct_access(
    healthy: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[dict[str, str]] = []

    def launch(gpus: int, where: str, extra: dict[str, str]) -> list[tuple[Child, Any]]:
        seen.append(extra)
        return [rank(), rank()] if extra else [rank(), DEAD]

    monkeypatch.setattr(multi_gpu, "launch", launch)
    two = dataclasses.replace(healthy, gpus=healthy.gpus * 2)
    assert ask_check("multi_gpu.collectives", two).status is Status.FAIL
    assert seen == [{}, multi_gpu.NO_P2P]
