from pathlib import Path

import pytest

from tests.unit import elfbuilder as make
from verify.checks import binaries
from verify.core import Status
from verify.machine import Driver, Gpu, Machine, Python

CHECKS = (binaries.libraries_run_on_targets, binaries.no_ptx_jit, binaries.files_are_whole)


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    binaries._read.cache_clear()


@pytest.fixture
def site(tmp_path: Path) -> Path:
    root = (tmp_path / "site").resolve()
    good = make.container(make.sass(80), make.sass(90, flags=make.ARCH), make.ptx(80, (8, 7)))
    make.write(root / "ext" / "_C.so", make.library(good))
    make.write(root / "ext-1.0.dist-info" / "RECORD", b"ext/_C.so,,\n")
    return root


def machine(site: Path, **fields: object) -> Machine:
    return Machine(python=Python(site=str(site)), **fields)  # type: ignore[arg-type]


def add(site: Path, *containers: bytes) -> None:
    make.write(site / "bad.so", make.library(*containers))


def verdicts(m: Machine) -> list[Status]:
    return [check(m).status for check in CHECKS]


def test_a_good_stack_passes_by_default(site: Path):
    assert verdicts(machine(site)) == [Status.PASS] * 3
    message = binaries.libraries_run_on_targets(machine(site)).message
    assert "sm_89" in message
    assert "1 by machine code" in message


def test_the_image_says_for_which_cards(site: Path):
    add(site, make.container(make.sass(86)))
    ampere = machine(site, image={"targets": ["sm_80", "sm_86"], "driver": "550.90.07"})
    outcome = binaries.libraries_run_on_targets(ampere)
    assert outcome.status is Status.FAIL
    assert "sm_80" in outcome.message
    assert binaries.libraries_run_on_targets(machine(site, image={"targets": ["sm_86"]})).status is Status.PASS


def test_plain_sm_90_code_fails_coverage_alone(site: Path):
    add(site, make.container(make.sass(90)))
    assert verdicts(machine(site)) == [Status.FAIL, Status.PASS, Status.PASS]
    outcome = binaries.libraries_run_on_targets(machine(site))
    assert "bad.so" in outcome.message
    assert "sm_90" in outcome.message
    assert "error 209" in outcome.hint


def test_lost_code_fails_coverage(site: Path):
    add(site, make.container(make.sass(80)), make.container(make.sass(80, bytes(64)), make.sass(90)))
    outcome = binaries.libraries_run_on_targets(machine(site))
    assert outcome.status is Status.FAIL
    assert "lost the code for sm_89" in outcome.message


def test_ptx_alone_fails_the_jit_check_alone(site: Path):
    add(site, make.container(make.ptx(80, (8, 7))))
    assert verdicts(machine(site)) == [Status.PASS, Status.FAIL, Status.PASS]
    outcome = binaries.no_ptx_jit(machine(site))
    assert "error 222" in outcome.message
    assert "ISA 8.7" in outcome.message
    assert "8.4" in outcome.message
    assert "TORCH_CUDA_ARCH_LIST" in outcome.hint


def test_ptx_of_a_library_that_compiles_it_itself_is_told_and_fails_when_too_new(site: Path):
    make.write(
        site / "own.so",
        make.library(make.container(make.sass(89)), make.container(make.ptx(80, (7, 5))), section=".ldata"),
    )
    outcome = binaries.no_ptx_jit(machine(site))
    assert outcome.status is Status.PASS
    assert "own.so (1 containers)" in outcome.message
    make.write(
        site / "own.so",
        make.library(make.container(make.sass(89)), make.container(make.ptx(80, (8, 7))), section=".ldata"),
    )
    binaries._read.cache_clear()
    outcome = binaries.no_ptx_jit(machine(site))
    assert outcome.status is Status.FAIL
    assert "error 222" in outcome.message


def test_ptx_the_driver_takes_is_still_a_finding(site: Path):
    add(site, make.container(make.ptx(80, (8, 4))))
    outcome = binaries.no_ptx_jit(machine(site))
    assert outcome.status is Status.FAIL
    assert "error 222" not in outcome.message


def test_a_cut_file_fails_the_file_check_alone(site: Path):
    make.write(site / "cut.so", make.library(make.container(make.sass(80)))[:-100])
    assert verdicts(machine(site)) == [Status.PASS, Status.PASS, Status.FAIL]
    outcome = binaries.files_are_whole(machine(site))
    assert "cut.so" in outcome.message
    assert "Reinstall" in outcome.hint


def test_what_is_not_understood_is_a_warning(site: Path):
    add(site, make.container(make.sass(80), make.entry(7, 80, b"x" * 8)))
    outcome = binaries.files_are_whole(machine(site))
    assert outcome.status is Status.WARN
    assert "unknown kind 7" in outcome.message


def test_nothing_to_judge_is_a_skip(tmp_path: Path):
    (tmp_path / "empty").mkdir()
    assert binaries.libraries_run_on_targets(machine(tmp_path / "empty")).status is Status.SKIP


def on_gpu(site: Path, sm: str, driver: Driver) -> Status:
    return binaries.libraries_run_on_gpus(machine(site, gpus=(Gpu(0, "a card", sm=sm),), driver=driver)).status


def test_the_cards_that_are_here(site: Path):
    driver = Driver(version="550.90.07")
    assert on_gpu(site, "sm_89", driver) is Status.PASS
    assert on_gpu(site, "sm_90", driver) is Status.PASS
    assert on_gpu(site, "sm_75", driver) is Status.FAIL
    assert on_gpu(site, "sm_120", driver) is Status.FAIL, "PTX 8.7 is too new for driver 550"
    assert on_gpu(site, "sm_120", Driver(version="570.86.10")) is Status.WARN, "the driver compiles it"
    assert on_gpu(site, "sm_120", Driver(cuda=12080)) is Status.WARN
    assert on_gpu(site, "", driver) is Status.SKIP
    assert on_gpu(site, "sm_89", Driver()) is Status.SKIP


def test_a_card_without_code_gets_the_remedy(site: Path):
    m = machine(site, gpus=(Gpu(0, "Tesla T4", sm="sm_75"),), driver=Driver(version="550.90.07"))
    outcome = binaries.libraries_run_on_gpus(m)
    assert "Tesla T4 (sm_75)" in outcome.message
    assert "TARGETS" in outcome.hint


def test_a_recorded_machine_is_not_judged_by_this_ones_files(site: Path):
    m = machine(site, recorded=True, gpus=(Gpu(0, "a card", sm="sm_89"),))
    assert [check(m).status for check in (*CHECKS, binaries.libraries_run_on_gpus)] == [Status.SKIP] * 4
