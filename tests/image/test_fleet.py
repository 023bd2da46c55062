"""docker/fleet/swarm.sh on a real Swarm of this one engine, which is left again whatever happens. Takes 15 s."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from verify.core import Run
from verify.report import fleet

ROOT = Path(__file__).parents[2]
Swarm = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def swarm(client: Any, image: Any) -> Iterator[Swarm]:
    """Runs swarm.sh on a Swarm made for it; an engine that is in one already is left alone."""
    if client.info()["Swarm"]["LocalNodeState"] != "inactive":
        pytest.skip("This engine is part of a Swarm: it is not used for tests.")
    before = {network.name for network in client.networks.list()}
    client.swarm.init(advertise_addr="127.0.0.1", listen_addr="127.0.0.1:2377")

    def run(folder: Path, *words: str, name: str = image.attrs["asked"]) -> subprocess.CompletedProcess[str]:
        command = ["bash", str(ROOT / "docker/fleet/swarm.sh"), name, str(folder), "--", *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)

    try:
        yield run
        assert client.services.list() == []
    finally:
        client.swarm.leave(force=True)
        for network in client.networks.list():
            if network.name == "docker_gwbridge" and network.name not in before:
                with suppress(Exception):
                    network.remove()


def test_outside_a_swarm_it_says_what_to_do(client: Any, tmp_path: Path) -> None:
    if client.info()["Swarm"]["ControlAvailable"]:
        pytest.skip("This engine is a manager just now.")
    words = ["bash", str(ROOT / "docker/fleet/swarm.sh"), "a:1", str(tmp_path / "nodes")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "docker swarm init" in done.stderr
    assert not (tmp_path / "nodes").exists()


def test_each_node_gives_one_report(swarm: Swarm, client: Any, tmp_path: Path) -> None:
    done = swarm(tmp_path / "nodes", "run", "image")
    assert done.returncode == 0, done.stderr
    assert "1 of 1 nodes are done" in done.stderr
    ((name, run),) = fleet.read(map(str, (tmp_path / "nodes").glob("*.json")))
    assert name == client.info()["Name"]
    assert isinstance(run, Run)
    assert run.complete
    assert {r.id.partition(".")[0] for r in run.results} == {"image"}
    assert "1 node: 1 PASS." in fleet.render([(name, run)])


def test_node_that_fails_is_a_failure_with_its_report(swarm: Swarm, tmp_path: Path) -> None:
    done = swarm(tmp_path / "nodes", "run", "visibility", "--require", "gpu")
    assert done.returncode == 1
    assert "non-zero exit (1)" in done.stderr
    assert fleet.render(fleet.read(map(str, (tmp_path / "nodes").glob("*.json")))).startswith("1 node: 1 FAIL.")


def test_node_without_a_report_is_named(swarm: Swarm, tmp_path: Path) -> None:
    done = swarm(tmp_path / "nodes", "run", "nonesuch")
    assert done.returncode == 1
    nodes = fleet.read(map(str, (tmp_path / "nodes").glob("*.json")))
    assert [isinstance(run, str) for _, run in nodes] == [True]
    (log,) = (tmp_path / "nodes").glob("*.log")
    assert "There is no check or check file called 'nonesuch'" in log.read_text()


def test_image_that_no_node_can_have_ends(swarm: Swarm, tmp_path: Path) -> None:
    done = swarm(tmp_path / "nodes", "run", name="127.0.0.1:1/none:1")
    assert done.returncode == 1
    assert "No such image" in done.stderr
    assert len(list((tmp_path / "nodes").glob("*.json"))) == 1


def test_old_reports_are_not_mixed_with_new_ones(swarm: Swarm, tmp_path: Path) -> None:
    (tmp_path / "old.json").write_text("{}")
    done = swarm(tmp_path, "run", "image")
    assert done.returncode == 2
    assert "holds reports already" in done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["old.json"]
