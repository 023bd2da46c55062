"""Compiling inside the container, on the CPU and for the GPU, as each kind of user: where most broken images break."""

from __future__ import annotations

from typing import Any

import pytest

# A new process compares the compiled function with the eager one, and proves that it was compiled: inductor counted a
# kernel, and its cache was filled.
COMPILE = """
import os, pathlib, torch
from torch._inductor import metrics
def f(x):
    return torch.sin(x) * 2 + x
x = torch.randn(1000)
torch.testing.assert_close(torch.compile(f, fullgraph=True)(x), f(x))
assert metrics.generated_kernel_count == 1, metrics.generated_kernel_count
cache = pathlib.Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])
assert list(cache.rglob("*.so")), cache
print("compiled in", cache)
"""
# nvcc and the host compiler, ninja, the cache, linking and loading: everything of an extension but torch's own headers,
# whose parsing takes a minute. `test_torch_extension` has these.
KERNEL = """
import os
os.environ["TORCH_CUDA_ARCH_LIST"] = "8.9"
from torch.utils import cpp_extension
import ctypes
source = r'''
#include <cuda_runtime.h>
__global__ void scale(float* x, float by, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] *= by;
}
extern "C" int answer() { return 42; }
extern "C" int launch(float* x, int n) { scale<<<(n + 255) / 256, 256>>>(x, 2.f, n); return cudaGetLastError(); }
'''
path = cpp_extension.load_inline("kernel", "", source, is_python_module=False, no_implicit_headers=True)
assert ctypes.CDLL(path).answer() == 42
print("built in", path)
"""
# What `pip install` from sources does: setuptools calls the compilers by the names in Python's own configuration.
SETUPTOOLS = """
import pathlib, subprocess, sys, tempfile
folder = pathlib.Path(tempfile.mkdtemp())
(folder / "one.cpp").write_text(r'''
#include <Python.h>
#include <vector>
static PyObject* size(PyObject*, PyObject*) { return PyLong_FromSize_t(std::vector<int>(7).size()); }
static PyMethodDef methods[] = {{"size", size, METH_NOARGS, ""}, {nullptr, nullptr, 0, nullptr}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "one", "", -1, methods};
PyMODINIT_FUNC PyInit_one() { return PyModule_Create(&module); }
''')
(folder / "setup.py").write_text("from setuptools import Extension, setup\\n"
    "setup(name='one', ext_modules=[Extension('one', ['one.cpp'], language='c++')])")
subprocess.run([sys.executable, "setup.py", "-q", "build_ext", "--inplace"], cwd=folder, check=True)
sys.path.insert(0, str(folder))
import one
assert one.size() == 7
print("built with setuptools")
"""
EXTENSION = """
import os
os.environ["TORCH_CUDA_ARCH_LIST"] = "8.9"
import torch
from torch.utils.cpp_extension import load_inline
cuda = r'''
template <typename T> __global__ void add_kernel(const T* a, const T* b, T* c, int64_t n) {
  int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}
torch::Tensor add(torch::Tensor a, torch::Tensor b) {
  auto c = torch::empty_like(a);
  if (!a.is_cuda()) return at::add(a, b);
  add_kernel<float><<<(a.numel() + 255) / 256, 256>>>(
      a.data_ptr<float>(), b.data_ptr<float>(), c.data_ptr<float>(), a.numel());
  return c;
}
'''
module = load_inline("adder", "torch::Tensor add(torch::Tensor a, torch::Tensor b);", cuda, functions=["add"])
a, b = torch.randn(9), torch.randn(9)
assert torch.equal(module.add(a, b), a + b)
print(module.__file__)
"""
QUIET = {"TORCH_CPP_LOG_LEVEL": "ERROR"}


@pytest.mark.timeout(400)
def test_torch_compile_and_kernel(run: Any, facts: dict[str, Any], user: tuple[dict[str, Any], str]) -> None:
    settings, who = user
    kernel = KERNEL if facts["target"] == "devel" else ""
    done = run("python", "-c", COMPILE + kernel + 'print(f"{os.getuid()}:{os.getgid()}")', **settings)
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert lines[0] == "compiled in /workspace/.cache/inductor"
    assert lines[-1] == who
    if kernel:
        assert lines[1].startswith("built in /workspace/.cache/torch_extensions/")


@pytest.mark.timeout(400)
def test_torch_extension(run: Any, facts: dict[str, Any]) -> None:
    """An extension with torch's headers, pybind11 and a kernel for sm_89: built and loaded on a machine with no GPU."""
    if facts["target"] != "devel":
        pytest.skip("the target runtime has no nvcc")
    listing = "subprocess.run(['cuobjdump', '--list-elf', module.__file__], check=True)"
    script = f"{EXTENSION}\nimport subprocess, sys\nsys.stdout.flush()\n{listing}"
    done = run("python", "-c", script, environment={"PUID": "1000"})
    assert done.code == 0, done.err
    assert done.out.startswith("/workspace/.cache/torch_extensions/")
    assert "sm_89" in done.out


@pytest.mark.timeout(400)
def test_read_only_container_compiles_with_an_exec_tmpfs(run: Any) -> None:
    settings = {"read_only": True, "tmpfs": {"/tmp": "exec"}, "user": "12345:12345"}
    done = run("python", "-c", COMPILE, **settings)
    assert done.code == 0, done.err
    assert done.out == "compiled in /tmp/workspace-12345/cache/inductor\n"
    assert "noexec" not in done.err


@pytest.mark.timeout(400)
def test_warning_about_noexec_is_true(run: Any) -> None:
    """With Docker's default tmpfs the sentence comes, and torch.compile really fails."""
    done = run("python", "-c", COMPILE, read_only=True, tmpfs={"/tmp": ""})
    assert done.code == 1
    assert "use --tmpfs /tmp:exec" in done.err
    assert "failed to map segment from shared object" in done.err


@pytest.mark.timeout(400)
def test_quick_check(run: Any) -> None:
    done = run("python", "scripts/quick_check.py")
    assert done.code == 1  # no GPU was given
    assert done.out.splitlines()[-1] == "Not ready: everything works, but on the CPU, because there is no GPU here."
    for word in ("runtime CUDA   12.8", "driver CUDA    none", "toolkit", "matmul", "torch.compile"):
        assert word in done.out


def test_extension_from_sources_with_setuptools(run: Any) -> None:
    """In both targets: no name of a compiler that Python asks for is missing."""
    done = run("python", "-c", SETUPTOOLS, environment={"PUID": "1000"})
    assert done.code == 0, done.err
    assert done.out.splitlines()[-1] == "built with setuptools"
