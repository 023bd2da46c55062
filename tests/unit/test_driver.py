"""The true rules of driver compatibility, and the false ones that must stay silent."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.unit.helpers import ask, change, env, load
from verify.core import Status
from verify.gpu import ask as gpu_ask
from verify.machine import Machine
from verify.probe import driver

Step = Callable[[Machine], Machine]


def facts(path: str, value: object) -> Step:
    return lambda m: change(m, path, value)


def all_of(*steps: Step) -> Step:
    def apply(m: Machine) -> Machine:
        for step in steps:
            m = step(m)
        return m

    return apply


def variables(**values: str | None) -> Step:
    return lambda m: env(m, **values)


NEWER = facts("toolkit.version", "12.8.93")
FAILS: list[tuple[str, Step, str, str]] = [
    ("driver.new_enough", facts("driver.cuda", 11040), "another major version", "525"),
    ("driver.new_enough", facts("python.torch_cuda", "13.0"), "built with CUDA 13.0", "580"),
    ("driver.new_enough", facts("python.torch_cuda", ""), "without CUDA", "lock"),
    ("driver.own_builds", all_of(NEWER, variables(TORCH_CUDA_ARCH_LIST="9.0")), "no machine code", "LIST=8.9"),
    ("driver.own_builds", all_of(NEWER, variables(TORCH_CUDA_ARCH_LIST="7.5+PTX")), "ISA 8.4", "LIST=8.9"),
    ("driver.own_builds", all_of(NEWER, variables(TORCH_CUDA_ARCH_LIST="9.0a 7.0")), "no machine code", "LIST=8.9"),
    ("driver.library", facts("driver.libcuda", "/usr/local/cuda/lib64/stubs/libcuda.so"), "stub", "ldconfig"),
    ("driver.library", facts("driver.libcuda_size", 60_000), "stub", "ldconfig"),
    ("driver.library", facts("driver.libcuda", "/usr/local/cuda/compat/libcuda.so.1"), "804", "Remove cuda-compat"),
    ("driver.library", facts("driver.libcuda", "/usr/lib/libcuda.so.535.54.03"), "535.54.03", "reboot"),
    ("driver.requirement", variables(NVIDIA_REQUIRE_CUDA="cuda>=12.8"), "is not met", "cuda>=12.4"),
    (
        "driver.requirement",
        variables(NVIDIA_REQUIRE_CUDA="cuda>=12.8 brand=tesla,driver>=550,driver<551"),
        "is not met",
        "cuda>=12.4",
    ),
    ("driver.requirement", variables(NVIDIA_REQUIRE_CUDA="brand=geforce,driver>=535,driver<550"), "is not met", "set"),
    ("driver.errors_logged", facts("driver.xids", (31, 79)), "Xid 31, 79", "reset or replace"),
    ("driver.errors_logged", facts("driver.xids", (95, 95)), "95 (2 times)", "reset or replace"),
]


@pytest.mark.parametrize(("ident", "step", "words", "hint"), FAILS, ids=[f"{n}-{c[0]}" for n, c in enumerate(FAILS)])
def test_it_fails_and_says_what_to_do(healthy: Machine, ident: str, step: Step, words: str, hint: str) -> None:
    found = ask(ident, step(healthy))
    assert found.status is Status.FAIL, found
    assert words in found.message
    assert hint.lower() in found.hint.lower()
    assert found.message.endswith(".")


SILENT: list[tuple[str, str, Step]] = [
    ("torch of CUDA 12.8 on driver 550", "driver.new_enough", lambda m: m),
    ("CUDA 12.0 is the same major", "driver.new_enough", facts("driver.cuda", 12000)),
    ("toolkit as new as the driver", "driver.own_builds", lambda m: m),
    ("8.6 gives machine code for sm_89", "driver.own_builds", all_of(NEWER, variables(TORCH_CUDA_ARCH_LIST="8.6"))),
    ("a name instead of a number", "driver.own_builds", all_of(NEWER, variables(TORCH_CUDA_ARCH_LIST="Ada"))),
    ("the host's own libcuda", "driver.library", lambda m: m),
    ("nothing required", "driver.requirement", variables(NVIDIA_REQUIRE_CUDA=None)),
    ("any clause is enough", "driver.requirement", variables(NVIDIA_REQUIRE_CUDA="cuda>=13.0 driver>=550,driver<551")),
    ("our own requirement", "driver.requirement", lambda m: m),
    ("nothing in the log", "driver.errors_logged", facts("driver.xids", ())),
    ("a program wrote where it must not", "driver.errors_logged", facts("driver.xids", (31, 43))),
]


@pytest.mark.parametrize(("name", "ident", "step"), SILENT, ids=[c[0] for c in SILENT])
def test_no_false_alarm(healthy: Machine, name: str, ident: str, step: Step) -> None:
    assert ask(ident, step(healthy)).status is Status.PASS, name


def test_a_driver_baked_into_the_image_is_a_warning_while_it_fits(healthy: Machine) -> None:
    assert ask("driver.library", change(healthy, "driver.libcuda_mounted", False)).status is Status.WARN


def test_forward_compatibility_is_legal_on_a_data_centre_card() -> None:
    m = change(load("h200"), "driver.libcuda", "/usr/local/cuda/compat/libcuda.so.595.10")
    assert ask("driver.library", m).status is Status.PASS


@pytest.mark.parametrize("ident", ["driver.new_enough", "driver.own_builds", "driver.library", "driver.requirement"])
def test_the_h200_passes(ident: str) -> None:
    assert ask(ident, load("h200")).status is Status.PASS


@pytest.mark.parametrize("number", [63, 74, 119])
def test_an_error_the_card_may_have_got_over_is_a_warning(healthy: Machine, number: int) -> None:
    assert ask("driver.errors_logged", change(healthy, "driver.xids", (number,))).status is Status.WARN


def test_a_log_that_cannot_be_read_is_not_a_clean_one(healthy: Machine) -> None:
    assert ask("driver.errors_logged", change(healthy, "driver.xids", None)).status is Status.SKIP


def test_xids_are_read_from_the_kernels_log(monkeypatch: pytest.MonkeyPatch) -> None:
    log = (
        "<6>[    3.1] nvidia: loading out-of-tree module\n"
        "<4>[  100.2] NVRM: Xid (PCI:0000:01:00): 31, pid=7, name=python, Ch 00000008\n"
        "<4>[  200.7] NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.\n"
    )
    monkeypatch.setattr(driver, "kernel_log", lambda: log)
    assert driver.read({})[0].xids == (31, 79)

    def refused() -> str:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(driver, "kernel_log", refused)
    problems: dict[str, str] = {}
    assert driver.read(problems)[0].xids is None
    assert "not permitted" in problems["driver.xids"]


def test_machine_code_is_not_asked_of_a_record(healthy: Machine) -> None:
    assert ask("driver.machine_code", change(healthy, "recorded", True)).status is Status.SKIP


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("CUDA error: PTX JIT compilation was disabled", "needs the driver to compile PTX"),
        ("the provided PTX was compiled with an unsupported toolchain.", "error 222"),
        ("CUDA error: no kernel image is available for execution on the device", "error 209"),
        ("CUDA out of memory. Tried to allocate 2.00 MiB", "too little free memory"),
        ("Found no NVIDIA driver on your system.", "torch cannot use the GPU"),
        ("Unexpected error from cudaGetDeviceCount(). Error 36: API call is not supported", "torch cannot use the GPU"),
    ],
)
def test_known_causes_of_an_exception_fail_with_a_remedy(text: str, words: str) -> None:
    found = gpu_ask.explain("RuntimeError", text)
    assert found.status is Status.FAIL
    assert words in found.message
    assert found.hint


def test_an_unknown_exception_is_an_error_of_the_check() -> None:
    assert gpu_ask.explain("ValueError", "something else").status is Status.ERROR


def test_a_package_that_does_not_import_is_a_failure() -> None:
    found = gpu_ask.explain("ImportError", "flash_attn_2_cuda.so: undefined symbol: _ZN3c10")
    assert (found.status, "undefined symbol" in found.message) == (Status.FAIL, True)
    assert "raised" not in found.data  # it is not tried again with the driver's compiler on
