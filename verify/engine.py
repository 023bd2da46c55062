"""The Docker engine as the host's commands see it: connect to it, and say in one sentence what went wrong with it.

The Docker SDK is imported inside functions: the image, which carries this file too, does not have it.
"""

from __future__ import annotations

import os
import re
import sys
from typing import Any

from verify.core import UsageError

NO_SDK = (
    "The Docker SDK for Python is not installed in {python}, so no container can be started from here: "
    "`make verify` sets up an environment that has it, or install the package docker (7.1 or newer)."
)
# What Docker's text contains → what it means and what to do. The first that fits counts; {0} is the first group.
FAILURES: tuple[tuple[str, str], ...] = (
    (
        r"permission ?(?:error|denied)(?!.*(?:OCI|exec))",
        "The Docker engine is there, but this user may not talk to it: use sudo, or add the user to the group docker "
        "(`sudo usermod -aG docker $USER`) and log in again.",
    ),
    (
        r"filenotfounderror|connection ?refused|error while fetching server api version|cannot connect to the docker",
        "No Docker engine answers at {socket}, so no container can be started: start it (`sudo systemctl start "
        "docker`), run `bash docker/engine.sh` on a bare Debian or Ubuntu machine, or set DOCKER_HOST.",
    ),
    (
        r"no such image|imagenotfound|pull access denied",
        "There is no image {image} on this machine: build it with `make image`, or name another with --image.",
    ),
    (
        r"could not select device driver \"cdi\"",
        "Docker's support for CDI is switched off, so it cannot hand over the GPUs: set "
        '"features": {{"cdi": true}} in /etc/docker/daemon.json and restart Docker.',
    ),
    (
        r"could not select device driver",
        "Docker cannot hand over the GPUs of this host, because the NVIDIA Container Toolkit is missing or Docker was "
        "not restarted after its installation: install nvidia-container-toolkit, run `sudo nvidia-ctk runtime "
        "configure --runtime=docker` and restart Docker, or check without the GPU with --gpus none.",
    ),
    (
        r"unknown or invalid runtime name:? ?\"?(\w+)",
        "This Docker engine knows no runtime {0}, because its daemon.json has no entry for it or Docker was not "
        "restarted: run `sudo nvidia-ctk runtime configure --runtime=docker` and restart Docker.",
    ),
    (
        r"(?:.*unresolvable CDI devices? ([^\s:,]+)|.*inject.{0,20}CDI|.*CDI.{0,40}(?:inject|failed))",
        "Docker cannot resolve the CDI device {0}, because the CDI description of the GPUs is missing or older than "
        "the driver: run `sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`.",
    ),
    (
        r"unsatisfied condition: ([^\s,]+)",
        "The driver of this host does not meet the image's condition {0}: update the NVIDIA driver (550 or newer).",
    ),
    (
        r"nvidia-container-cli: (?:initialization error: |mount error: )*([^\n]+?)(?:: unknown)?\.?(?:\n|$)",
        "NVIDIA's container tool cannot reach the driver of this host ({0}): reboot, or reload the nvidia kernel "
        "modules, so that the driver's libraries and its kernel module are of one version.",
    ),
    (
        r"no space left on device",
        "The disk below Docker's folder is full, so the container cannot be started: make room "
        "(`docker system df` shows where it went, `docker system prune` gives it back).",
    ),
    (
        r"cannot allocate memory|out of memory",
        "This host has too little free memory to start the container: end other programs, or take a larger machine.",
    ),
    (
        r"(?:exec|stat) \S*(?:tini|entrypoint|timeout)\S*: no such file",
        "The image {image} is none of this project, because its start program is missing: build it with `make image`.",
    ),
    (
        r"timed out|readtimeout",
        "The Docker engine did not answer in time: see `systemctl status docker`, and try again when it is less busy.",
    ),
)


def explain(text: str, *, image: str = "", socket: str = "") -> str:
    """One sentence for Docker's own words: what failed, why, the fix. Of unknown text the first line is passed on."""
    for pattern, sentence in FAILURES:
        if found := re.search(pattern, text, re.IGNORECASE | re.DOTALL):
            detail = next((g for g in found.groups() if g), "the GPU")
            return sentence.format(detail, image=image, socket=socket or "its socket")
    line = next((part.strip() for part in text.splitlines() if part.strip()), "no reason given").rstrip(".")
    return f"Docker could not start {image or 'the container'}: {line}; `docker info` shows whether the engine is well."


def sdk() -> Any:
    """The Docker SDK. A folder named docker beside us imports as an empty namespace when the SDK is missing."""
    try:
        import docker
    except ImportError:
        docker = None
    if not hasattr(docker, "from_env"):
        raise UsageError(NO_SDK.format(python=sys.executable))
    return docker


def connect(timeout: float = 60) -> Any:
    """A client of the engine that DOCKER_HOST or the default socket names, seen to answer; `timeout` in seconds."""
    socket = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    docker = sdk()
    try:
        client = docker.from_env(timeout=timeout)
        client.ping()
    except (docker.errors.DockerException, OSError) as error:
        raise UsageError(explain(describe(error), socket=socket)) from error
    return client


def describe(error: BaseException) -> str:
    """The text of an error and of what caused it: the SDK wraps the socket's errors several times."""
    parts: list[str] = []
    seen: BaseException | None = error
    while seen is not None and len(parts) < 8:
        parts.append(f"{type(seen).__name__}: {getattr(seen, 'explanation', None) or seen}")
        seen = seen.__cause__ or seen.__context__
    return "\n".join(parts)
