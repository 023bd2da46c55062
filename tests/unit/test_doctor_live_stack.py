"""More failures made for real: siblings of another torch, and device files in a private /dev. Nothing is downloaded."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.unit import test_doctor_live as live
from tests.unit.test_doctor_live import SOURCES, STACK, Build, named, needs_gcc, needs_mounts, needs_stack, run

build = live.build  # the fixture

# A /dev of our own with NVIDIA's device files as plain files, which open well; nothing of it is seen outside.
OWN_DEV = """
set -e
mount -t tmpfs tmpfs /mnt
for name in null zero random urandom; do touch /mnt/$name; mount --bind /dev/$name /mnt/$name; done
touch /mnt/nvidia0 /mnt/nvidiactl /mnt/nvidia-uvm
mount --rbind /mnt /dev
mount -t tmpfs tmpfs /proc/driver
mkdir /proc/driver/nvidia
echo 'NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.90.07' >/proc/driver/nvidia/version
exec "$@"
"""

needs_devices = pytest.mark.skipif(
    not live.possible("unshare", "-rm", "sh", "-c", OWN_DEV, "sh", "true"), reason="a private /dev is not allowed here"
)


def with_stub(build: Build, folder: Path, package: str, extension: str) -> Path:
    """A copy of an installed package, by links, whose `extension` was built for torch 2.7."""
    where = subprocess.run(
        [STACK, "-c", f"import importlib.util as u; print(u.find_spec('{package}').submodule_search_locations[0])"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    site = Path(where.stdout.strip())
    lib = site.parent / "torch" / "lib"
    copy = folder / package
    copy.mkdir(parents=True)
    for entry in site.iterdir():
        if entry.name != extension:
            (copy / entry.name).symlink_to(entry)
    symbol = "_ZN3c104cuda9SetDeviceEa"
    source = f"extern void {symbol}(signed char); void go(void) {{ {symbol}(0); }}"
    linked = (f"-L{lib}", "-Wl,--no-as-needed,-z,now", "-lc10", "-lc10_cuda", "-ltorch_cpu")
    made = build(source, f"{package}_stub.so", *linked)
    made.rename(copy / extension)
    return folder


@needs_stack
@needs_gcc
@pytest.mark.parametrize(
    ("package", "extension", "code", "idents"),
    [
        ("torchvision", "_C.so", "import torchvision", ("torchvision-mismatch",)),
        ("xformers", "_C.so", "import xformers, xformers.ops", ("xformers-not-loadable",)),
    ],
)
def test_sibling_of_another_torch(
    build: Build, tmp_path: Path, package: str, extension: str, code: str, idents: tuple[str, ...]
) -> None:
    folder = with_stub(build, tmp_path / "site", package, extension)
    assert named(run(STACK, "-c", code, PYTHONPATH=str(folder))) in idents


@needs_stack
def test_triton_without_what_torch_asks_of_it() -> None:
    code = (
        "import triton.compiler.compiler as c; del c.triton_key\n"
        "from torch.utils._triton import triton_hash_with_backend as f; f()"
    )
    assert named(run(STACK, "-c", code)) == "triton-mismatch"


@needs_stack
@needs_mounts
def test_home_that_cannot_be_written() -> None:
    code = "from triton.runtime.cache import get_cache_manager as g; g('a' * 64).put('kernel', 'name')"
    shell = 'mount -t tmpfs -o ro tmpfs /mnt && exec "$@"'
    said = run("unshare", "-rm", "sh", "-c", shell, "sh", STACK, "-c", code, HOME="/mnt", TRITON_CACHE_DIR="")
    assert named(said) in ("cache-not-writable", "read-only")


def doctor(library: Path, **env: str) -> list[str]:
    """The ids `verify doctor` names in a container that has device files, and of the driver `library` alone."""
    argv = ("unshare", "-rm", "sh", "-c", OWN_DEV, "sh", STACK, "-m", "verify", "doctor", "--json")
    said = run(*argv, LD_LIBRARY_PATH=str(library.parent), VERIFY_REQUIRE="none", **env)
    return [f["id"] for f in json.JSONDecoder().raw_decode(said[said.index("{") :])[0]["findings"]]


@needs_stack
@needs_gcc
@needs_devices
def test_device_files_with_half_of_the_drivers_libraries(build: Build) -> None:
    library = build(SOURCES / "nvml.c", "lib/libnvidia-ml.so.1", "-Wl,-soname,libnvidia-ml.so.1")
    assert doctor(library, FAKE_NVML="0")[0] == "driver-capability-missing"


@needs_stack
@needs_gcc
@needs_devices
def test_number_of_the_host_in_a_container_with_one_gpu(build: Build) -> None:
    driver = build(SOURCES / "driver.c", "lib/libcuda.so.1", "-Wl,-soname,libcuda.so.1")
    build(SOURCES / "nvml.c", "lib/libnvidia-ml.so.1", "-Wl,-soname,libnvidia-ml.so.1")
    env = {"FAKE_CUINIT": "100", "FAKE_NVML": "0", "CUDA_VISIBLE_DEVICES": "6"}
    assert doctor(driver, **env)[0] == "visible-devices-select-nothing"
