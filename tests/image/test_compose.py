"""compose.yaml: clean, closed to the network, and its services answer on a host without a GPU."""

from __future__ import annotations

import json
import os
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
Compose = Callable[..., "subprocess.CompletedProcess[str]"]
FILES = {"plain": ("compose.yaml",), "gpu": ("compose.yaml", "docker/compose.gpu.yaml")}


@pytest.fixture(scope="module")
def compose(image: Any) -> Iterator[Compose]:
    """`docker compose` in a project of its own that is taken down with its volume."""
    unset = ("JUPYTER_TOKEN", "PUID", "PGID", "WORKSPACE")
    env = {name: value for name, value in os.environ.items() if name not in unset}
    env |= {"IMAGE": image.attrs["asked"], "JUPYTER_PORT": "0", "TENSORBOARD_PORT": "0"}
    project = f"test-{uuid.uuid4().hex[:8]}"

    def call(*arguments: str, files: tuple[str, ...] = FILES["plain"], **more: str) -> subprocess.CompletedProcess[str]:
        options = [word for file in files for word in ("-f", file)]
        command = ["docker", "compose", "-p", project, *options, *arguments]
        return subprocess.run(
            command, cwd=ROOT, env=env | more, capture_output=True, text=True, timeout=300, check=False
        )

    yield call
    call("--profile", "verify", "down", "--volumes", "--timeout", "2")


def read(compose: Compose, files: tuple[str, ...]) -> dict[str, Any]:
    done = compose("--profile", "verify", "config", "--format", "json", files=files)
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, Any] = json.loads(done.stdout)["services"]
    return found


@pytest.mark.parametrize("files", FILES.values(), ids=FILES)
def test_config_is_clean(compose: Compose, files: tuple[str, ...]) -> None:
    services = read(compose, files)
    assert set(services) == {"workspace", "jupyter", "tensorboard", "verify"}
    for service in services.values():
        assert {port["host_ip"] for port in service.get("ports", ())} <= {"127.0.0.1"}
        assert [mount["target"] for mount in service["volumes"]] == ["/workspace"]
        assert int(service["shm_size"]) > 2**30
        assert "privileged" not in service
    assert services["verify"]["command"] == ["verify", "run"]


def test_only_the_override_asks_for_gpus(compose: Compose) -> None:
    plain, gpu = (read(compose, files) for files in FILES.values())
    assert not any("deploy" in service for service in plain.values())
    for name in ("workspace", "jupyter", "verify"):
        device = gpu[name]["deploy"]["resources"]["reservations"]["devices"][0]
        assert (device["capabilities"], device["driver"], device["count"]) == (["gpu"], "nvidia", -1)


def test_bake_reads_the_same_file(compose: Compose) -> None:
    command = ["docker", "buildx", "bake", "-f", "compose.yaml", "--print"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(done.stdout)["target"]["workspace"]["target"] == "devel"


def test_workspace_runs_a_command(compose: Compose) -> None:
    done = compose("run", "--rm", "-T", "workspace", "sh", "-c", "id -u; ls", PUID="1234")
    assert done.returncode == 0
    assert done.stdout.split() == ["1234", "README.md", "README.zh-CN.md", "data", "models", "output", "scripts"]


def test_verify_runs(compose: Compose) -> None:
    done = compose("run", "--rm", "-T", "verify", "verify", "list")
    assert done.returncode == 0
    assert done.stdout != ""


def answered(compose: Compose, service: str, url: str) -> str:
    """What curl says from inside, once the service listens."""
    for _ in range(120):
        done = compose("exec", "-T", service, "curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", url)
        if done.returncode == 0 and done.stdout != "000":
            return done.stdout
        time.sleep(0.5)
    return compose("logs", service).stdout


def test_jupyter_asks_for_its_token(compose: Compose) -> None:
    assert compose("up", "-d", "jupyter").returncode == 0
    api = "http://127.0.0.1:8888/api/contents"
    assert answered(compose, "jupyter", api) == "403"
    assert answered(compose, "jupyter", f"{api}?token=") == "403"
    log = compose("logs", "--no-log-prefix", "jupyter").stdout
    token = log.partition("token=")[2].split()[0]
    assert len(token) == 48
    assert answered(compose, "jupyter", f"{api}?token={token}") == "200"


def test_jupyter_takes_a_given_token(compose: Compose) -> None:
    assert compose("up", "-d", "jupyter", JUPYTER_TOKEN="a-secret", PUID="1234").returncode == 0
    api = "http://127.0.0.1:8888/api/contents"
    assert answered(compose, "jupyter", api) == "403"
    assert answered(compose, "jupyter", f"{api}?token=a-secret") == "200"
    assert "a-secret" not in compose("logs", "jupyter").stdout


def test_tensorboard_answers(compose: Compose) -> None:
    assert compose("up", "-d", "tensorboard").returncode == 0
    assert answered(compose, "tensorboard", "http://127.0.0.1:6006/") == "200"


def test_ports_are_open_to_this_machine_only(client: Any, compose: Compose) -> None:
    assert compose("up", "-d", "jupyter", "tensorboard").returncode == 0
    for service in ("jupyter", "tensorboard"):
        container = client.containers.get(compose("ps", "-q", service).stdout.strip())
        bound = [one["HostIp"] for ports in container.ports.values() for one in ports or ()]
        assert bound == ["127.0.0.1"]
