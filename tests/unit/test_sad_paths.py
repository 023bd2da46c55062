"""Every check that judges a Machine: what makes it fail, what makes it warn, and what must leave it silent."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from tests.unit.helpers import ask, change, disk, env, load, package, without_disk
from verify import core
from verify.core import Status
from verify.machine import Disk, Machine
from verify.runner import run_one

MIB, GIB = 1 << 20, 1 << 30
Break = Callable[[Machine], Machine]


def image(path: str, value: object) -> Break:
    return lambda m: change(m, f"image.{path}", value)


def facts(path: str, value: object) -> Break:
    return lambda m: change(m, path, value)


def on(name: str, **values: object) -> Break:
    return lambda m: disk(m, name, **values)


def variables(**values: str | None) -> Break:
    return lambda m: env(m, **values)


def installed(name: str, version: str | None) -> Break:
    return lambda m: package(m, name, version)


def all_of(*steps: Break) -> Break:
    def apply(m: Machine) -> Machine:
        for step in steps:
            m = step(m)
        return m

    return apply


NO_CACHES = tuple(f"{n}_CACHE_DIR" for n in ("TORCHINDUCTOR", "TRITON"))

FAILS: list[tuple[str, Break, str, str]] = [
    # check, what is broken, words of the message, words of the hint
    ("container.shared_memory", on("shm", total=64 * MIB, free=64 * MIB), "64 MiB", "--shm-size=8g"),
    ("container.shared_memory", on("shm", exists=False), "no /dev/shm", "--shm-size"),
    ("container.shared_memory", on("shm", writable=False, problem="EROFS"), "cannot be written", "--shm-size"),
    ("container.shared_memory", lambda m: without_disk(m, "shm"), "no /dev/shm", "--shm-size"),
    ("container.locked_memory", facts("container.infiniband", True), "InfiniBand", "--ulimit memlock=-1"),
    (
        "container.disk_space",
        on("workspace", free=MIB),
        "/workspace (/workspace, ext4) has 1 MiB left",
        "Free some room",
    ),
    ("container.disk_space", on("root", inodes_free=3), "3 inodes left", "Free some room"),
    ("container.temporary_folder", on("tmp", writable=False, problem="EROFS"), "EROFS", "--tmpfs /tmp:exec"),
    ("container.temporary_folder", on("tmp", exists=False), "cannot be written", "TMPDIR"),
    (
        "container.temporary_folder",
        lambda m: without_disk(disk(m, "tmp", noexec=True), *NO_CACHES),
        "mounted noexec",
        "--tmpfs /tmp:exec",
    ),
    ("container.memory", facts("container.memory_limit", GIB), "1.0 GiB", "--memory"),
    ("container.limits", facts("container.pids_limit", 100), "100 processes", "--pids-limit"),
    ("container.limits", facts("container.nofile", 256), "256 files", "--ulimit nofile"),
    ("workspace.folders", on("workspace", exists=False), "/workspace does not exist", "entrypoint"),
    ("workspace.folders", on("models", exists=False), "no models", "mkdir /workspace/models"),
    (
        "workspace.folders",
        all_of(on("models", exists=False), on("workspace", writable=False, readonly=True)),
        "mounted read-only",
        "without :ro",
    ),
    (
        "workspace.writable",
        on("output", writable=False, problem="EACCES", owner=1000),
        "belongs to user 1000",
        "-v $PWD",
    ),
    (
        "workspace.writable",
        all_of(on("output", writable=False, problem="EACCES", owner=1000), facts("container.uid", 12345)),
        "belongs to user 1000",
        "PUID",
    ),
    ("workspace.writable", on("output", writable=False, problem="ENOSPC"), "the disk is full", "-v $PWD"),
    ("workspace.caches", on("HF_HOME", writable=False, readonly=True), "mounted read-only", "entrypoint"),
    ("workspace.caches", on("TRITON_CACHE_DIR", noexec=True), "noexec", "exec"),
    (
        "environment.nvidia_variables",
        variables(NVIDIA_VISIBLE_DEVICES=None),
        "NVIDIA_VISIBLE_DEVICES is not set",
        "all",
    ),
    (
        "environment.nvidia_variables",
        variables(NVIDIA_DRIVER_CAPABILITIES="utility"),
        "libcuda is not",
        "compute,utility",
    ),
    ("environment.nvidia_variables", variables(NVIDIA_DRIVER_CAPABILITIES="compute"), "NVML is not", "compute,utility"),
    (
        "environment.required_cuda",
        variables(NVIDIA_REQUIRE_CUDA="cuda>=12.8"),
        "refuses driver 550.90.07",
        "cuda>=12.4",
    ),
    (
        "environment.required_cuda",
        variables(NVIDIA_REQUIRE_CUDA="cuda>=12.8 brand=tesla,driver>=535,driver<551"),
        "offers CUDA 12.4",
        "cuda>=12.4",
    ),
    ("environment.library_path", variables(LD_LIBRARY_PATH="/usr/local/cuda/lib64/stubs"), "error 34", "LIBRARY_PATH"),
    (
        "environment.library_path",
        variables(LD_LIBRARY_PATH="/x:/usr/local/cuda/compat"),
        "error 804",
        "Take /usr/local",
    ),
    ("environment.path", variables(PATH="/nonexistent"), "`python` on PATH is nowhere", "/opt/venv/bin first"),
    ("environment.cuda_home", variables(CUDA_HOME=None), "CUDA_HOME is not set", "CUDA_HOME=/usr/local/cuda"),
    ("environment.cuda_home", variables(CUDA_HOME="/usr/local/cuda-11.8"), "has no nvcc", "CUDA_HOME=/usr/local/cuda"),
    (
        "environment.cuda_home",
        all_of(image("target", "runtime"), facts("toolkit.nvcc", "")),
        "has no toolkit",
        "Unset CUDA_HOME",
    ),
    (
        "environment.user",
        all_of(facts("container.user", ""), facts("container.uid", 12345)),
        "12345 has no name",
        "USER=",
    ),
    (
        "environment.user",
        lambda m: without_disk(disk(m, "home", writable=False), *NO_CACHES),
        "home folder /root cannot",
        "Set HOME",
    ),
    ("environment.compile_switches", variables(TORCHDYNAMO_DISABLE="1"), "TORCHDYNAMO_DISABLE=1", "Unset TORCHDYNAMO"),
    ("environment.compile_switches", variables(TORCHDYNAMO_SUPPRESS_ERRORS="true"), "run eager", "Unset"),
    ("environment.preload", facts("driver.preload", ("/usr/local/vgpu/none.so",)), "is not there", "LD_PRELOAD"),
    ("image.description", image("schema", 2), "schema 2", "make image"),
    ("image.description", image("targets", []), "no GPU target", "sm_89"),
    ("image.description", image("targets", ["8.9"]), "no GPU target", "sm_89"),
    (
        "image.description",
        all_of(facts("image", None), facts("problems", {"image": "JSONDecodeError: Expecting value"})),
        "cannot be read",
        "make image",
    ),
    (
        "image.description",
        lambda m: change(m, "image", {k: v for k, v in (m.image or {}).items() if k != "lock"}),
        "lacks lock",
        "make image",
    ),
    ("image.python", facts("python.version", "3.11.2"), "Python 3.11.2", "/opt/venv/bin/python"),
    ("image.toolkit", facts("toolkit.version", "11.8.89"), "is 11.8.89, the image has toolkit 12.4.131", "make image"),
    (
        "image.toolkit",
        all_of(facts("toolkit.version", "11.8.89"), facts("toolkit.nvcc", "/opt/cuda/bin/nvcc")),
        "(/opt/cuda/bin/nvcc) is 11.8.89",
        "CUDA_HOME",
    ),
    ("image.toolkit", facts("toolkit.nvcc", ""), "nvcc is gone", "make image"),
    ("image.toolkit", image("toolkit", None), "declares no toolkit", "make image"),
    ("image.flash_attention", installed("flash-attn", "2.8.3"), "flash-attn 2.8.3 is installed", "own wheel"),
    ("image.flash_attention", installed("flash-attn", None), "flash-attn is not installed", "own wheel"),
    ("image.flash_attention", image("flash_attn.variant", "none"), "built without it", "FLASH_ATTN="),
    ("image.flash_attention", image("flash_attn.archs", ["sm_90a"]), "does not run on sm_89", "FLASH_ATTN_ARCHS"),
    ("image.skeleton", lambda m: m, "so an empty /workspace stays empty", "make image"),
    ("stack.lock", installed("torch", "2.9.0"), "torch 2.9.0 instead of 2.8.0", "torch==2.8.0"),
    ("stack.lock", installed("einops", None), "einops is missing", "einops=="),
    ("stack.lock", image("lock", {}), "no locked versions", "make image"),
    ("stack.torch_build", installed("torch", "2.8.0+cpu"), "without CUDA", "torch==2.8.0"),
    ("stack.torch_build", facts("python.torch_cuda", ""), "without CUDA", "torch==2.8.0"),
    ("stack.family", installed("torchvision", "0.22.1"), "torchvision 0.22.1 does not belong", "torchvision==0.23.*"),
    ("stack.family", installed("torchaudio", "2.7.1"), "torchaudio 2.7.1", "torchaudio==2.8.*"),
    ("stack.family", installed("triton", "3.5.0"), "triton 3.5.0", "triton==3.4.*"),
    (
        "stack.family",
        all_of(
            installed("torch", "3.1.0"),
            facts("python.conflicts", ("torchvision 0.22.1 requires torch==2.7.1, but 3.1.0 is installed",)),
        ),
        "requires torch==2.7.1",
        "made for torch 3.1.0",
    ),
    ("stack.family", installed("triton", None), "triton is not installed", "triton==3.4.*"),
    (
        "stack.torch_pins",
        facts(
            "python.conflicts",
            ("torch 2.8.0 requires nvidia-nvjitlink-cu12==12.8.93, but 12.4.127 is installed",),
        ),
        "12.4.127 is installed",
        "nvidia-nvjitlink-cu12==12.8.93",
    ),
    ("stack.xformers_build", facts("python.xformers_torch", "2.7.1+cu126"), "built for torch 2.7.1", "0.0.32.post2"),
    ("stack.xformers_build", facts("python.xformers_torch", "2.8.0+cu126"), "2.8.0+cu126", "--no-deps"),
    ("stack.xformers_build", facts("python.xformers_torch", ""), "no compiled part", "wheel"),
    ("stack.flash_attention_range", installed("flash-attn", "2.8.3"), "outside the 2.7.1 to 2.8.2", "flash-attn 2.8.2"),
    ("stack.flash_attention_range", installed("flash-attn", "2.6.3"), "outside", "flash-attn 2.8.2"),
    (
        "stack.bitsandbytes_binary",
        facts("python.bitsandbytes_cuda", ("124", "126")),
        "CUDA 128",
        "BNB_CUDA_VERSION=126",
    ),
    ("stack.bitsandbytes_binary", facts("python.bitsandbytes_cuda", ()), "none", "force-reinstall"),
    (
        "stack.requirements",
        facts("python.conflicts", ("a 1 requires b, which is not installed",)),
        "requires b",
        "pip check",
    ),
    ("compilers.c_compiler", facts("toolkit.gcc", ""), "gcc is not on PATH", "apt-get install gcc"),
    ("compilers.c_compiler", facts("toolkit.gxx", ""), "g++ is not on PATH", "apt-get install gcc"),
    ("compilers.python_headers", facts("python.header", False), "Python.h does not exist", "python3.13-dev"),
    (
        "compilers.nvcc_host_compiler",
        facts("toolkit.host_compiler_version", "14.2.0"),
        "accepts g++ up to 13",
        "g++-13",
    ),
    ("compilers.nvcc_host_compiler", facts("toolkit.host_compiler", ""), "finds no g++", "NVCC_CCBIN"),
    ("compilers.nvcc_matches_torch", facts("toolkit.version", "11.8.89"), "CUDA 11.8.89", "CUDA_HOME"),
    ("compilers.nvcc_matches_torch", facts("toolkit.version", "13.0.88"), "extensions do not build", "CUDA 12"),
]

WARNS: list[tuple[str, Break, str]] = [
    ("container.shared_memory", on("shm", total=512 * MIB, free=512 * MIB), "512 MiB"),
    ("container.disk_space", on("workspace", free=2 * GIB), "2.0 GiB left"),
    ("container.temporary_folder", on("tmp", noexec=True), "noexec"),
    ("container.memory", facts("container.memory_kills", 2), "2 times"),
    (
        "container.processors",
        all_of(facts("container.cpu_limit", 2.0), facts("system.cpus_usable", 48)),
        "torch sees 48 cores",
    ),
    (
        "workspace.caches",
        lambda m: change(m, "disks", tuple(d for d in m.disks if not d.name.isupper())),
        "No cache folder",
    ),
    (
        "stack.flash_attention_range",
        all_of(installed("flash-attn", "2.8.3"), variables(XFORMERS_IGNORE_FLASH_VERSION_CHECK="1")),
        "switched off",
    ),
    (
        "environment.preload",
        all_of(facts("driver.preload", ("/usr/local/vgpu/libvgpu.so",)), facts("recorded", True)),
        "slice of a GPU",
    ),
]

# What a tool must not complain about: each is normal on a healthy machine.
SILENT: list[tuple[str, str, Break]] = [
    ("toolkit 12.4 beside torch's CUDA 12.8", "compilers.nvcc_matches_torch", lambda m: m),
    ("sm_80 code for an sm_89 card", "image.flash_attention", lambda m: m),
    ("the Python version in xFormers' build line", "stack.xformers_build", lambda m: m),
    ("a driver of CUDA 12.4 below torch's 12.8", "environment.required_cuda", lambda m: m),
    ("the toolkit's lib64", "environment.library_path", variables(LD_LIBRARY_PATH="/usr/local/cuda/lib64")),
    ("TRITON_PTXAS_PATH pointing nowhere", "environment.compile_switches", variables(TRITON_PTXAS_PATH="/nowhere")),
    ("a low memlock without InfiniBand", "container.locked_memory", facts("container.memlock", 65536)),
    ("memlock unlimited with InfiniBand", "container.locked_memory", all_of(
        facts("container.memlock", -1), facts("container.infiniband", True))),
    ("TORCHDYNAMO_DISABLE=0", "environment.compile_switches", variables(TORCHDYNAMO_DISABLE="0")),
    ("devices=void, as CDI sets it", "environment.nvidia_variables", variables(NVIDIA_VISIBLE_DEVICES="void")),
    ("all capabilities", "environment.nvidia_variables", variables(NVIDIA_DRIVER_CAPABILITIES="all")),
    ("no NVIDIA_REQUIRE_CUDA", "environment.required_cuda", variables(NVIDIA_REQUIRE_CUDA=None)),
    ("a clause for the driver's branch", "environment.required_cuda", variables(
        NVIDIA_REQUIRE_CUDA="cuda>=12.8 brand=geforce,driver>=550,driver<551")),
    ("models and data mounted read-only", "workspace.writable", all_of(
        on("models", writable=False, readonly=True), on("data", writable=False, readonly=True))),
    ("a read-only root", "container.disk_space", on("root", readonly=True, free=0, inodes_free=0)),
    ("a file system without inode counts", "container.disk_space", on("root", inodes_free=None)),
    ("an unmapped user with USER set", "environment.user", all_of(facts("container.user", ""), variables(USER="me"))),
    ("a home that cannot be written, with caches elsewhere", "environment.user", on("home", writable=False)),
    ("a package nobody locked", "stack.lock", installed("polars", "1.0")),
    ("a torch newer than the table", "stack.family", installed("torch", "3.1.0")),
    ("a local version", "stack.lock", installed("torch", "2.8.0+cu128")),
    ("another cuDNN-free package missing", "stack.family", installed("torchaudio", None)),
    ("threads limited by hand", "container.processors", all_of(
        facts("container.cpu_limit", 4.0), facts("system.cpus_usable", 48), variables(OMP_NUM_THREADS="4"))),
    ("an image without FlashAttention", "image.flash_attention", all_of(
        image("flash_attn", {"variant": "none"}), installed("flash-attn", None))),
    ("no toolkit in the runtime image", "image.toolkit", all_of(
        image("target", "runtime"), image("toolkit", None), facts("toolkit.nvcc", ""))),
    ("CUDA_HOME unset in the runtime image", "environment.cuda_home", all_of(
        image("target", "runtime"), variables(CUDA_HOME=None), facts("toolkit.nvcc", ""))),
    ("the GPU asleep: PCIe generation 1, low clocks", "container.beside_the_article", lambda m: m),
]  # fmt: skip

LIVE = {
    "compilers.nvcc_compiles",
    "compilers.torch_compile",
    "compilers.triton_compiles",
    "imports.packages",
    "imports.quiet",
    "stack.runtime_libraries",
}
MINE = ("compilers", "container", "environment", "image", "imports", "stack", "workspace")
# Never fail on purpose: information, or advice at most.
ADVICE = {"container.beside_the_article", "container.processors", "imports.quiet"}


@pytest.mark.parametrize(
    ("ident", "broken", "message", "hint"), FAILS, ids=[f"{n}-{c[0]}" for n, c in enumerate(FAILS)]
)
def test_it_fails_and_says_what_to_do(healthy: Machine, ident: str, broken: Break, message: str, hint: str) -> None:
    found = ask(ident, broken(healthy))
    assert found.status is Status.FAIL, found
    assert message in found.message
    assert hint in found.hint


@pytest.mark.parametrize(("ident", "broken", "message"), WARNS, ids=[f"{n}-{c[0]}" for n, c in enumerate(WARNS)])
def test_it_warns(healthy: Machine, ident: str, broken: Break, message: str) -> None:
    found = ask(ident, broken(healthy))
    assert found.status is Status.WARN, found
    assert message in found.message
    assert found.hint


@pytest.mark.parametrize(("name", "ident", "step"), SILENT, ids=[c[0] for c in SILENT])
def test_no_false_alarm(healthy: Machine, name: str, ident: str, step: Break) -> None:
    assert ask(ident, step(healthy)).status is Status.PASS, name


def test_every_check_here_has_a_sad_path() -> None:
    declared = {i for i in core.discover() if i.partition(".")[0] in MINE}
    assert declared - {c[0] for c in FAILS} - LIVE - ADVICE == set()


def test_every_message_of_a_failure_is_a_sentence(healthy: Machine) -> None:
    found = [ask(ident, broken(healthy)) for ident, broken, *_ in FAILS]
    assert [f.message for f in found if not f.message.endswith(".") or not f.message[0].strip()] == []


def recorded(name: str) -> Machine:
    return dataclasses.replace(load(name), recorded=True)


def statuses(m: Machine, about: str = "") -> dict[str, Status]:
    chosen = [c for c in core.discover().values() if c.id.partition(".")[0] in MINE and (not about or c.about == about)]
    return {c.id: run_one(c, m).status for c in chosen}


def test_the_healthy_machine_is_clean() -> None:
    assert set(statuses(recorded("healthy-4090d")).values()) == {Status.PASS, Status.SKIP}


def test_what_the_image_build_checks_is_clean_before_any_container_is_started() -> None:
    assert set(statuses(recorded("image-build"), about="image").values()) == {Status.PASS, Status.SKIP}


def test_a_container_without_gpus_has_one_fault_of_its_own() -> None:
    found = statuses(recorded("container-without-gpus"))
    assert [i for i, s in found.items() if s not in {Status.PASS, Status.SKIP}] == ["container.shared_memory"]


def test_an_empty_record_is_skipped_or_judged_but_never_an_error() -> None:
    found = statuses(Machine(recorded=True))
    assert Status.ERROR not in found.values()


@pytest.mark.parametrize("name", ["root", "tmp", "shm", "workspace", "output"])
def test_a_folder_that_could_not_be_looked_at_is_no_crash(healthy: Machine, name: str) -> None:
    m = dataclasses.replace(healthy, recorded=True)
    lost = dataclasses.replace(
        m, disks=tuple(Disk(d.name, d.path, False, problem="EIO") if d.name == name else d for d in m.disks)
    )
    assert Status.ERROR not in statuses(lost).values()
