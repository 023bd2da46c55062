from pathlib import Path

import pytest

from tests.unit import elfbuilder as make
from verify import loader, shadowing
from verify.checks import loading
from verify.core import Status
from verify.loader import Search
from verify.machine import Machine, Python


def lib(path: Path, **what: object) -> Path:
    return make.write(path, make.shared_object(**what))  # type: ignore[arg-type]


def test_a_recorded_machine_is_not_judged_by_this_ones_files():
    for check in (loading.libcuda_is_the_drivers, loading.environment_leaves_torch_alone):
        assert check(Machine(recorded=True)).status is Status.SKIP


@pytest.mark.parametrize(
    ("place", "size", "expected"),
    [
        ("cuda-12.4/lib64/stubs/libcuda.so.1", 300_000, "stub"),
        ("cuda-12.4/compat/libcuda.so.1", 300_000, "compat"),
        ("lib/libcuda.so.1", 60_000, "stub"),
        ("lib/libcuda.so.1", 300_000, None),
    ],
)
def test_what_stands_in_for_the_driver(tmp_path: Path, place: str, size: int, expected: str | None):
    content = make.shared_object(soname="libcuda.so.1")
    path = make.write(tmp_path / place, content + bytes(size - len(content)))
    found = shadowing.wrong_driver_library(Search(cache={"libcuda.so.1": str(path)}))
    assert (found[1] if found else None) == expected
    assert shadowing.wrong_driver_library(Search()) is None


def test_stub_and_compat_fail_with_their_error_codes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    stub = lib(tmp_path / "stubs" / "libcuda.so.1", soname="libcuda.so.1")
    monkeypatch.setattr(loader, "present_search", lambda *_, **__: Search(cache={"libcuda.so.1": str(stub)}))
    outcome = loading.libcuda_is_the_drivers(Machine())
    assert outcome.status is Status.FAIL
    assert "error 34" in outcome.message
    assert "ld.so.conf.d" in outcome.hint
    monkeypatch.setattr(loader, "present_search", lambda *_, **__: Search())
    compat = make.write(tmp_path / "cuda-12.4" / "compat" / "libcuda.so.550.54.15", b"x")
    monkeypatch.setattr(shadowing, "compat_libraries", lambda: (compat,))
    outcome = loading.libcuda_is_the_drivers(Machine())
    assert outcome.status is Status.FAIL
    assert "error 804" in outcome.message
    monkeypatch.setattr(shadowing, "compat_libraries", lambda: ())
    assert loading.libcuda_is_the_drivers(Machine()).status is Status.PASS


def test_compat_is_looked_for_below_every_toolkit(tmp_path: Path):
    path = make.write(tmp_path / "cuda-12.4" / "compat" / "libcuda.so.1", b"x")
    assert shadowing.compat_libraries(tmp_path) == (path,)


def python_that(path: Path, body: str) -> str:
    make.write(path, f"#!/bin/sh\n{body}\n".encode()).chmod(0o755)
    return str(path)


def environment(tmp_path: Path, body: str, **env: str) -> Machine:
    program = python_that(tmp_path / "python", body)
    return Machine(python=Python(executable=program, packages={"torch": "2.8.0"}), env={"PATH": "/usr/bin:/bin", **env})


def test_an_unset_environment_passes_without_starting_anything():
    assert loading.environment_leaves_torch_alone(Machine()).status is Status.PASS


def test_a_harmless_library_path_is_no_finding(tmp_path: Path):
    m = environment(tmp_path, "echo import-ok", LD_LIBRARY_PATH="/usr/local/cuda/lib64")
    assert loading.environment_leaves_torch_alone(m).status is Status.PASS


def test_a_shadowed_cudnn_that_aborts_is_named_with_its_folder(tmp_path: Path):
    lib(tmp_path / "old" / "libcudnn_graph.so.9")
    body = 'if [ -n "$LD_LIBRARY_PATH" ]; then echo "Could not load symbol cudnnGetVersion" >&2; kill -ABRT $$; fi\n'
    m = environment(tmp_path, body + "echo import-ok", LD_LIBRARY_PATH=str(tmp_path / "old"))
    outcome = loading.environment_leaves_torch_alone(m)
    assert outcome.status is Status.FAIL
    assert "exit code 134" in outcome.message
    assert "cudnnGetVersion" in outcome.message
    assert f"libcudnn_graph.so.9 in {tmp_path / 'old'}" in outcome.message
    assert "Unset LD_LIBRARY_PATH" in outcome.hint


def test_a_torch_that_never_loads_is_not_blamed_on_the_environment(tmp_path: Path):
    m = environment(tmp_path, "echo 'ImportError: broken' >&2; exit 1", LD_LIBRARY_PATH="/x")
    outcome = loading.environment_leaves_torch_alone(m)
    assert outcome.status is Status.FAIL
    assert "with or without LD_LIBRARY_PATH" in outcome.message
    assert "not the cause" in outcome.hint


def test_shadows_are_only_those_that_count(tmp_path: Path):
    for name in ("libcudnn.so.9", "libcudnn_ops.so.9", "libcublas.so.12", "libstdc++.so.6", "libcuda.so.1"):
        make.write(tmp_path / name, b"x")
    assert shadowing.shadows(tmp_path) == ("libcuda.so.1", "libcudnn_ops.so.9", "libstdc++.so.6")
    assert shadowing.shadows(tmp_path / "absent") == ()
