"""Failures made for real, without a GPU: hostile libraries, namespaces, tiny file systems, missing programs.

What only torch can show runs where VERIFY_STACK_PYTHON names an interpreter that has the image's Python stack.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from verify import child
from verify.doctor import diagnosis, digest

SOURCES = Path(__file__).parent.parent / "doctor" / "sources"
STACK = os.environ.get("VERIFY_STACK_PYTHON", "")
GCC = shutil.which("gcc") or ""
needs_gcc = pytest.mark.skipif(not GCC, reason="gcc is not on this machine")
needs_stack = pytest.mark.skipif(not STACK, reason="VERIFY_STACK_PYTHON names no Python that has torch")
Build = Callable[..., Path]


def possible(*words: str) -> bool:
    """Whether this machine lets us do that: namespaces are often forbidden in containers."""
    try:
        return subprocess.run(words, capture_output=True, check=False, timeout=30).returncode == 0
    except OSError:
        return False


needs_users = pytest.mark.skipif(
    not possible("unshare", "--user", "--map-user=12345", "true"), reason="user namespaces are not allowed here"
)
needs_mounts = pytest.mark.skipif(
    not possible("unshare", "-rm", "mount", "-t", "tmpfs", "tmpfs", "/mnt"), reason="mounts are not allowed here"
)


@pytest.fixture
def build(tmp_path: Path) -> Build:
    """Compiles a C source into a shared library."""

    def make(source: Path | str, target: str, *flags: str) -> Path:
        path = tmp_path / target
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(source, str):
            written = path.with_suffix(".c")
            written.write_text(source)
            source = written
        subprocess.run([GCC, "-shared", "-fPIC", *flags, str(source), "-o", str(path)], check=True, capture_output=True)
        return path

    return make


def run(*argv: str, timeout: float = 120, **env: str) -> str:
    """All that a program writes; variables given as "" are unset."""
    merged = {**child.environment(), "LC_ALL": "C.UTF-8", **env}
    wanted = {k: v for k, v in merged.items() if v or k not in env}
    ended = subprocess.run(
        argv, capture_output=True, text=True, errors="replace", timeout=timeout, env=wanted, check=False
    )
    signal = {-6: "Aborted (core dumped)", -7: "Bus error (core dumped)", -9: "Killed", -11: "Segmentation fault"}
    return f"{ended.stdout}{ended.stderr}\n{signal.get(ended.returncode, '')}\n"


def named(text: str) -> str:
    """The first cause that a text gives."""
    found = diagnosis.of_text(digest.of(text)).findings
    return found[0].id if found else f"nothing in: {text[-1500:]}"


def doctor(*before: str, **env: str) -> list[str]:
    """The ids `verify doctor` names on this machine, started by `before`."""
    said = run(*before, sys.executable, "-m", "verify", "doctor", "--json", VERIFY_REQUIRE="none", **env)
    start = said.index("{")
    return [f["id"] for f in json.JSONDecoder().raw_decode(said[start:])[0]["findings"]]


@needs_gcc
@pytest.mark.parametrize(
    ("code", "folder", "name", "ident"),
    [
        (804, "compat", "libcuda.so.1", "compat-library-on-geforce"),
        (803, "compat", "libcuda.so.1", "compat-library-on-geforce"),
        (803, "lib", "libcuda.so.1", "driver-library-mismatch"),
        (34, "stubs", "libcuda.so.1", "stub-libcuda"),
        (802, "lib", "libcuda.so.1", "fabric-not-ready"),
        (304, "lib", "libcuda.so.1", "system-call-blocked"),
        (100, "lib", "libcuda.so.1", "no-gpu-visible"),
        (3, "lib", "libcuda.so.1", "driver-init-failed"),
    ],
)
def test_driver_library_that_fails(build: Build, code: int, folder: str, name: str, ident: str) -> None:
    library = build(SOURCES / "driver.c", f"{folder}/{name}", "-Wl,-soname,libcuda.so.1")
    assert doctor(LD_LIBRARY_PATH=str(library.parent), FAKE_CUINIT=str(code))[0] == ident


TORCH = "import torch; print(torch.cuda.is_available()); torch.zeros(1, device='cuda')"


@needs_gcc
@needs_stack
@pytest.mark.parametrize(
    ("code", "cuda", "ident"),
    [
        (100, 12040, "no-gpu-visible"),
        (999, 12040, "cuda-unknown-error"),
        (803, 12040, "driver-library-mismatch"),
        (804, 12040, "compat-library-on-geforce"),
        (34, 12040, "stub-libcuda"),
        (3, 12040, "driver-init-failed"),
        (802, 12040, "fabric-not-ready"),
        (304, 12040, "system-call-blocked"),
        (46, 12040, "gpu-busy"),
        (2, 12040, "gpu-memory-held-by-others"),
        (0, 11040, "driver-too-old"),
    ],
)
def test_torch_on_a_driver_that_fails(build: Build, code: int, cuda: int, ident: str) -> None:
    library = build(SOURCES / "driver.c", "lib/libcuda.so.1", "-Wl,-soname,libcuda.so.1")
    said = run(STACK, "-c", TORCH, LD_LIBRARY_PATH=str(library.parent), FAKE_CUINIT=str(code), FAKE_CUDA=str(cuda))
    assert named(said) == ident


@needs_stack
def test_torch_without_a_driver() -> None:
    assert named(run(STACK, "-c", TORCH)) == "driver-not-in-container"


@needs_gcc
@needs_stack
@pytest.mark.parametrize(
    ("code", "ident"),
    [
        (18, "driver-version-mismatch"),
        (9, "kernel-module-not-loaded"),
        (4, "gpu-access-denied"),
        (999, "gpu-access-taken-away"),
    ],
)
def test_nvml_that_fails(build: Build, code: int, ident: str) -> None:
    library = build(SOURCES / "nvml.c", "lib/libnvidia-ml.so.1", "-Wl,-soname,libnvidia-ml.so.1")
    env = {"LD_LIBRARY_PATH": str(library.parent), "FAKE_NVML": str(code)}
    assert named(run(STACK, "-c", "import pynvml; pynvml.nvmlInit()", **env)) == ident


@needs_users
def test_user_without_a_name() -> None:
    names = ("USER", "LOGNAME", "LNAME", "USERNAME", "HOME")
    before = ("unshare", "--user", "--map-user=12345", "--map-group=12345", "env", *(f"-u{n}" for n in names))
    assert "user-without-name" in doctor(*before)
    said = run(*before, sys.executable, "-c", "import getpass; getpass.getuser()")
    assert named(said) == "user-without-name"


@needs_mounts
@pytest.mark.parametrize(
    ("mount", "ident"),
    [
        ("mount -t tmpfs -o size=1m tmpfs /dev/shm", "shared-memory-too-small"),
        ("mount -t tmpfs -o noexec tmpfs /mnt && export TMPDIR=/mnt", "noexec-folder"),
        ("mount -t tmpfs -o size=64k tmpfs /mnt && export HF_HOME=/mnt", "disk-full"),
        ("mount -t tmpfs -o ro tmpfs /mnt && export TRITON_CACHE_DIR=/mnt", "cache-not-writable"),
    ],
)
def test_small_and_odd_file_systems(mount: str, ident: str) -> None:
    assert ident in doctor("unshare", "-rm", "sh", "-c", f'{mount} && exec "$@"', "sh")


@needs_mounts
@pytest.mark.parametrize(
    ("mount", "code", "ident"),
    [
        ("-o size=64k tmpfs /mnt", "open('/mnt/model.pt', 'wb').write(b'x' * 200000)", "disk-full"),
        ("-o ro tmpfs /mnt", "open('/mnt/model.pt', 'wb')", "read-only"),
        (
            "-o size=64k tmpfs /dev/shm",
            "from multiprocessing import shared_memory as s\n"
            "m = s.SharedMemory(create=True, size=1 << 20); m.buf[:] = bytes(1 << 20)",
            "shared-memory-too-small",
        ),
    ],
)
def test_what_python_says_on_them(mount: str, code: str, ident: str) -> None:
    shell = f'mount -t tmpfs {mount} && exec "$@"'
    assert named(run("unshare", "-rm", "sh", "-c", shell, "sh", sys.executable, "-c", code)) == ident


def test_memory_and_files_that_run_out() -> None:
    def memory() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))

    def files() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))

    for limit, code, ident in (
        (memory, "x = bytearray(4 << 30)", "host-out-of-memory"),
        (files, "f = [open('/dev/null') for _ in range(99)]", "too-many-open-files"),
    ):
        ended = subprocess.run(
            [sys.executable, "-c", code], preexec_fn=limit, capture_output=True, text=True, check=False, timeout=60
        )
        assert named(ended.stderr) == ident


@needs_gcc
@pytest.mark.parametrize(
    ("source", "flags", "ident"),
    [
        ("int main(void){return 0;}", ("-lcuda",), "library-not-linked"),
        ("#include <Python.h>\n", (), "python-header-missing"),
        ("#include <cuda_runtime.h>\n", (), "cuda-header-missing"),
    ],
)
def test_compiler_that_complains(tmp_path: Path, source: str, flags: tuple[str, ...], ident: str) -> None:
    (tmp_path / "main.c").write_text(source)
    environment = {"CPATH": "", "C_INCLUDE_PATH": "", "LIBRARY_PATH": ""}
    said = run(GCC, str(tmp_path / "main.c"), *flags, "-o", str(tmp_path / "main"), **environment)
    if "error" not in said:
        pytest.skip("this machine has what should be missing")
    assert named(said) == ident


@needs_gcc
@pytest.mark.parametrize(
    ("module", "symbol", "ident"),
    [
        ("flash_attn_2_cuda", "_ZN3c104cuda9SetDeviceEa", "flash-attn-other-torch"),
        ("flash_attn_2_cuda", "_ZN3c105ErrorC2ENS_14SourceLocationESs", "flash-attn-cxx-abi"),
        ("causal_conv1d_cuda", "_ZN3c104cuda9SetDeviceEi", "extension-other-torch"),
        ("torch_cuda_like", "ncclCommRegister", "nccl-mismatch"),
        ("cusparse_like", "__nvJitLinkComplete_12_4", "nvjitlink-mismatch"),
        ("py_like", "_PyGen_SendFromTheFuture", "extension-other-python"),
    ],
)
def test_extension_with_a_symbol_nobody_has(build: Build, module: str, symbol: str, ident: str) -> None:
    library = build(f"extern void {symbol}(void); void go(void) {{ {symbol}(); }}", f"{module}.so", "-Wl,-z,now")
    said = run(sys.executable, "-c", f"import {module}", PYTHONPATH=str(library.parent))
    assert named(said) == ident


def test_library_cut_short(tmp_path: Path) -> None:
    (tmp_path / "torch_part.so").write_bytes(b"\x7fELF")
    said = run(sys.executable, "-c", "import torch_part", PYTHONPATH=str(tmp_path))
    assert named(said) == "library-file-broken"


def test_shim_that_is_not_there() -> None:
    assert named(run("true", LD_PRELOAD="/usr/local/vgpu/libvgpu.so")) == "virtual-gpu-shim"


def test_request_the_sdk_refuses() -> None:
    pytest.importorskip("docker.types")
    for arguments in ("count='all', capabilities=[['gpu']]", "count=-1, capabilities='gpu'"):
        said = run(
            sys.executable,
            "-P" if sys.version_info >= (3, 11) else "-I",
            "-c",
            f"import docker.types as t; t.DeviceRequest({arguments})",
            PYTHONPATH="",
        )
        assert named(said) == "gpu-request-malformed"


COMPILE = "import torch; torch.compile(lambda x: x.sin() + 1)(torch.ones(8))"
SCRIPTS = [
    ("no-c-compiler", COMPILE, {"PATH": "/nonexistent", "CXX": "", "CC": ""}),
    (
        "recompile-limit",
        "import torch\nf = torch.compile(lambda x, n: x * n, backend='eager', dynamic=False)\n"
        "for n in range(12): f(torch.ones(n + 2), n + 0.5)",
        {},
    ),
    (
        "compile-switched-off",
        "import torch\ndef f(x):\n    print('a')\n    return x\n"
        "torch.compile(f, fullgraph=True, backend='eager')(torch.ones(2))",
        {},
    ),
    ("triton-libcuda-not-found", "from triton.backends.nvidia.driver import CudaUtils; CudaUtils()", {}),
    (
        "arch-list-missing",
        "from torch.utils import cpp_extension as c; c._get_cuda_arch_flags()",
        {"TORCH_CUDA_ARCH_LIST": ""},
    ),
    ("no-nvcc", "from torch.utils import cpp_extension as c; c.CUDA_HOME = None; c._join_cuda_home('x')", {}),
    (
        "xformers-inputs",
        "import torch, xformers.ops as x; q = torch.ones(1, 2, 1, 8); x.memory_efficient_attention(q, q, q)",
        {},
    ),
    ("device-number-too-high,driver-not-in-container", "import torch; torch.cuda.set_device(3)", {}),
    (
        "weights-only-load",
        "import torch, io, fractions\nb = io.BytesIO()\n"
        "torch.save(fractions.Fraction(1, 2), b); b.seek(0); torch.load(b)",
        {},
    ),
    (
        "checkpoint-damaged",
        "import torch, io\nb = io.BytesIO(); torch.save(torch.ones(9), b); torch.load(io.BytesIO(b.getvalue()[:400]))",
        {},
    ),
]


@needs_stack
@pytest.mark.parametrize(("ident", "code", "env"), SCRIPTS, ids=[s[0].split(",")[0] for s in SCRIPTS])
def test_stack_that_fails(tmp_path: Path, ident: str, code: str, env: dict[str, str]) -> None:
    caches = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "i"), "TRITON_CACHE_DIR": str(tmp_path / "t")}
    assert named(run(STACK, "-c", code, **caches, **env)) in ident.split(",")


@needs_stack
@pytest.mark.parametrize(("release", "ident"), [("11.8", "nvcc-other-cuda"), ("12.4", "")])
def test_nvcc_of_another_family(tmp_path: Path, release: str, ident: str) -> None:
    nvcc = tmp_path / "bin" / "nvcc"
    nvcc.parent.mkdir()
    nvcc.write_text(f"#!/bin/sh\necho 'Cuda compilation tools, release {release}, V{release}.1'\n")
    nvcc.chmod(0o755)
    code = (
        "from packaging.version import Version; from torch.utils import cpp_extension as c; "
        "c._check_cuda_version('g++', Version('12'))"
    )
    found = diagnosis.of_text(digest.of(run(STACK, "-c", code, CUDA_HOME=str(tmp_path)))).findings
    assert [f.id for f in found] == ([ident] if ident else [])


@needs_stack
@needs_gcc
@pytest.mark.parametrize(
    ("library", "preload", "code", "ident"),
    [
        ("libnvJitLink.so.12", True, "import torch", "nvjitlink-mismatch"),
        ("libnccl.so.2", True, "import torch", "nccl-mismatch"),
        ("libcudnn_graph.so.9", False, "import torch; torch.backends.cudnn.version()", "cudnn-part-foreign"),
    ],
)
def test_foreign_cuda_library(build: Build, library: str, preload: bool, code: str, ident: str) -> None:
    made = build("int nothing;", f"lib/{library}", f"-Wl,-soname,{library}")
    env = {"LD_PRELOAD": str(made)} if preload else {"LD_LIBRARY_PATH": str(made.parent)}
    assert named(run(STACK, "-c", code, **env)) == ident


@needs_stack
@needs_gcc
@pytest.mark.parametrize(
    ("version", "symbol", "ident"),
    [
        ("2.8.3", "", "flash-attn-outside-xformers-range"),
        ("2.8.2", "_ZN3c104cuda9SetDeviceEa", "flash-attn-other-torch"),
    ],
)
def test_flash_attention_that_does_not_fit(build: Build, tmp_path: Path, version: str, symbol: str, ident: str) -> None:
    package = tmp_path / "flash_attn"
    package.mkdir()
    body = f"__version__ = '{version}'\n" + ("import flash_attn_2_cuda\n" if symbol else "")
    (package / "__init__.py").write_text(body)
    (package / "flash_attn_interface.py").write_text("flash_attn_gpu = None\n")
    if symbol:
        build(f"extern void {symbol}(void); void go(void) {{ {symbol}(); }}", "flash_attn_2_cuda.so", "-Wl,-z,now")
    said = run(STACK, "-c", "import xformers.ops", PYTHONPATH=str(tmp_path))
    assert named(said) == ident


@needs_stack
@needs_mounts
def test_dataloader_on_a_tiny_shared_memory(tmp_path: Path) -> None:
    script = tmp_path / "load.py"
    script.write_text(
        "import torch\nfrom torch.utils.data import DataLoader\nif __name__ == '__main__':\n"
        "    for b in DataLoader([torch.ones(1 << 18)] * 16, batch_size=4, num_workers=2): pass\n"
    )
    shell = 'mount -t tmpfs -o size=1m tmpfs /dev/shm && exec "$@"'
    assert named(run("unshare", "-rm", "sh", "-c", shell, "sh", STACK, str(script))) == "shared-memory-too-small"


@needs_stack
@needs_users
def test_compile_by_a_user_without_a_name(tmp_path: Path) -> None:
    names = ("USER", "LOGNAME", "LNAME", "USERNAME", "HOME")
    before = ("unshare", "--user", "--map-user=12345", "--map-group=12345", "env", *(f"-u{n}" for n in names))
    assert named(run(*before, STACK, "-c", COMPILE, TMPDIR=str(tmp_path))) == "user-without-name"
