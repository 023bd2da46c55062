"""The Docker engine as the host's commands see it: connect to it, and say in one sentence what went wrong with it.

The Docker SDK is imported inside functions: the image, which carries this file too, does not have it.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from verify.core import UsageError

NO_SDK = (
    "The Docker SDK for Python is not installed in {python}, so no container can be started from here: "
    "`make verify` sets up an environment that has it, or install the package docker (7.1 or newer)."
)


def explain(text: str, *, image: str = "", socket: str = "") -> str:
    """One sentence for Docker's own words: what failed, why, the fix. Of unknown text the first line is passed on."""
    from verify.doctor.catalogue import launch_entries
    from verify.doctor.matcher import sentence

    if said := sentence(text, launch_entries(), {"image": image, "socket": socket}):
        return said
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


def connect(timeout: float = 60, host: str = "") -> Any:
    """A client of the engine at `host` (default: DOCKER_HOST, else the default socket), seen to answer.

    `timeout` in seconds. ssh:// goes through the ssh program, with the person's own configuration.
    """
    socket = host or os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    docker = sdk()
    try:
        client = docker.from_env(
            timeout=timeout,
            environment={**os.environ, "DOCKER_HOST": socket},
            use_ssh_client=socket.startswith("ssh://"),
        )
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
