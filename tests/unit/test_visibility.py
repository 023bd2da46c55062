"""Why there is no GPU: every branch, from a made-up driver where a library decides and from facts elsewhere."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.unit.helpers import ask, change, env, load
from verify import child
from verify.cause import cause
from verify.checks import visibility
from verify.core import Status
from verify.machine import DeviceNode, Driver, Gpu, Machine
from verify.probe import driver as probe

SOURCE = Path(__file__).parent.parent / "data" / "fake_driver.c"
Step = Callable[[Machine], Machine]


def build(folder: Path, name: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    argv = ["gcc", "-shared", "-fPIC", str(SOURCE), "-o", str(folder / name)]
    assert not child.run(argv, timeout=60).ending[0]
    return folder / name


def with_made_up_driver(
    m: Machine, monkeypatch: pytest.MonkeyPatch, folder: Path, *, libcuda: bool = True, **said: int
) -> Machine:
    """`m` with what the reading children really say of a made-up libcuda and NVML in `folder`."""
    if libcuda:
        build(folder, "libcuda.so.1")
    if find_spec("pynvml") is None and ({"nvml", "mig"} & set(said) or not libcuda):
        pytest.skip("nvidia-ml-py, which asks NVML, is not installed here")
    build(folder, "libnvidia-ml.so.1")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(folder))
    for name, value in said.items():
        monkeypatch.setenv(f"MADE_UP_{name.upper()}", str(value))
    problems: dict[str, str] = {}
    told, also = probe.ask("cuda", problems), probe.ask("nvml", problems)
    mapped = told.get("libcuda", "")
    made = dataclasses.replace(
        m.driver,
        libcuda=mapped,
        libcuda_size=os.path.getsize(mapped) if mapped else 0,
        cuda=told.get("version"),
        cuinit=told.get("cuinit"),
        devices=told.get("devices"),
        nvml_library=also.get("library", ""),
        nvml_code=also.get("code"),
    )
    gpus = probe.merge(told.get("gpus", []), also.get("gpus", []))
    return dataclasses.replace(m, driver=made, gpus=gpus, problems=problems)


needs_gcc = pytest.mark.skipif(not shutil.which("gcc"), reason="gcc is not here")

CODES: list[tuple[dict[str, int], str, str]] = [
    ({"cuinit": 34}, "stub", "LIBRARY_PATH"),
    ({"cuinit": 804}, "cuda-compat", "Remove cuda-compat"),
    ({"cuinit": 803}, "driver mismatch", "reboot the host"),
    ({"cuinit": 999}, "wedged driver", "nvidia_uvm"),
    ({"cuinit": 802}, "fabric", "fabricmanager"),
    ({"cuinit": 304}, "system call", "seccomp"),
    ({"cuinit": 46}, "busy", "-c DEFAULT"),
    ({"cuinit": 2}, "memory", "nvidia-smi"),
    ({"cuinit": 3}, "initialisation", "Recreate"),
    ({"cuinit": 719}, "unknown code", "driver API"),
    ({"cuinit": 100, "nvml": 999}, "cgroup", "Recreate"),
    ({"cuinit": 100, "nvml": 9}, "driver not loaded", "modprobe"),
    ({"cuinit": 100, "nvml": 18}, "driver mismatch", "reboot"),
    ({"cuinit": 100, "mig": 1}, "MIG", "mig -cgi"),
    ({"cuinit": 100}, "no device", "--gpus all"),
    ({"devices": 0}, "no device", "--gpus all"),
]


@needs_gcc
@pytest.mark.parametrize(("said", "name", "hint"), CODES, ids=[str(c[0]) for c in CODES])
def test_what_a_driver_says_is_told_with_its_remedy(
    healthy: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, said: dict[str, int], name: str, hint: str
) -> None:
    m = with_made_up_driver(healthy, monkeypatch, tmp_path, **said)
    found = cause(m)
    assert found
    assert found.name == name
    assert hint in found.hint
    outcome = ask("visibility.gpu", m)
    assert (outcome.status, outcome.message, outcome.data["cause"]) == (Status.FAIL, found.message, name)


@needs_gcc
@pytest.mark.parametrize(
    ("folder", "code", "name"),
    [("compat", 803, "cuda-compat"), ("lib64/stubs", 100, "stub"), ("compat", 804, "cuda-compat")],
)
def test_the_file_that_is_mapped_tells_look_alikes_apart(
    healthy: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, folder: str, code: int, name: str
) -> None:
    found = cause(with_made_up_driver(healthy, monkeypatch, tmp_path / folder, cuinit=code))
    assert found
    assert (found.name, str(tmp_path / folder) in found.message) == (name, True)


@needs_gcc
def test_a_driver_that_works_has_no_cause(healthy: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    m = with_made_up_driver(healthy, monkeypatch, tmp_path, devices=2)
    assert cause(m) is None
    outcome = ask("visibility.gpu", m)
    assert outcome.status is Status.PASS
    assert "Made Up 0, 24 GiB, sm_89, Made Up 1" in outcome.message


@needs_gcc
@pytest.mark.parametrize(
    ("value", "words"),
    [("6", "asks for number 6, and there are 1"), ("-1", "hides every GPU"), ("GPU-ab", "names no GPU")],
)
def test_cuda_visible_devices_is_named(
    healthy: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, value: str, words: str
) -> None:
    m = env(with_made_up_driver(healthy, monkeypatch, tmp_path, cuinit=100), CUDA_VISIBLE_DEVICES=value)
    found = cause(m)
    assert found
    assert found.name == "CUDA_VISIBLE_DEVICES"
    assert words in found.message


@needs_gcc
def test_the_capability_compute_is_missing(healthy: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    m = with_made_up_driver(healthy, monkeypatch, tmp_path, libcuda=False)
    found = cause(env(m, NVIDIA_DRIVER_CAPABILITIES="utility"))
    assert found
    assert found.name == "capability"
    assert "compute is missing (NVIDIA_DRIVER_CAPABILITIES=utility)" in found.message


def nodes(*given: tuple[str, str]) -> tuple[DeviceNode, ...]:
    return tuple(DeviceNode(f"/dev/{path}", access, 195, 0) for path, access in given)


ALL = ("nvidiactl", "ok"), ("nvidia0", "ok"), ("nvidia-uvm", "ok")


def broken(code: int | None = 100, **facts: Any) -> Step:
    def apply(m: Machine) -> Machine:
        made = dataclasses.replace(m.driver, **{"cuinit": code, "devices": None, **facts})
        return dataclasses.replace(m, driver=made, gpus=())

    return apply


FACTS: list[tuple[str, Step, str]] = [
    ("not given", broken(None, nodes=(), libcuda=""), "this container was not given it"),
    ("no device file", broken(None, nodes=nodes(("nvidiactl", "ok")), libcuda=""), "no /dev/nvidia0"),
    ("cgroup", broken(999, nodes=nodes(("nvidiactl", "EPERM"), ("nvidia0", "EPERM"))), "EPERM"),
    ("permission", broken(100, nodes=nodes(("nvidiactl", "EACCES"), ("nvidia0", "ok"))), "EACCES"),
    ("dead device", broken(100, nodes=nodes(("nvidiactl", "ok"), ("nvidia0", "EIO"))), "EIO"),
    ("nvidia-uvm", broken(999, nodes=nodes(*ALL[:2])), "/dev/nvidia-uvm is missing"),
    ("driver died", broken(None, nodes=nodes(*ALL)), "Asking"),
    ("baked-in driver", broken(803, libcuda="/usr/lib/libcuda.so.535.54.03", libcuda_mounted=False), "535.54.03"),
    ("driver mismatch", broken(803, libcuda="/usr/lib/libcuda.so.535.54.03"), "kernel module 550.90.07"),
]


@pytest.mark.parametrize(("name", "step", "words"), FACTS, ids=[f[0] for f in FACTS])
def test_facts_name_the_cause(healthy: Machine, name: str, step: Step, words: str) -> None:
    outcome = ask("visibility.gpu", step(healthy))
    assert (outcome.status, outcome.data["cause"]) == (Status.FAIL, name)
    assert words in outcome.message
    assert outcome.hint


@pytest.mark.parametrize("value", ["", "void", "none"])
def test_visible_devices_that_keep_the_gpu_out(healthy: Machine, value: str) -> None:
    found = cause(env(broken(None, nodes=(), libcuda="")(healthy), NVIDIA_VISIBLE_DEVICES=value))
    assert found
    assert found.name == "not asked for"


def test_a_prohibited_card_is_named(healthy: Machine) -> None:
    m = dataclasses.replace(broken(100)(healthy), gpus=(Gpu(0, "A", compute_mode="prohibited"),))
    found = cause(m)
    assert found
    assert found.name == "prohibited"


@pytest.mark.parametrize("name", ["container-without-gpus", "image-build"])
def test_a_machine_without_any_driver_is_skipped_with_the_reason(name: str) -> None:
    m = dataclasses.replace(load(name), driver=Driver(), gpus=())
    outcome = ask("visibility.gpu", m)
    assert outcome.status is Status.SKIP
    assert "no NVIDIA driver" in outcome.message


def test_recorded_machines_with_a_gpu_pass(healthy: Machine) -> None:
    assert ask("visibility.gpu", healthy).status is Status.PASS
    assert "580.159.04" in ask("visibility.gpu", load("h200")).message


def test_a_card_with_more_memory_than_sold_is_said() -> None:
    changed = Gpu(0, "NVIDIA GeForce RTX 4090 D", "sm_89", memory=48 << 30)
    assert "its memory was enlarged" in visibility.describe(changed)
    assert "enlarged" not in visibility.describe(dataclasses.replace(changed, memory=25386352640))


def test_nvml(healthy: Machine) -> None:
    assert ask("visibility.nvml", healthy).status is Status.PASS
    late = ask("visibility.nvml", change(healthy, "driver.nvml_code", 18))
    assert (late.status, "Reboot" in late.hint) == (Status.FAIL, True)
    assert ask("visibility.nvml", change(healthy, "driver.nvml_code", 999)).status is Status.WARN
    absent = change(healthy, "driver.nvml_code", None)
    assert ask("visibility.nvml", absent).status is Status.WARN
    asked = env(absent, NVIDIA_DRIVER_CAPABILITIES="compute")
    assert ask("visibility.nvml", asked).status is Status.PASS


def torch_view(m: Machine, **changed: Any) -> list[dict[str, Any]]:
    return [{"name": g.name, "sm": g.sm, "memory": int((g.memory or 0) * 0.985), **changed} for g in m.gpus]


def test_driver_and_torch_agree(healthy: Machine) -> None:
    assert visibility.compare(healthy, torch_view(healthy)).status is Status.PASS
    # As an H200 gave it: NVML 150754820096 bytes, torch 150109880320.
    h200 = load("h200")
    seen = [{"name": "NVIDIA H200", "sm": "sm_90", "memory": 150109880320}]
    assert visibility.compare(h200, seen).status is Status.PASS


@pytest.mark.parametrize("changed", [{"name": "Another"}, {"sm": "sm_86"}, {"memory": 12 << 30}])
def test_driver_and_torch_disagree(healthy: Machine, changed: dict[str, Any]) -> None:
    found = visibility.compare(healthy, torch_view(healthy, **changed))
    assert (found.status, next(iter(changed)) in found.message) == (Status.FAIL, True)


def test_a_lost_card_and_a_mig_slice(healthy: Machine) -> None:
    assert visibility.compare(healthy, []).status is Status.FAIL
    sliced = dataclasses.replace(healthy, gpus=tuple(dataclasses.replace(g, mig=True) for g in healthy.gpus))
    assert visibility.compare(sliced, torch_view(healthy, memory=5 << 30)).status is Status.PASS
