import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit import elfbuilder as make
from verify import loader
from verify.checks import libraries
from verify.core import Status
from verify.machine import Machine, Python

NEW_ABI = "_ZN3c105ErrorC2ENS_14SourceLocationENSt7__cxx1112basic_stringIcE"
OLD_ABI = "_ZN3c105ErrorC2ENS_14SourceLocationESs"
SET_DEVICE = "_ZN3c104cuda9SetDeviceEab"
EMPTY = "_ZN2at4_ops5empty4callEv"


def lib(path: Path, **what: object) -> Path:
    return make.write(path, make.shared_object(**what))  # type: ignore[arg-type]


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A small torch with one CUDA library, and an extension module made for it."""
    root = (tmp_path / "site").resolve()
    torch = root / "torch"
    lib(torch / "lib" / "libc10.so", soname="libc10.so", defined=(NEW_ABI, SET_DEVICE))
    lib(torch / "lib" / "libtorch_cpu.so", soname="libtorch_cpu.so", defined=(EMPTY,))
    lib(
        torch / "lib" / "libtorch_cuda.so",
        soname="libtorch_cuda.so",
        needed=("libcublas.so.12", "libc10.so"),
        rpath="$ORIGIN/../../nvidia/cublas/lib:$ORIGIN",
        undefined=("cublasCreate_v2", SET_DEVICE),
    )
    lib(torch / "lib" / "libtorch_global_deps.so", needed=("libcublas.so.12",), rpath="$ORIGIN/../../nvidia/cublas/lib")
    needed = ("libtorch_cpu.so", "libtorch_cuda.so", "libc10.so")
    lib(torch / "_C.cpython-311-x86_64-linux-gnu.so", needed=needed, rpath="$ORIGIN/lib", undefined=("PyDict_New",))
    cublas = root / "nvidia" / "cublas" / "lib"
    lib(cublas / "libcublas.so.12", soname="libcublas.so.12", defined=("cublasCreate_v2",))
    lib(root / "ext" / "_C.so", needed=("libtorch_cpu.so", "libc10.so"), undefined=(EMPTY, SET_DEVICE, NEW_ABI))
    make.write(root / "ext-1.0.dist-info" / "RECORD", b"ext/_C.so,,\n")
    return root


def machine(site: Path, **fields: object) -> Machine:
    return Machine(python=Python(site=str(site), packages={"torch": "2.8.0"}, torch_cuda="12.8"), **fields)  # type: ignore[arg-type]


IMAGE_CHECKS: tuple[Callable[[Machine], object], ...] = (
    libraries.needed_libraries_are_found,
    libraries.system_libraries_are_new_enough,
    libraries.torch_symbols_are_defined,
    libraries.extensions_were_built_for_this_torch,
    libraries.extensions_share_the_cxx_abi,
    libraries.torch_uses_its_own_libraries,
)


def test_a_good_stack_is_silent(site: Path):
    outcomes = [check(machine(site)) for check in IMAGE_CHECKS]
    assert [(o.status, o.message) for o in outcomes if o.status is not Status.PASS] == []


def only_bad(site: Path, expected: Callable[[Machine], object]) -> str:
    """Runs every check, asserts that just this one fails, and gives its message and hint."""
    outcomes = {check: check(machine(site)) for check in IMAGE_CHECKS}
    bad = [check for check, outcome in outcomes.items() if outcome.status not in (Status.PASS, Status.SKIP)]
    assert bad == [expected]
    outcome = outcomes[expected]
    assert outcome.status is Status.FAIL
    assert outcome.hint
    return f"{outcome.message} {outcome.hint}"


def test_a_missing_wheel_is_named(site: Path):
    (site / "nvidia" / "cublas" / "lib" / "libcublas.so.12").unlink()
    said = only_bad(site, libraries.needed_libraries_are_found)
    assert "torch/lib/libtorch_cuda.so needs libcublas.so.12" in said
    assert "nvidia-cublas-cu12" in said
    assert libraries.torch_symbols_are_defined(machine(site)).status is Status.SKIP


def test_what_is_expected_to_be_missing_is_not_reported(site: Path):
    lib(site / "bitsandbytes" / "libbitsandbytes_cuda118.so", needed=("libcublas.so.11",))
    lib(site / "bitsandbytes" / "libbitsandbytes_rocm64.so", needed=("libhipblas.so.2",))
    lib(site / "torch" / "lib" / "libcaffe2_nvrtc.so", needed=("libcuda.so.1",))
    lib(site / "torio" / "lib" / "libtorio_ffmpeg6.so", needed=("libavutil.so.58",))
    lib(site / "torchaudio" / "lib" / "libtorchaudio.so")
    lib(site / "torchaudio" / "lib" / "_torchaudio.so", needed=("libtorchaudio.so",))
    assert libraries.needed_libraries_are_found(machine(site)).status is Status.PASS


def test_a_private_library_lives_on_the_rpath_of_the_module_that_brings_it(site: Path):
    libs = site / "scipy.libs"
    lib(libs / "libgfortran.so.5", soname="libgfortran.so.5", needed=("libquadmath.so.0",))
    lib(libs / "libquadmath.so.0", soname="libquadmath.so.0")
    lib(site / "scipy" / "_m.so", needed=("libgfortran.so.5",), rpath="$ORIGIN/../scipy.libs")
    assert libraries.needed_libraries_are_found(machine(site)).status is Status.PASS


def test_libraries_that_only_need_each_other_are_judged_too(site: Path):
    lib(site / "a" / "liba.so", soname="liba.so", needed=("libb.so", "libgone.so"), rpath="$ORIGIN")
    lib(site / "a" / "libb.so", soname="libb.so", needed=("liba.so",), rpath="$ORIGIN")
    assert "a/liba.so needs libgone.so" in only_bad(site, libraries.needed_libraries_are_found)


def test_the_bitsandbytes_library_of_this_cuda_must_load(site: Path):
    lib(site / "bitsandbytes" / "libbitsandbytes_cuda128.so", needed=("libnothere.so.12",))
    assert "libbitsandbytes_cuda128.so" in only_bad(site, libraries.needed_libraries_are_found)


def test_a_module_built_on_a_newer_distribution(site: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    versions = {"libc.so.6": ("GLIBC_2.17", "GLIBC_2.99"), "libother.so": ("OTHER_1",)}
    lib(site / "ext" / "_C.so", versions=versions)
    libc = make.write(tmp_path / "libc.so.6", make.shared_object() + b"\0GLIBC_2.17\0GLIBC_2.36\0")
    real = loader.present_search
    monkeypatch.setattr(
        loader, "present_search", lambda *a, **k: dataclasses.replace(real(*a, **k), cache={"libc.so.6": str(libc)})
    )
    said = only_bad(site, libraries.system_libraries_are_new_enough)
    assert "libc.so.6 GLIBC_2.99 (for ext/_C.so)" in said
    assert "GLIBC_2.17" not in said
    assert "build of ext" in said


def test_a_library_of_another_version_shows_by_its_symbols(site: Path):
    lib(site / "nvidia" / "cublas" / "lib" / "libcublas.so.12", soname="libcublas.so.12", defined=("cublasCreate_v1",))
    said = only_bad(site, libraries.torch_symbols_are_defined)
    assert "cublasCreate_v2" in said


def test_an_old_nvjitlink_names_its_wheel(site: Path):
    cublas = site / "nvidia" / "cublas" / "lib" / "libcublas.so.12"
    lib(cublas, soname="libcublas.so.12", defined=("cublasCreate_v2",), undefined=("__nvJitLinkCreate_12_8",))
    said = only_bad(site, libraries.torch_symbols_are_defined)
    assert "__nvJitLinkCreate_12_8" in said
    assert "nvidia-nvjitlink-cu12" in said


@pytest.mark.parametrize(
    ("symbol", "torch"),
    [
        ("_ZN3c104cuda9SetDeviceEa", "torch 2.3 to 2.7"),
        ("_ZN3c104cuda9SetDeviceEi", "torch 2.2 or older"),
        ("_ZN3c104cuda29c10_cuda_check_implementationEiPKcS2_jb", "torch 2.10 or newer"),
        ("_ZNK5torch4nn99E", ""),
    ],
)
def test_an_extension_for_another_torch_tells_which(site: Path, symbol: str, torch: str):
    lib(site / "ext" / "_C.so", needed=("libc10.so",), undefined=(symbol, EMPTY))
    said = only_bad(site, libraries.extensions_were_built_for_this_torch)
    assert symbol in said
    assert torch in said
    assert "ext for torch 2.8.0" in said, "the hint names the wheel"


def test_whole_names_are_compared(site: Path):
    # …SetDeviceEa is the beginning of …SetDeviceEab, which this torch has.
    lib(site / "ext" / "_C.so", needed=("libc10.so",), undefined=("_ZN3c104cuda9SetDeviceEa",))
    assert "torch 2.3 to 2.7" in only_bad(site, libraries.extensions_were_built_for_this_torch)


def test_symbols_an_extension_brings_itself_are_not_missing(site: Path):
    own = "_ZN5torch3extE"
    lib(site / "ext" / "_C.so", needed=("libext.so",), runpath="$ORIGIN", undefined=(own,))
    lib(site / "ext" / "libext.so", soname="libext.so", defined=(own,))
    assert libraries.extensions_were_built_for_this_torch(machine(site)).status is Status.PASS


def test_the_old_string_abi_is_its_own_finding(site: Path):
    lib(site / "ext" / "_C.so", needed=("libc10.so",), undefined=(OLD_ABI,))
    said = only_bad(site, libraries.extensions_share_the_cxx_abi)
    assert "old string ABI" in said
    assert "cxx11abiTRUE" in said


def test_the_new_string_abi_on_an_old_torch(site: Path):
    lib(site / "torch" / "lib" / "libc10.so", soname="libc10.so", defined=(OLD_ABI, SET_DEVICE))
    outcome = libraries.extensions_share_the_cxx_abi(machine(site))
    assert outcome.status is Status.FAIL
    assert "cxx11abiFALSE" in outcome.hint


def test_torch_served_from_outside_its_wheels(site: Path, tmp_path: Path):
    (site / "nvidia" / "cublas" / "lib" / "libcublas.so.12").unlink()
    outside = tmp_path / "toolkit"
    lib(outside / "libcublas.so.12", soname="libcublas.so.12", defined=("cublasCreate_v2",))
    torch = site / "torch" / "lib"
    lib(torch / "libtorch_global_deps.so", needed=("libcublas.so.12",), rpath=str(outside))
    needed = ("libcublas.so.12", "libc10.so")
    lib(torch / "libtorch_cuda.so", soname="libtorch_cuda.so", needed=needed, rpath=f"{outside}:$ORIGIN")
    said = only_bad(site, libraries.torch_uses_its_own_libraries)
    assert str(outside) in said


def test_two_versions_in_one_process_are_a_warning_and_private_copies_are_not(site: Path):
    private = site / "vision.libs" / "libcudart.e8e8b82a.so.12"
    lib(private, soname="libcudart.e8e8b82a.so.12")
    lib(site / "vision" / "_C.so", needed=(private.name,), runpath="$ORIGIN/../vision.libs")
    lib(site / "nvidia" / "rt" / "libcudart.so.12", soname="libcudart.so.12")
    lib(site / "ext" / "_C.so", needed=("libcudart.so.12",), runpath="$ORIGIN/../nvidia/rt")
    assert libraries.torch_uses_its_own_libraries(machine(site)).status is Status.PASS
    lib(site / "nvidia" / "old" / "libcudart.so.11.0", soname="libcudart.so.11.0")
    lib(site / "old" / "_C.so", needed=("libcudart.so.11.0",), runpath="$ORIGIN/../nvidia/old")
    libraries._read_stack.cache_clear()
    outcome = libraries.torch_uses_its_own_libraries(machine(site))
    assert outcome.status is Status.WARN
    assert "old/_C.so" in outcome.message
    assert outcome.hint


def test_a_recorded_machine_is_not_judged_by_this_ones_files(site: Path):
    for check in IMAGE_CHECKS:
        assert check(machine(site, recorded=True)).status is Status.SKIP
