import errno
import os
import shutil
import sys
from pathlib import Path

import pytest

from verify import child, machine, probe
from verify.machine import Machine
from verify.probe import container, cuda, driver, folders, nvml, software, system, toolkit

MOUNTS = """\
22 1 0:30 / / rw,relatime - overlay overlay rw,lowerdir=/x
23 22 0:31 / /dev/shm rw,nosuid,nodev,noexec - tmpfs shm rw,size=65536k
24 22 8:1 /d /work\\040space ro,relatime - ext4 /dev/sda1 rw
25 22 8:1 /lib /usr/lib/libcuda.so.550.90.07 ro - ext4 /dev/sda1 ro
"""


def test_reading_this_machine_never_raises_and_imports_no_torch() -> None:
    ended, said = child.python(
        "import sys\nfrom verify.child import answer\nfrom verify import machine\nm = machine.read()\n"
        "answer({'loaded': [n for n in ('torch', 'numpy', 'pynvml') if n in sys.modules], 'machine': m.to_dict()})",
        timeout=60,
    )
    assert not ended.ending[0], ended.tail
    assert said["loaded"] == []
    m = Machine.from_dict(said["machine"])
    assert m.system.kernel == os.uname().release
    assert m.container.uid == os.getuid()
    assert not m.recorded


def test_a_fact_that_cannot_be_read_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(problems: dict[str, str]) -> None:
        raise RuntimeError("the kernel is\nelsewhere")

    monkeypatch.setattr(container, "read", broken)
    m = machine.read()
    assert m.problems["container"] == "RuntimeError: the kernel is elsewhere"
    assert m.container == machine.Container()


def test_reasons_are_ends_of_sentences(tmp_path: Path) -> None:
    problems: dict[str, str] = {}
    probe.attempt(problems, "file", (tmp_path / "none").read_text, "")
    assert problems["file"].endswith("none: No such file or directory")


def test_the_environment_keeps_no_secret() -> None:
    given = {
        "HF_TOKEN": "s",
        "PIP_INDEX_URL": "u",
        "AWS_SECRET": "s",
        "CUDA_HOME": "/c",
        "USER": "me",
        "LD_PRELOAD": "x",
    }
    assert probe.environment(given) == {"CUDA_HOME": "/c", "LD_PRELOAD": "x", "USER": "me"}


def test_image_json(tmp_path: Path) -> None:
    path = tmp_path / "image.json"
    path.write_text('{"schema": 1}')
    assert probe.image(path) == {"schema": 1}
    path.write_text("[]")
    with pytest.raises(TypeError, match="not an object"):
        probe.image(path)


def test_pairs() -> None:
    assert system.pairs('ID=debian\nVERSION_ID="13"\n\nID=again\n', "=") == {"ID": "debian", "VERSION_ID": "13"}


@pytest.mark.parametrize(
    ("files", "env", "name"),
    [
        ([], {}, ""),
        ([".dockerenv"], {}, "docker"),
        ([".dockerenv"], {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "kubernetes"),
        (["run/.containerenv"], {}, "podman"),
        ([], {"container": "oci"}, "oci"),
    ],
)
def test_the_engine(tmp_path: Path, files: list[str], env: dict[str, str], name: str) -> None:
    for file in files:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).touch()
    assert container.engine(tmp_path, env)[0] == name


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"cpu.max": "1000000 100000\n"}, 10.0),
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu/cpu.cfs_quota_us": "150000", "cpu/cpu.cfs_period_us": "100000"}, 1.5),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        ({}, None),
    ],
)
def test_cpu_limit_of_both_cgroup_versions(tmp_path: Path, files: dict[str, str], expected: float | None) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert container.cpu_limit(tmp_path) == expected


@pytest.mark.parametrize(
    ("text", "expected"), [("max\n", None), ("9223372036854771712", None), ("1024", 1024), ("", None)]
)
def test_numbers_of_cgroup_files(tmp_path: Path, text: str, expected: int | None) -> None:
    (tmp_path / "n").write_text(text)
    assert container.number(tmp_path / "n") == expected
    assert container.number(tmp_path / "absent") is None


def test_a_user_without_a_passwd_entry_has_no_name() -> None:
    assert container.user(4_294_000_000) == ""
    assert container.user(0) == "root"


def test_the_mount_table(tmp_path: Path) -> None:
    (tmp_path / "m").write_text(MOUNTS)
    table = folders.mount_table(tmp_path / "m")
    assert table["/work space"] == ("ext4", "ro,relatime,rw")
    assert folders.under("/dev/shm/x", table) == "/dev/shm"
    assert folders.under("/dev/shmx", table) == "/"


def test_a_folder_that_can_be_used(tmp_path: Path) -> None:
    found = folders.look("data", str(tmp_path), {"/": ("ext4", "rw")})
    assert (found.exists, found.writable, found.noexec, found.problem) == (True, True, False, "")
    assert found.total > found.free > 0
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_is_judged_by_its_parent(tmp_path: Path) -> None:
    found = folders.look("data", str(tmp_path / "a" / "b"), {"/": ("ext4", "rw")})
    assert (found.exists, found.writable) == (False, True)


@pytest.mark.parametrize(
    ("code", "name"),
    [(errno.EACCES, "EACCES"), (errno.EROFS, "EROFS"), (errno.ENOSPC, "ENOSPC"), (errno.EDQUOT, "EDQUOT")],
)
def test_why_a_folder_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, name: str) -> None:
    def refuse(**_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(folders.tempfile, "mkstemp", refuse)
    assert folders.try_folder(tmp_path) == (False, True, name)


def test_a_full_disk_is_found_by_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(folders.os, "write", full)
    assert folders.try_folder(tmp_path) == (False, True, "ENOSPC")
    assert list(tmp_path.iterdir()) == []


def test_noexec_is_found_by_mapping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "no")

    monkeypatch.setattr(folders.mmap, "mmap", refuse)
    assert folders.try_folder(tmp_path) == (True, False, "")


def program(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def fake_toolkit(root: Path, release: str = "11.8, V11.8.89", limit: int = 11) -> None:
    (root / "bin").mkdir(parents=True)
    (root / "include/crt").mkdir(parents=True)
    (root / "include/crt/host_config.h").write_text(f"#if __GNUC__ > {limit}\n#error no\n#endif\n")
    program(root / "bin/nvcc", f'echo "Cuda compilation tools, release {release}"')
    program(root / "bin/g++", "echo 11.4.0")


def test_a_toolkit_by_cuda_home(tmp_path: Path) -> None:
    fake_toolkit(tmp_path / "cuda")
    found = toolkit.read({}, {"CUDA_HOME": str(tmp_path / "cuda"), "PATH": "/nonexistent"})
    assert (found.version, found.home) == ("11.8.89", str(tmp_path / "cuda"))
    assert (found.host_compiler_version, found.host_compiler_limit) == ("11.4.0", 11)
    assert (found.gcc, found.gxx) == ("", "")


def test_an_nvcc_that_does_not_run_says_why(tmp_path: Path) -> None:
    fake_toolkit(tmp_path / "cuda")
    program(tmp_path / "cuda/bin/nvcc", "echo broken >&2; exit 1")
    problems: dict[str, str] = {}
    found = toolkit.read(problems, {"CUDA_HOME": str(tmp_path / "cuda"), "PATH": "/nonexistent"})
    assert found.version == ""
    assert "exit code 1: broken" in problems["toolkit.nvcc"]


@pytest.mark.parametrize(
    ("profile", "env", "expected"),
    [
        ("", {"NVCC_CCBIN": "/opt/g++-12"}, "/opt/g++-12"),
        ("compiler-bindir = /opt/bin/g++-13\n", {}, "/opt/bin/g++-13"),
        ("", {}, "beside"),
    ],
)
def test_the_compiler_nvcc_calls(tmp_path: Path, profile: str, env: dict[str, str], expected: str) -> None:
    fake_toolkit(tmp_path)
    (tmp_path / "bin/nvcc.profile").write_text(profile)
    found = toolkit.find_host_compiler(str(tmp_path / "bin/nvcc"), env)
    assert found == (str(tmp_path / "bin/g++") if expected == "beside" else expected)


def test_conflicts_are_what_pip_check_says() -> None:
    versions = {"torch": "2.9.0", "xformers": "0.0.32.post2", "numpy": "2.2.6"}
    lines = {
        "xformers": ["numpy", "torch==2.8.0", 'absent; extra == "dev"', 'other; python_version < "3.0"'],
        "torch": ["filelock>=3", "NumPy>=2"],
    }
    assert software.conflicts(lines.items(), versions) == (
        "torch 2.9.0 requires filelock, which is not installed",
        "xformers 0.0.32.post2 requires torch==2.8.0, but 2.9.0 is installed",
    )


def test_conflicts_accept_local_versions_and_pre_releases() -> None:
    versions = {"a": "1", "torch": "2.8.0+cu128", "b": "3.0rc1"}
    assert software.conflicts([("a", ["torch==2.8.0", "b>=2"])], versions) == ()


def test_facts_of_wheels_are_read_from_their_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        "torch/__init__.py": "raise ImportError('must not be imported')",
        "torch/version.py": "__version__ = '2.8.0+cu128'\ncuda: Optional[str] = '12.8'\n",
        "xformers/__init__.py": "raise ImportError('must not be imported')",
        "xformers/cpp_lib.json": '{"version": {"torch": "2.8.0+cu128"}, "env": {"TORCH_CUDA_ARCH_LIST": "8.0"}}',
        "xformers/ops/fmha/flash.py": 'FLASH_VER_MIN = parse_version("2.7.1")\nFLASH_VER_LAST = parse_version("2.8.2")',
        "bitsandbytes/__init__.py": "",
        "bitsandbytes/libbitsandbytes_cuda128.so": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    found = software.read({})
    assert (found.torch_cuda, found.xformers_torch, found.xformers_archs) == ("12.8", "2.8.0+cu128", "8.0")
    assert (found.xformers_flash_min, found.xformers_flash_max) == ("2.7.1", "2.8.2")
    assert found.bitsandbytes_cuda == ("128",)
    assert found.version == sys.version.split()[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.90.07  Fri May 31 09:35:42 UTC 2024\n",
            ("550.90.07", False),
        ),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release\n", ("570.86.15", True)),
    ],
)
def test_the_kernel_module(tmp_path: Path, text: str, expected: tuple[str, bool]) -> None:
    (tmp_path / "version").write_text(text)
    assert driver.module(tmp_path) == expected
    assert driver.module(tmp_path / "none") == ("", None)


def test_device_files_tell_why_they_do_not_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("nvidiactl", "nvidia0"):
        (tmp_path / name).touch()
    (tmp_path / "nvidia-caps").mkdir()
    real = os.open

    def refuse(path: str, *rest: int) -> int:
        if str(path).endswith("nvidia0"):
            raise OSError(errno.EPERM, "cgroup")
        return real(path, *rest)

    monkeypatch.setattr(driver.os, "open", refuse)
    assert [(Path(n.path).name, n.access) for n in driver.nodes(tmp_path)] == [
        ("nvidia0", "EPERM"),
        ("nvidiactl", "ok"),
    ]


def test_where_triton_can_link_libcuda(tmp_path: Path) -> None:
    assert driver.linkable("\tlibcuda.so (libc6,x86-64) => /usr/lib/libcuda.so\n", "", {})
    assert not driver.linkable("\tlibcuda.so.1 (libc6,x86-64) => /usr/lib/libcuda.so.1\n", "/usr/lib/libcuda.so.1", {})
    (tmp_path / "libcuda.so").touch()
    assert driver.linkable("", "", {"LD_LIBRARY_PATH": str(tmp_path)})


def test_cuda_and_nvml_are_joined_by_the_address_which_is_dropped() -> None:
    said = [{"address": "0:1:0", "name": "A", "sm": "sm_89"}, {"address": "0:2:0", "name": "B", "sm": "sm_89"}]
    more = [
        {"address": "0:2:0", "name": "B", "power": 12.5, "throttle": ["sync boost"]},
        {"address": "0:9:0", "name": "C"},
    ]
    first, second = driver.merge(said, more)
    assert (first.name, first.power) == ("A", None)
    assert (second.index, second.power, second.throttle) == (1, 12.5, ("sync boost",))
    assert [g.name for g in driver.merge([], more)] == ["B", "C"]


def test_a_libcuda_that_aborts_is_a_problem_and_keeps_what_it_said(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = child.Child(-6, "", "", '{"libcuda": "/x/libcuda.so.1"}\n', 0.1)
    monkeypatch.setattr(child, "run", lambda *_, **__: ended)
    problems: dict[str, str] = {}
    assert driver.ask("cuda", problems) == {"libcuda": "/x/libcuda.so.1"}
    assert "abort" in problems["driver.cuda"]


def test_the_mapped_file_is_found(tmp_path: Path) -> None:
    (tmp_path / "maps").write_text(
        "7f00-7f01 r-xp 00000000 08:01 5 /usr/lib/libc.so.6\n"
        "7f02-7f03 r-xp 0 08:01 6 /usr/local/cuda/compat/libcuda.so.1\n"
    )
    assert cuda.mapped("libcuda.so", tmp_path / "maps") == "/usr/local/cuda/compat/libcuda.so.1"
    assert cuda.mapped("libnvidia-ml.so", tmp_path / "maps") == ""


def test_a_card_that_answers_nothing_is_still_a_card() -> None:
    class Library:
        class NVMLError(Exception):
            pass

        def __getattr__(self, name: str) -> object:
            def refuse(*_: object) -> None:
                raise self.NVMLError(name)

            return refuse

    found = nvml.gpu(Library(), object())
    assert found["name"] == ""
    assert found["power"] is None
    assert found["throttle"] == []


def test_both_ways_xformers_writes_its_bounds(tmp_path: Path) -> None:
    path = tmp_path / "flash.py"
    path.write_text('    FLASH_VER_MIN = (2, 7, 1)\n    FLASH_VER_LAST = parse_version("2.8.2")  # inclusive\n')
    assert software.bound(path, "FLASH_VER_MIN") == "2.7.1"
    assert software.bound(path, "FLASH_VER_LAST") == "2.8.2"
    assert software.bound(None, "FLASH_VER_LAST") == ""


DRIVER = """
#include <stdlib.h>
#include <string.h>
int cuDriverGetVersion(int *v) { *v = 12040; return 0; }
int cuInit(unsigned f) { if (INIT < 0) abort(); return INIT; }
int cuDeviceGetCount(int *n) { *n = 1; return 0; }
int cuDeviceGet(int *d, int i) { *d = i; return 0; }
int cuDeviceGetName(char *s, int n, int d) { strncpy(s, "Made Up", n); return 0; }
int cuDeviceTotalMem_v2(size_t *b, int d) { *b = 1u << 30; return 0; }
int cuDeviceGetAttribute(int *v, int a, int d) { *v = a == 75 ? 8 : a == 76 ? 9 : a == 16 ? 114 : 0; return 0; }
"""


def ask_made_up_driver(folder: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> tuple[dict[str, object], str]:
    folder.mkdir()
    library = folder / "libcuda.so.1"
    argv = ["gcc", "-shared", "-fPIC", f"-DINIT=({code})", "-x", "c", "-", "-o", str(library)]
    assert not child.run(argv, timeout=60, stdin=DRIVER).ending[0]
    monkeypatch.setenv("LD_LIBRARY_PATH", str(folder))
    problems: dict[str, str] = {}
    said = driver.ask("cuda", problems)
    assert said["libcuda"] == str(library.resolve())
    return said, problems.get("driver.cuda", "")


needs_gcc = pytest.mark.skipif(not shutil.which("gcc"), reason="gcc is not here")


@needs_gcc
def test_a_made_up_driver_answers_step_by_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said, problem = ask_made_up_driver(tmp_path / "lib", monkeypatch, 0)
    assert (said["version"], said["cuinit"], said["devices"], problem) == (12040, 0, 1, "")
    (gpu,) = driver.merge(said["gpus"], [])  # type: ignore[arg-type]
    assert (gpu.name, gpu.sm, gpu.sm_count, gpu.memory) == ("Made Up", "sm_89", 114, 1 << 30)


@needs_gcc
def test_cuda_compat_is_seen_by_the_file_that_is_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said, problem = ask_made_up_driver(tmp_path / "compat", monkeypatch, 804)
    assert (said["cuinit"], said.get("devices"), problem) == (804, None, "")


@needs_gcc
def test_a_libcuda_that_aborts_in_cuinit_does_not_take_the_reader_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said, problem = ask_made_up_driver(tmp_path / "lib", monkeypatch, -1)
    assert said["version"] == 12040
    assert "cuinit" not in said
    assert "abort" in problem
