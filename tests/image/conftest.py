"""Containers of the built image. Nothing here builds: `make image` does. Every container and volume made is removed."""

from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest

from verify.core import UsageError
from verify.engine import connect

DEFAULT = os.environ.get("IMAGE") or "pytorch-workspace:2.8.0"
# Every way to be somebody: the arguments of a container, and the "uid:gid" the command then has.
USERS: dict[str, tuple[dict[str, Any], str]] = {
    "root": ({}, "0:0"),
    "mapped": ({"environment": {"PUID": "1234", "PGID": "5678"}}, "1234:5678"),
    "workspace": ({"environment": {"PUID": "1000"}}, "1000:1000"),
    "uid-with-group-0": ({"user": "12345:0"}, "12345:0"),
    "uid-alone": ({"user": "12345:12345"}, "12345:12345"),
}


@dataclass(frozen=True)
class Done:
    """What a command left: exit code, standard output, standard error."""

    code: int
    out: str
    err: str


Run = Callable[..., Done]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--image", default=DEFAULT, help=f"the image to test; default: $IMAGE, else {DEFAULT}")


@pytest.fixture(scope="session")
def client() -> Any:
    try:
        return connect(timeout=300)
    except UsageError as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture(scope="session")
def image(client: Any, request: pytest.FixtureRequest) -> Any:
    """The image as the engine describes it; its name is in `.attrs["asked"]`."""
    name = request.config.getoption("--image", DEFAULT)
    found = {one for tags in client.images.list() for one in tags.tags}
    if name not in found:
        pytest.fail(f"There is no image {name} on this machine: build it with `make image`.", pytrace=False)
    made = client.images.get(name)
    made.attrs["asked"] = name
    return made


@pytest.fixture(scope="session")
def facts(box: Run) -> dict[str, Any]:
    """/opt/verify/image.json."""
    found: dict[str, Any] = json.loads(box("cat /opt/verify/image.json").out)
    return found


def removed(container: Any) -> None:
    with suppress(Exception):
        container.remove(force=True, v=True)


@pytest.fixture
def create(client: Any, image: Any) -> Iterator[Callable[..., Any]]:
    """Makes containers, not started; they end by themselves after 300 s, whatever becomes of this process."""
    made = []

    def make(*command: str, files: dict[str, str] | None = None, **settings: Any) -> Any:
        words = ["timeout", "--kill-after=5", "300", *command]
        made.append(client.containers.create(image.attrs["asked"], words, **settings))
        if files:
            packed = io.BytesIO()
            with tarfile.open(fileobj=packed, mode="w") as archive:
                for path, text in files.items():
                    member = tarfile.TarInfo(path.lstrip("/"))
                    member.size, member.mode = len(text.encode()), 0o644
                    archive.addfile(member, io.BytesIO(text.encode()))
            made[-1].put_archive("/", packed.getvalue())
        return made[-1]

    yield make
    for container in made:
        removed(container)


@pytest.fixture
def run(create: Callable[..., Any]) -> Run:
    """Runs one command in a container of its own."""

    def once(*command: str, **settings: Any) -> Done:
        container = create(*command, **settings)
        container.start()
        code = container.wait(timeout=330)["StatusCode"]
        out, err = (container.logs(stdout=out, stderr=not out).decode() for out in (True, False))
        removed(container)
        return Done(code, out, err)

    return once


@pytest.fixture
def sh(run: Run) -> Run:
    """Runs one line of shell in a container of its own."""
    return lambda script, **settings: run("sh", "-c", script, **settings)


@pytest.fixture
def volume(client: Any) -> Iterator[Any]:
    """An empty volume, as `docker volume create` makes it."""
    made = client.volumes.create()
    yield made
    made.remove(force=True)


@pytest.fixture
def prepared(client: Any, image: Any, volume: Any) -> Callable[..., dict[str, Any]]:
    """Fills the volume by a line of shell run as root in it, and gives the settings of a container that has it."""
    from docker.types import Mount

    def prepare(script: str, *, target: str = "/workspace", read_only: bool = False) -> dict[str, Any]:
        # no_copy: the volume is a plain folder of the host, not a copy of what the image has at that place.
        client.containers.run(
            image.attrs["asked"],
            [script],
            entrypoint=["sh", "-ec"],
            mounts=[Mount("/volume", volume.name, no_copy=True)],
            working_dir="/volume",
            remove=True,
        )
        return {"mounts": [Mount(target, volume.name, no_copy=True, read_only=read_only)]}

    return prepare


@pytest.fixture(scope="session")
def container(client: Any, image: Any) -> Iterator[Any]:
    """One container for all that only looks; started as root with the image's defaults."""
    made = client.containers.run(image.attrs["asked"], ["sleep", "3600"], detach=True)
    yield made
    removed(made)


@pytest.fixture(scope="session")
def box(container: Any) -> Run:
    """Runs a line of shell in the shared container; `login` makes it a login shell, `user` somebody else's."""

    def execute(script: str, *, shell: tuple[str, ...] = ("sh", "-c"), user: str = "") -> Done:
        code, (out, err) = container.exec_run([*shell, script], demux=True, user=user)
        return Done(code, (out or b"").decode(errors="replace"), (err or b"").decode(errors="replace"))

    return execute


@pytest.fixture(scope="session")
def host(container: Any) -> Any:
    """testinfra's view of the shared container; nothing else here knows testinfra."""
    import testinfra

    return testinfra.get_host(f"docker://{container.id}")


@pytest.fixture(params=list(USERS))
def user(request: pytest.FixtureRequest) -> tuple[dict[str, Any], str]:
    return USERS[request.param]
