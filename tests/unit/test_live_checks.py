"""The checks that compile and import: with compilers and packages made for the test, good and bad."""

from __future__ import annotations

import dataclasses
import shutil
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.unit.helpers import change, disk
from verify import child
from verify.checks import compilers, imports, stack
from verify.checks.imports import Imported
from verify.child import Child
from verify.core import Status
from verify.machine import Machine, Python, Toolkit

needs_gcc = pytest.mark.skipif(not (shutil.which("gcc") and shutil.which("g++")), reason="gcc is not here")


@pytest.fixture
def here(healthy: Machine, tmp_path: Path) -> Machine:
    """The healthy machine with this one's compilers and interpreter, compiling in a folder of the test."""
    tools = Toolkit(gcc=shutil.which("gcc") or "", gxx=shutil.which("g++") or "", gcc_version="1", gxx_version="1")
    include = sysconfig.get_paths()["include"]
    python = Python(
        version="3.13.5", executable=sys.executable, include=include, header=True, packages={"torch": "2.8.0"}
    )
    return disk(dataclasses.replace(healthy, toolkit=tools, python=python), "tmp", path=str(tmp_path))


def program(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


@needs_gcc
def test_working_compilers_pass_and_leave_nothing(here: Machine, tmp_path: Path) -> None:
    assert compilers.c_compiler(here).status is Status.PASS
    assert list(tmp_path.iterdir()) == []


@needs_gcc
@pytest.mark.skipif(not Path(sysconfig.get_paths()["include"], "Python.h").exists(), reason="Python.h is not here")
def test_an_extension_compiles_and_imports(here: Machine) -> None:
    assert compilers.python_headers(here).status is Status.PASS


def test_a_compiler_without_headers_fails(here: Machine, tmp_path: Path) -> None:
    broken = program(
        tmp_path / "cc", "echo 'program.c:1:10: fatal error: math.h: No such file or directory' >&2; exit 1"
    )
    found = compilers.c_compiler(change(here, "toolkit.gcc", broken))
    assert found.status is Status.FAIL
    assert "math.h: No such file" in found.message
    assert "libc6-dev" in found.hint


def test_a_program_that_does_not_run_fails(here: Machine, tmp_path: Path) -> None:
    broken = program(tmp_path / "cc", "printf '#!/bin/sh\\nexit 5\\n' >program; chmod +x program")
    found = compilers.c_compiler(change(here, "toolkit.gcc", broken))
    assert found.status is Status.FAIL
    assert "does not run" in found.message


def test_an_extension_that_does_not_compile_fails(here: Machine, tmp_path: Path) -> None:
    broken = program(tmp_path / "cc", "echo 'extension.c:1:10: fatal error: pyconfig.h: No such file' >&2; exit 1")
    found = compilers.python_headers(change(here, "toolkit.gcc", broken))
    assert found.status is Status.FAIL
    assert "pyconfig.h" in found.message
    assert "python3.13-dev" in found.hint


def test_an_extension_of_another_python_fails(here: Machine, tmp_path: Path) -> None:
    broken = program(tmp_path / "cc", "echo no >verify_probe.so")
    found = compilers.python_headers(change(here, "toolkit.gcc", broken))
    assert found.status is Status.FAIL
    assert "cannot be imported" in found.message


@pytest.mark.parametrize(
    "text", ["echo 'nvcc fatal: Unsupported gpu architecture sm_89' >&2; exit 1", "echo no >sm_89.cubin", "exit 0"]
)
def test_an_nvcc_that_makes_no_machine_code_fails(here: Machine, tmp_path: Path, text: str) -> None:
    found = compilers.nvcc_compiles(change(here, "toolkit.nvcc", program(tmp_path / "nvcc", text)))
    assert found.status is Status.FAIL
    assert "sm_89" in found.message
    assert found.hint


def test_an_nvcc_that_makes_machine_code_passes(here: Machine, tmp_path: Path) -> None:
    good = program(tmp_path / "nvcc", "printf '\\177ELF' >sm_89.cubin")
    assert compilers.nvcc_compiles(change(here, "toolkit.nvcc", good)).status is Status.PASS


@pytest.mark.parametrize("check", [compilers.triton_compiles, compilers.torch_compile])
def test_a_stack_that_cannot_compile_fails(
    here: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, check: object
) -> None:
    for name in ("torch", "triton"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('cannot find -lcuda')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = check(here)  # type: ignore[operator]
    assert found.status is Status.FAIL
    assert "cannot find -lcuda" in found.message
    assert found.hint


def test_a_compile_that_hangs_fails() -> None:
    found = compilers.judge_script(Child(-9, "", "", "", 1.0, timed_out=True, timeout=5), None, "Triton", "Do.")
    assert found.status is Status.FAIL
    assert "no answer within 5 s" in found.message


def test_no_folder_to_compile_in_is_a_skip(here: Machine) -> None:
    m = dataclasses.replace(here, disks=tuple(dataclasses.replace(d, noexec=True) for d in here.disks))
    assert compilers.c_compiler(m).status is Status.SKIP
    assert "container.temporary_folder" in compilers.c_compiler(m).message


def test_the_newest_gcc_is_the_headers_word_or_the_tables(healthy: Machine) -> None:
    unread = change(healthy, "toolkit.host_compiler_limit", None)
    assert compilers.newest_gcc(healthy) == 13
    assert compilers.newest_gcc(unread) == 13
    assert compilers.newest_gcc(change(unread, "toolkit.version", "13.0.88")) == 15
    assert compilers.newest_gcc(change(unread, "toolkit.version", "9.0")) is None


def modules(folder: Path, **texts: str) -> None:
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(text)


def test_imports_are_judged_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modules(
        tmp_path,
        fine="",
        loud="import sys; print('WARNING: old', file=sys.stderr)",
        broken="raise ImportError('libx.so: undefined symbol: _Z1fv')",
        crashing="import os; os.abort()",
        after="",
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = {i.module: i for i in imports.load(("fine", "loud", "broken", "crashing", "after", "absent"))}
    assert {n for n, i in found.items() if not i.error} == {"fine", "loud", "after"}
    assert found["loud"].output == "WARNING: old"
    assert "undefined symbol" in found["broken"].error
    assert "SIGABRT" in found["crashing"].error
    assert "No module named 'absent'" in found["absent"].error


def test_a_failed_import_is_a_failure_with_its_cause() -> None:
    found = imports.judge(
        [
            Imported("torch", "", ""),
            Imported("torchvision", "RuntimeError: operator torchvision::nms does not exist", ""),
        ]
    )
    assert found.status is Status.FAIL
    assert "torchvision cannot be imported: RuntimeError: operator torchvision::nms" in found.message
    assert "built for another torch" in found.hint


def test_flash_attention_is_blamed_where_xformers_falls() -> None:
    error = "ImportError: Requires Flash-Attention version >=2.7.1,<=2.8.2 but got 2.8.3."
    found = imports.judge([Imported("xformers", "", ""), Imported("xformers.ops", error, "")])
    assert found.message.startswith("xformers.ops cannot be imported because of flash_attn: ImportError: Requires")
    assert "flash-attn 2.8.2" in found.hint


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("A module that was compiled using NumPy 1.x cannot be run in", "older NumPy"),
        ("libc.so.6: version `GLIBC_2.38' not found", "GLIBC_2.38"),
        ("libcusparse.so.12: cannot open shared object file", "nvidia-* wheels"),
        ("ModuleNotFoundError: No module named 'x'", "Install thing again"),
        ("ValueError: odd", "whole trace"),
        ("libcusparse.so.12: undefined symbol: __nvJitLinkCreate_12_8", "nvidia-* wheels"),
        ("its extension does not load: libc10.so", "another torch"),
    ],
)
def test_each_cause_has_its_remedy(error: str, words: str) -> None:
    assert words in imports.remedy("thing", error)


def test_import_output_is_a_warning_unless_known_to_be_harmless() -> None:
    quiet = [Imported("bitsandbytes", "", "Failed to load CPU gemm_4bit_forward from kernels-community: No module")]
    distutils = "a/__init__.py:30: UserWarning: Setuptools is replacing distutils. Support …\n  warnings.warn(\n"
    quiet.append(Imported("pip", "", distutils))
    assert imports.judge_output(quiet).status is Status.PASS
    assert imports.noise("a.py:1: UserWarning: versions differ\n  warnings.warn(\n") != []
    found = imports.judge_output([*quiet, Imported("xformers", "", "WARNING[XFORMERS]: xFormers can't load")])
    assert found.status is Status.WARN
    assert "xformers: WARNING[XFORMERS]" in found.message


def test_the_lock_says_what_must_import(healthy: Machine) -> None:
    names = [n for group in imports.wanted(change(healthy, "python.packages", {})) for n in group]
    assert {"torch", "flash_attn", "xformers.ops", "transformers", "pynvml"} <= set(names)
    outside = change(change(healthy, "image", None), "python.packages", {"einops": "0.8"})
    assert imports.wanted(outside) == (("einops",),)


def test_both_import_checks_use_one_reading(healthy: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = (Imported("torch", "OSError: libtorch.so", ""), Imported("rich", "", "careful"))
    monkeypatch.setattr(imports, "load_all", lambda _: bad)
    assert imports.packages(healthy).status is Status.FAIL
    assert imports.quiet(healthy).status is Status.WARN


RUNTIME = {"torch": "2.8.0+cu128", "cuda": "12.8", "abi": True, "nccl": "2.27.3", "cudnn": 91002}


def runtime(monkeypatch: pytest.MonkeyPatch, m: Machine, ended: Child, said: object) -> object:
    monkeypatch.setattr(child, "python", lambda *_, **__: (ended, said))
    return stack.runtime_libraries(m)


def test_the_wheels_versions_are_loaded(monkeypatch: pytest.MonkeyPatch, healthy: Machine) -> None:
    found = runtime(monkeypatch, healthy, Child(0, "", "", "", 1.0), RUNTIME)
    assert found.status is Status.PASS  # type: ignore[attr-defined]
    assert "cuDNN 9.10.2, NCCL 2.27.3" in found.message  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"cudnn": 90100}, "cuDNN 9.1.0 is loaded, the wheel is 9.10.2.21"),
        ({"nccl": "2.20.5"}, "NCCL 2.20.5 is loaded"),
    ],
)
def test_another_library_than_the_wheels_fails(
    monkeypatch: pytest.MonkeyPatch, healthy: Machine, said: dict[str, object], words: str
) -> None:
    found = runtime(monkeypatch, healthy, Child(0, "", "", "", 1.0), {**RUNTIME, **said})
    assert found.status is Status.FAIL  # type: ignore[attr-defined]
    assert words in found.message  # type: ignore[attr-defined]
    assert "LD_LIBRARY_PATH" in found.hint  # type: ignore[attr-defined]


def test_a_foreign_cudnn_part_that_aborts_fails_with_its_last_words(
    monkeypatch: pytest.MonkeyPatch, healthy: Machine
) -> None:
    words = "Could not load symbol cudnnGetVersion. Error: /x/libcudnn_graph.so.9: undefined symbol: cudnnGetVersion"
    found = runtime(monkeypatch, healthy, Child(-6, "", words, "", 1.0), {"torch": "2.8.0", "nccl": "2.27.3"})
    assert found.status is Status.FAIL  # type: ignore[attr-defined]
    assert "ask for the cuDNN version ended by an abort" in found.message  # type: ignore[attr-defined]
    assert "libcudnn_graph.so.9" in found.message  # type: ignore[attr-defined]
    assert "LD_LIBRARY_PATH" in found.hint  # type: ignore[attr-defined]


def test_a_torch_that_does_not_import_fails(monkeypatch: pytest.MonkeyPatch, healthy: Machine) -> None:
    ended = Child(1, "", "ImportError: libcusparse.so.12: undefined symbol: __nvJitLinkCreate_12_8", "", 1.0)
    found = runtime(monkeypatch, healthy, ended, None)
    assert found.status is Status.FAIL  # type: ignore[attr-defined]
    assert "import torch ended by exit code 1" in found.message  # type: ignore[attr-defined]
    assert "__nvJitLinkCreate_12_8" in found.message  # type: ignore[attr-defined]
