"""What the image says about itself and what is in it: labels, environment, packages, files."""

from __future__ import annotations

import re
from typing import Any

import pytest

UNSET = (
    "LD_LIBRARY_PATH LD_PRELOAD PYTHONPATH PYTHONHOME CUDA_VISIBLE_DEVICES TORCH_CUDA_ARCH_LIST TRITON_PTXAS_PATH "
    "TORCHDYNAMO_DISABLE TORCH_COMPILE_DISABLE TORCHDYNAMO_SUPPRESS_ERRORS MAX_JOBS VERIFY_REQUIRE JUPYTER_TOKEN "
    "NVIDIA_DISABLE_REQUIRE DEBIAN_FRONTEND HTTP_PROXY HTTPS_PROXY NO_PROXY ALL_PROXY http_proxy https_proxy no_proxy "
    "all_proxy FTP_PROXY ftp_proxy PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_TRUSTED_HOST PIP_CERT UV_INDEX_URL "
    "UV_DEFAULT_INDEX UV_INDEX SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE CURL_CA_BUNDLE GIT_SSL_CAINFO "
    "NODE_EXTRA_CA_CERTS APT_MIRROR REGISTRY_MIRROR HF_ENDPOINT HF_TOKEN"
)
SET = {
    "NVIDIA_VISIBLE_DEVICES": "all",
    "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
    "NVIDIA_REQUIRE_CUDA": "cuda>=12.4",
    "LANG": "C.UTF-8",
    "VIRTUAL_ENV": "/opt/venv",
    "HF_HOME": "/workspace/.cache/huggingface",
    "PIP_CACHE_DIR": "/workspace/.cache/pip",
    "TORCHINDUCTOR_CACHE_DIR": "/workspace/.cache/inductor",
    "TRITON_CACHE_DIR": "/workspace/.cache/triton",
    "XDG_CACHE_HOME": "/workspace/.cache",
}
PACKAGES = "ca-certificates tini git curl rsync less procps openssh-client openssh-server"
COMMANDS = "python jupyter tensorboard verify gcc g++ cc c++ git curl rsync less ps ssh setpriv ninja"
HEADERS = (
    "cuda_runtime.h cuda.h cuda_fp16.h cuda_bf16.h cublas_v2.h cusparse.h cusolverDn.h curand.h nvrtc.h "
    "nvtx3/nvToolsExt.h cub/cub.cuh thrust/version.h cuda/std/atomic"
)
NEEDS_NVCC = "the target runtime has no toolkit"


@pytest.fixture(scope="session")
def toolkit(facts: dict[str, Any]) -> str:
    if facts["target"] != "devel":
        pytest.skip(NEEDS_NVCC)
    return str(facts["toolkit"])


@pytest.fixture(scope="session")
def environment(image: Any) -> dict[str, str]:
    return dict(line.split("=", 1) for line in image.attrs["Config"]["Env"])


@pytest.mark.parametrize("name", UNSET.split())
def test_environment_leaves_unset(environment: dict[str, str], name: str) -> None:
    assert name not in environment


@pytest.mark.parametrize(("name", "value"), SET.items())
def test_environment_sets(environment: dict[str, str], name: str, value: str) -> None:
    assert environment[name] == value


def test_environment_holds_nothing_else(environment: dict[str, str], facts: dict[str, Any]) -> None:
    known = {*SET, "PATH", "CUDA_HOME"}
    if facts["base"]["name"].startswith("nvidia/"):  # NVIDIA's base has its own
        known |= {name for name in environment if name.startswith(("NV_", "NVARCH", "NVIDIA_", "CUDA_VERSION"))}
    assert set(environment) <= known
    assert ("CUDA_HOME" in environment) == (facts["target"] == "devel")
    assert "/opt/venv/bin" in environment["PATH"].split(":")[:2]


def test_labels_repeat_the_facts(image: Any, facts: dict[str, Any]) -> None:
    labels = image.labels
    prefix = "org.opencontainers.image."
    assert labels[prefix + "title"] == facts["name"]
    assert labels[prefix + "version"] == facts["version"]
    assert labels[prefix + "revision"] == facts["revision"]
    assert labels[prefix + "created"] == facts["created"]
    assert labels[prefix + "base.name"] == facts["base"]["name"]
    assert labels[prefix + "base.digest"] == facts["base"]["digest"]
    assert labels["pytorch-workspace.target"] == facts["target"]
    assert labels["pytorch-workspace.targets"].split(",") == facts["targets"]
    assert labels["pytorch-workspace.slim"] == ("on" if facts["slim"] else "off")
    assert labels["pytorch-workspace.torch"] == facts["lock"]["packages"]["torch"]
    assert labels["pytorch-workspace.xformers"] == facts["lock"]["packages"]["xformers"]
    assert labels["pytorch-workspace.flash-attn"] == facts["flash_attn"]["variant"]
    assert labels.get("pytorch-workspace.toolkit") == facts["toolkit"]


def test_facts_are_those_of_the_stack(facts: dict[str, Any]) -> None:
    assert facts["schema"] == 1
    assert facts["toolkit"] == ("12.4.131" if facts["target"] == "devel" else None)
    assert facts["driver"].startswith("550.")
    wanted = {"torch": "2.8.0", "torchvision": "0.23.0", "torchaudio": "2.8.0", "triton": "3.4.0"}
    wanted |= {"xformers": "0.0.32.post2"}
    packages = facts["lock"]["packages"]
    assert {name: packages[name] for name in wanted} == wanted
    if facts["flash_attn"]["variant"] != "none":
        assert (facts["flash_attn"]["version"], packages["flash-attn"]) == ("2.8.2", "2.8.2")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", facts["created"])


def test_installed_is_what_is_locked(box: Any, facts: dict[str, Any]) -> None:
    """Names and versions of every distribution in the environment, none more and none fewer than recorded."""
    script = "import importlib.metadata as m; print(*{d.name + ' ' + d.version for d in m.distributions()}, sep='\\n')"
    done = box(f'/opt/venv/bin/python -c "{script}"')
    found = {re.sub(r"[-_.]+", "-", n).lower(): v for n, v in (line.split() for line in done.out.splitlines())}
    found = {name: version.partition("+")[0] for name, version in found.items()}
    assert found == {name: version.partition("+")[0] for name, version in facts["lock"]["packages"].items()}


@pytest.mark.parametrize("name", PACKAGES.split())
def test_package(host: Any, name: str) -> None:
    assert host.package(name).is_installed


@pytest.mark.parametrize("name", ["sudo", "cuda-compat-12-4", "nvidia-driver-libs", "python3-pip"])
def test_no_package(host: Any, name: str) -> None:
    assert not host.package(name).is_installed


@pytest.mark.parametrize("name", COMMANDS.split())
def test_command(box: Any, name: str) -> None:
    assert box(f"command -v {name}").code == 0


def test_python_is_the_environments(host: Any, box: Any, facts: dict[str, Any]) -> None:
    assert box("command -v python").out.strip() == "/opt/venv/bin/python"
    assert box("python --version").out.strip() == f"Python {facts['python']}"
    include = box("python -c 'import sysconfig; print(sysconfig.get_path(\"include\"))'").out.strip()
    assert host.file(f"{include}/Python.h").is_file


@pytest.mark.parametrize(
    ("path", "mode"),
    [
        ("/opt/verify/entrypoint.sh", 0o755),
        ("/usr/local/bin/verify", 0o755),
        ("/etc/profile.d/workspace.sh", 0o644),
        ("/opt/verify/image.json", 0o644),
        ("/opt/verify/proven", 0o644),
        ("/opt/verify/skeleton/scripts/quick_check.py", 0o644),
    ],
)
def test_file(host: Any, path: str, mode: int) -> None:
    file = host.file(path)
    assert file.is_file
    assert (file.user, file.group, file.mode) == ("root", "root", mode)


def test_workspace_user(host: Any) -> None:
    person = host.user("workspace")
    assert (person.uid, person.gid, person.home, person.shell) == (1000, 1000, "/home/workspace", "/bin/bash")


def test_licence_texts_stay(box: Any, facts: dict[str, Any]) -> None:
    done = box("find /opt/venv /usr/local/cuda-12.4 /opt/verify -iname '*licen[sc]e*' -o -iname '*eula*' -size +0")
    names = done.out.splitlines()
    assert any("nvidia_cublas" in name for name in names)
    assert any("nvidia_cudnn" in name for name in names)
    assert any("torch-" in name for name in names)
    assert "/opt/verify/LICENSE" in names
    if facts["target"] == "devel":
        assert any(name.startswith("/usr/local/cuda-12.4/") for name in names)


def test_toolkit(host: Any, box: Any, toolkit: str) -> None:
    assert host.file("/usr/local/cuda").linked_to == "/usr/local/cuda-12.4"
    assert f"V{toolkit}" in box("nvcc --version").out
    for name in ("nvcc", "ptxas", "fatbinary", "nvlink"):
        assert box(f"test -x /usr/local/cuda/bin/{name}").code == 0, name
    assert box("find /usr/local/cuda/ -name cicc -perm -1 | grep .").code == 0
    assert box("find /usr/local/cuda/ -name 'libdevice*.bc' | grep .").code == 0
    assert box("ls /usr/local/cuda/lib64/libcudart.so /usr/local/cuda/lib64/libcudart_static.a").code == 0


@pytest.mark.parametrize("header", HEADERS.split())
def test_toolkit_header(host: Any, toolkit: str, header: str) -> None:
    assert toolkit
    assert host.file(f"/usr/local/cuda/include/{header}").is_file


def test_runtime_has_no_toolkit(box: Any, facts: dict[str, Any]) -> None:
    assert (box("command -v nvcc").code == 0) == (facts["target"] == "devel")


@pytest.mark.parametrize("library", ["cublas", "cudnn", "nccl", "cusparse", "cusolver", "cufft"])
def test_cuda_libraries_are_there_once(box: Any, library: str) -> None:
    done = box(rf"find / -xdev \( -name 'lib{library}*.so*' -o -name 'lib{library}*.a' \) -not -path '/proc/*'")
    found = done.out.splitlines()
    assert found != []
    assert [path for path in found if not path.startswith("/opt/venv/")] == []
    assert [path for path in found if path.endswith(".a")] == []


def test_no_driver_in_the_image(box: Any) -> None:
    """The driver comes from the host; one in the image would be error 803 or 804. A linker's stub is no driver."""
    found = box(r"find / -xdev \( -name 'libcuda.so*' -o -name 'libnvidia-ml.so*' \) -not -path '*/stubs/*'").out
    assert found == ""
    assert box("ls -d /usr/local/cuda*/compat /usr/lib/*/nvidia 2>/dev/null").out == ""
    assert box("ldconfig -p | grep -E 'libcuda[.]so|libnvidia-ml'").out == ""


def test_ssh_host_keys_are_not_shipped(client: Any, image: Any) -> None:
    settings = {"entrypoint": ["sh", "-c"], "remove": True}
    assert client.containers.run(image.attrs["asked"], ["ls /etc/ssh /run | grep -c key || true"], **settings) == b"0\n"
