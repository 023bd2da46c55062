"""Causes that a machine shows by itself, the most fundamental first, and silence on a healthy one."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.helpers import ask, change, disk, env, load, package
from verify import cli
from verify.core import Result, Status
from verify.doctor import diagnosis, digest, facts, facts_stack
from verify.doctor.diagnosis import of_machine, of_text
from verify.facts import DeviceNode
from verify.machine import Machine

Break = Callable[[Machine], Machine]
MIB = 1 << 20


def driver(**values: object) -> Break:
    return lambda m: dataclasses.replace(m, driver=dataclasses.replace(m.driver, **values))


def gpu(**values: object) -> Break:
    return lambda m: dataclasses.replace(m, gpus=tuple(dataclasses.replace(g, **values) for g in m.gpus))


def nodes(access: str, *but: str) -> tuple[DeviceNode, ...]:
    names = ("nvidia0", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
    return tuple(DeviceNode(f"/dev/{n}", access) for n in names if n not in but)


def no_gpu(**values: object) -> Break:
    return lambda m: dataclasses.replace(driver(devices=None, **values)(m), gpus=())


def conflict(text: str) -> Break:
    return lambda m: change(m, "python.conflicts", (text,))


def both(*steps: Break) -> Break:
    def apply(m: Machine) -> Machine:
        for step in steps:
            m = step(m)
        return m

    return apply


CAUSES: list[tuple[str, Break]] = [
    ("driver-not-in-container", no_gpu(nodes=(), libcuda="", nvml_library="", nvml_code=12, cuinit=None)),
    (
        "no-driver-on-machine",
        no_gpu(nodes=(), libcuda="", nvml_library="", kernel_module="", nvml_code=12, cuinit=None),
    ),
    ("driver-capability-missing", no_gpu(libcuda="", cuinit=None)),
    ("driver-capability-missing", driver(nvml_library="", nvml_code=12)),
    ("visible-devices-select-nothing", both(no_gpu(cuinit=100), lambda m: env(m, CUDA_VISIBLE_DEVICES="6"))),
    ("visible-devices-select-nothing", both(no_gpu(cuinit=100), lambda m: env(m, CUDA_VISIBLE_DEVICES=""))),
    ("gpu-access-taken-away", no_gpu(nodes=nodes("EPERM"), cuinit=100, nvml_code=999)),
    ("gpu-access-denied", no_gpu(nodes=nodes("EACCES"), cuinit=100, nvml_code=4)),
    ("uvm-missing", no_gpu(nodes=nodes("ok", "nvidia-uvm"), cuinit=999)),
    ("uvm-missing", no_gpu(nodes=(*nodes("ok", "nvidia-uvm"), DeviceNode("/dev/nvidia-uvm", "ENXIO")), cuinit=999)),
    ("cuda-unknown-error", no_gpu(nodes=nodes("ok"), cuinit=999)),
    ("kernel-module-not-loaded", no_gpu(nodes=nodes("ENXIO"), kernel_module="", cuinit=100, nvml_code=9)),
    ("driver-version-mismatch", no_gpu(cuinit=803, nvml_code=18)),
    ("compat-library-on-geforce", no_gpu(cuinit=804, libcuda="/usr/local/cuda/compat/libcuda.so.1")),
    ("driver-library-mismatch", no_gpu(cuinit=803, libcuda="/usr/lib/libcuda.so.535.54.03", libcuda_mounted=False)),
    ("stub-libcuda", no_gpu(cuinit=34, libcuda="/usr/local/cuda/lib64/stubs/libcuda.so")),
    ("driver-too-old", driver(cuda=11040)),
    ("fabric-not-ready", no_gpu(cuinit=802)),
    ("system-call-blocked", no_gpu(cuinit=304)),
    ("driver-init-failed", no_gpu(cuinit=3)),
    ("no-gpu-visible", no_gpu(cuinit=100)),
    ("gpu-lost", lambda m: change(no_gpu(nvml_code=0)(m), "problems", {"driver.nvml": "NVML 15: GPU is lost"})),
    ("gpu-memory-errors", gpu(ecc_errors=3)),
    ("gpu-busy", gpu(compute_mode="prohibited")),
    ("gpu-memory-held-by-others", gpu(memory_used=20 << 30)),
    ("card-held-back", gpu(throttle=("hardware thermal slowdown",))),
    ("card-held-back", gpu(power_limit=250.0)),
    ("card-held-back", gpu(pcie_width=4)),
    ("mig-instance-not-chosen", gpu(mig=True)),
    ("mig-instance-not-chosen", lambda m: env(m, CUDA_VISIBLE_DEVICES="MIG-7f2a")),
    ("virtual-gpu-shim", driver(preload=("/usr/local/vgpu/libvgpu.so",))),
    ("nvjitlink-mismatch", conflict("torch 2.8.0 requires nvidia-nvjitlink-cu12==12.8.93, but 12.4.127 is installed")),
    ("cudnn-version", conflict("torch 2.8.0 requires nvidia-cudnn-cu12==9.10.2.21, but 9.1.0.70 is installed")),
    ("nccl-mismatch", conflict("torch 2.8.0 requires nvidia-nccl-cu12==2.27.3, but 2.20.5 is installed")),
    ("triton-mismatch", conflict("torch 2.8.0 requires triton==3.4.0, but 3.6.0 is installed")),
    ("torchvision-mismatch", conflict("torchvision 0.22.1 requires torch==2.7.1, but 2.8.0 is installed")),
    ("torch-replaced", lambda m: change(package(m, "torch", "2.8.0+cpu"), "python.torch_cuda", "")),
    ("flash-attn-outside-xformers-range", lambda m: package(m, "flash-attn", "2.8.3")),
    ("xformers-not-loadable", lambda m: change(m, "python.xformers_torch", "2.7.1+cu128")),
    ("bitsandbytes-binary-missing", lambda m: change(m, "python.bitsandbytes_cuda", ("118", "121"))),
    ("no-c-compiler", lambda m: change(change(m, "toolkit.gcc", ""), "toolkit.gxx", "")),
    ("python-header-missing", lambda m: change(m, "python.header", False)),
    ("user-without-name", lambda m: env(change(m, "container.user", ""), USER=None, LOGNAME=None)),
    ("cache-not-writable", lambda m: disk(m, "TRITON_CACHE_DIR", writable=False, problem="EROFS")),
    ("library-not-linked", driver(libcuda_linkable=False)),
    ("triton-libcuda-not-found", driver(libcuda_in_ldconfig=False)),
    ("compile-switched-off", lambda m: env(m, TORCHDYNAMO_DISABLE="1")),
    ("shared-memory-too-small", lambda m: disk(m, "shm", total=64 * MIB, free=64 * MIB)),
    ("disk-full", lambda m: disk(m, "workspace", free=MIB)),
    ("noexec-folder", lambda m: disk(m, "tmp", noexec=True)),
    ("host-out-of-memory", lambda m: change(m, "container.memory_kills", 2)),
    ("locked-memory", lambda m: change(change(m, "container.infiniband", True), "container.memlock", 8 * MIB)),
]


def recorded(m: Machine) -> Machine:
    return dataclasses.replace(m, recorded=True)


@pytest.mark.parametrize(("ident", "broken"), CAUSES, ids=[f"{i}-{n}" for n, (i, _) in enumerate(CAUSES)])
def test_cause_on_a_machine(healthy: Machine, ident: str, broken: Break) -> None:
    found = of_machine(recorded(broken(healthy)), results=())
    assert found.findings[0].id == ident
    assert found.code == 1
    assert any(e.startswith("On this machine: ") for e in found.findings[0].evidence)


@pytest.mark.parametrize(
    ("version", "built", "torch", "fits"),
    [
        ("0.0.35", "2.10.0+cu128", "2.11.0+cu130", True),  # as an H200 has it
        ("0.0.34", "2.10.0+cu128", "2.10.0+cu128", True),
        ("0.0.35", "2.11.0+cu130", "2.10.0+cu128", False),  # made for a newer torch than this
        ("0.0.33.post2", "2.9.1+cu128", "2.10.0+cu128", False),
    ],
)
def test_xformers_of_the_stable_abi_goes_with_every_later_torch(
    healthy: Machine, version: str, built: str, torch: str, fits: bool
) -> None:
    m = package(package(change(healthy, "python.xformers_torch", built), "xformers", version), "torch", torch)
    assert facts_stack.stable_abi(m) is fits
    assert (facts_stack.xformers(m) == "") is (fits or built.partition("+")[0] == torch.partition("+")[0])
    m = change(m, "python.torch_cuda", "13.0")
    assert (ask("stack.xformers_build", m).status is Status.PASS) is fits


def test_healthy_machine_has_nothing_wrong(healthy: Machine) -> None:
    found = of_machine(recorded(healthy))
    assert (found.findings, found.unknown, found.code) == ((), "", 0)
    assert "quick checks" in found.looked


def test_other_healthy_card() -> None:
    found = of_machine(recorded(load("h200")), results=())
    assert [f.id for f in found.findings] == []


def test_host_without_gpu_is_fine_where_none_is_expected(healthy: Machine) -> None:
    bare = no_gpu(nodes=(), libcuda="", nvml_library="", kernel_module="", nvml_code=12, cuinit=None, cuda=None)(
        healthy
    )
    assert of_machine(recorded(bare), results=()).code == 1
    assert of_machine(recorded(env(bare, VERIFY_REQUIRE="none")), results=()).code == 0


def test_one_cause_hides_its_consequences(healthy: Machine) -> None:
    gone = no_gpu(nodes=(), libcuda="", nvml_library="", nvml_code=12, cuinit=None, libcuda_linkable=False)(healthy)
    assert [f.id for f in of_machine(recorded(gone), results=()).findings] == ["driver-not-in-container"]


def test_independent_faults_are_all_told(healthy: Machine) -> None:
    m = disk(driver(cuda=11040)(healthy), "shm", total=64 * MIB, free=64 * MIB)
    assert [f.id for f in of_machine(recorded(m), results=()).findings] == ["driver-too-old", "shared-memory-too-small"]


def test_failed_check_is_a_cause_of_its_own(healthy: Machine) -> None:
    failed = Result("image.python", "T.", "static", "image", Status.FAIL, "It is another Python.", "Build it again.")
    found = of_machine(recorded(healthy), results=[failed])
    assert [(f.id, f.cause, f.fix) for f in found.findings] == [
        ("image.python", "It is another Python.", "Build it again.")
    ]


def test_failed_check_that_an_entry_covers_is_told_once(healthy: Machine) -> None:
    m = disk(healthy, "shm", total=64 * MIB, free=64 * MIB)
    failed = Result("container.shared_memory", "T.", "static", "container", Status.FAIL, "64 MiB.", "--shm-size")
    assert [f.id for f in of_machine(recorded(m), results=[failed]).findings] == ["shared-memory-too-small"]


def test_check_without_a_verdict_is_not_dressed_up(healthy: Machine) -> None:
    stuck = Result("stack.lock", "T.", "static", "image", Status.ERROR, "It gave no answer within 60 s.", "Look.")
    found = of_machine(recorded(healthy), results=[stuck])
    assert (found.code, found.findings) == (3, ())
    assert "stack.lock" in found.unknown


@pytest.mark.parametrize(
    ("broken", "ident"),
    [
        (no_gpu(nodes=(), libcuda="", nvml_library="", nvml_code=12), "driver-not-in-container"),
        (no_gpu(libcuda="", cuinit=None), "driver-capability-missing"),
        (no_gpu(nodes=(), libcuda="", nvml_library="", kernel_module=""), "no-driver-on-machine"),
    ],
)
def test_facts_tell_apart_what_one_line_cannot(healthy: Machine, broken: Break, ident: str) -> None:
    log = digest.of("RuntimeError: Found no NVIDIA driver on your system.\n")
    assert of_text(log).findings[0].id == "driver-not-in-container"
    assert of_text(log, broken(healthy)).findings[0].id == ident


def test_facts_that_the_text_does_not_ask_about_stay_out(healthy: Machine) -> None:
    m = disk(healthy, "shm", total=64 * MIB, free=64 * MIB)
    assert [f.id for f in of_text(digest.of("Error 34: CUDA driver is a stub library\n"), m).findings] == [
        "stub-libcuda"
    ]
    full = of_text(digest.of("OSError: [Errno 28] No space left on device\n"), m)
    assert full.findings[0].id == "shared-memory-too-small"


def test_recorded_machine_on_the_command_line(
    healthy: Machine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "m.json"
    broken = disk(healthy, "shm", total=64 * MIB, free=64 * MIB)
    path.write_text(json.dumps(broken.to_dict()))
    assert cli.main(["doctor", "--machine", str(path), "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert said["verdict"] == "cause named"
    assert said["findings"][0]["id"] == "shared-memory-too-small"
    assert "64 MiB" in said["findings"][0]["evidence"][0]


@pytest.mark.parametrize("module", [facts, facts_stack])
def test_every_judge_is_silent_on_an_empty_record(module: object) -> None:
    judges = [
        f
        for n, f in vars(module).items()
        if callable(f) and getattr(f, "__module__", "") == module.__name__ and n != "_wanted"
    ]  # type: ignore[attr-defined]
    told = {
        f.__name__: f(Machine()) for f in judges if f.__code__.co_varnames[:1] == ("m",) and f.__code__.co_argcount == 1
    }
    assert {n for n, said in told.items() if said} <= {"no_driver", "nameless"}
    assert len(told) > 10


def test_quick_look_leaves_slow_checks_out() -> None:
    names = {c.id for c in diagnosis.quick()}
    assert "container.shared_memory" in names
    assert not names & {"imports.packages", "compilers.torch_compile", "binaries.files_are_whole"}
