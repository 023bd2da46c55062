"""The nightly pipeline with a real engine and a real registry on loopback, and everything that can go wrong on the way.

A small image without torch plays the product: its `verify` copies a report. `latest` has to name the last verified
digest after every fault, and the next run has to go through by itself.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from verify.nightly import delta, promotions, registry, state

ROOT = Path(__file__).parents[2]
BASES = ("bootstrapped/debian:trixie-slim", "debian:trixie-slim")
VERIFY = """#!/bin/sh
# Plays `verify run … --json F`.
sleep {sleep}
for word; do [ "$last" != --json ] || cp /report.json "$word"; last=$word; done
exit {code}
"""
PYTHON = "#!/bin/sh\nprintf 'py\\tpackage-one\\t{version}\\tMIT\\n'\n"
BUILD = (
    "docker buildx build --quiet --provenance=false --build-arg SOURCE_DATE_EPOCH=1754438400 "
    "--output type=image,name=$IMAGE,oci-mediatypes=true {folder}"
)
# "user" with the passwords "good" and "new", by bcrypt.
PASSWORDS = {
    "good": "$2a$05$abcdefghijklmnopqrstuuNF5/gKGv1vSzRBclZtmf77tbZMWqiPK",
    "new": "$2a$05$abcdefghijklmnopqrstuuPwERFOEx0ltJDSJgU/SzJ23sOz5Pmpi",
}


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """host:port of a registry with its data in `folder`."""
    address = control("start", folder)
    try:
        yield address
    finally:
        control("stop", folder)


def control(action: str, folder: Path) -> str:
    words = ["bash", str(ROOT / "docker/registry.sh"), action, str(folder)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.fail(done.stderr, pytrace=False)
    return done.stdout.strip()


@pytest.fixture(scope="module")
def shared_registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("registry")
    with serving(folder) as address:
        yield address
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def base(client: Any) -> str:
    found = {tag for image in client.images.list() for tag in image.tags}
    for name in BASES:
        if name in found:
            return name
    pytest.skip(f"None of {', '.join(BASES)} is on this machine: docker/base.sh makes one.")


@dataclass
class Pipeline:
    """A small product in `folder`, its repository, and its nights in `state`."""

    folder: Path
    base: str
    repository: str
    image: str
    state: Path
    environment: dict[str, str] = field(default_factory=dict)

    def product(self, *, version: str = "1", code: int = 0, sleep: float = 0, size: int = 1000, more: str = "") -> None:
        """Write the product's sources."""
        result = {"id": "a.b", "title": "t", "tier": "static", "about": "image", "message": "m"}
        run = {
            "schema": 1, "started": "2026-01-01T00:00:00Z", "finished": "2026-01-01T00:00:01Z", "complete": True,
            "machine": {}, "image": None, "samples": [], "results": [{**result, "status": "fail" if code else "pass"}],
        }  # fmt: skip
        (self.folder / "report.json").write_text(json.dumps(run))
        (self.folder / "verify").write_text(VERIFY.format(code=code, sleep=sleep))
        (self.folder / "python").write_text(PYTHON.format(version=version))
        (self.folder / "data").write_bytes(os.urandom(size))
        for name in ("verify", "python"):
            (self.folder / name).chmod(0o755)
        (self.folder / "Dockerfile").write_text(
            f"FROM {self.base}\nCOPY data /data\nCOPY report.json /\nCOPY python /opt/venv/bin/python\n"
            f"COPY verify /usr/local/bin/verify\nENV VERSION={version}\n{more}\n"
        )

    def words(self, action: str, *more: str) -> list[str]:
        given = ["--repository", self.repository, "--image", self.image, "--state", str(self.state)]
        given += [f"--build={BUILD.format(folder=self.folder)}", "--test=true", "--resolve="]
        return [sys.executable, "-m", "verify", "nightly", action, *given, *more]

    def start(self, *more: str) -> subprocess.Popen[str]:
        """A night in a process of its own; without a GPU's verdict unless `more` says otherwise."""
        flags = more or ("--without-gpu",)
        return subprocess.Popen(
            self.words("run", *flags),
            cwd=ROOT,
            env={**os.environ, **self.environment},
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *more: str) -> tuple[int, str]:
        """Exit code and what was said."""
        process = self.start(*more)
        said = process.communicate(timeout=120)[1]
        return process.returncode, said

    def good(self, *more: str) -> str:
        """A night that has to go through: the digest of latest after it."""
        code, said = self.run(*more)
        assert code == 0, said
        return self.latest()

    def latest(self) -> str:
        found = registry.manifest(registry.of(self.repository), "latest")
        return found.digest if found else ""

    def tag(self, name: str) -> str:
        found = registry.manifest(registry.of(self.repository), name)
        return found.digest if found else ""

    def records(self) -> list[dict[str, Any]]:
        return promotions.records(str(self.state / "promotions.jsonl"))

    def night(self) -> state.Night:
        found = state.load(self.state)
        assert found is not None
        return found


@pytest.fixture
def pipeline(client: Any, base: str, tmp_path: Path) -> Iterator[Callable[..., Pipeline]]:
    """Makes pipelines at a registry; what they left in the engine is removed."""
    made = []

    def once(address: str, **environment: str) -> Pipeline:
        name = f"tmp-nightly-{os.urandom(4).hex()}"
        folder = tmp_path / name
        folder.mkdir()
        place = tmp_path / f"{name}-state"
        made.append(Pipeline(folder, base, f"{address}/{name}", f"{name}:built", place, environment))
        made[-1].product()
        return made[-1]

    yield once
    for image in client.images.list(all=True):
        for tag in (*(image.attrs.get("RepoTags") or ()), *(image.attrs.get("RepoDigests") or ())):
            if any(one.image.partition(":")[0] in tag for one in made):
                with suppress(Exception):
                    client.images.remove(tag, force=True)


class Proxy:
    """A line to a TCP port or a socket; `allow` says how many bytes still go up before every connection is cut, and
    `word` cuts a connection that asks for it. None: all goes through."""

    def __init__(self, target: str, path: Path | None = None) -> None:
        self.target, self.allow, self.word, self.cuts = target, None, b"", 0
        self.listener = socket.socket(socket.AF_UNIX if path else socket.AF_INET)
        self.listener.bind(str(path) if path else ("127.0.0.1", 0))
        self.listener.listen(64)
        self.address = f"unix://{path}" if path else f"127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        with suppress(OSError):
            while True:
                here = self.listener.accept()[0]
                there = socket.socket(socket.AF_UNIX if "/" in self.target else socket.AF_INET)
                host, _, port = self.target.partition(":")
                try:
                    there.connect(self.target if "/" in self.target else (host, int(port)))
                except OSError:
                    here.close()
                    continue
                for pair in ((here, there, True), (there, here, False)):
                    threading.Thread(target=self.pump, args=pair, daemon=True).start()

    def pump(self, source: socket.socket, sink: socket.socket, up: bool) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                if up and self.word and self.word in data:
                    break
                if up and self.allow is not None:
                    self.allow -= len(data)
                    if self.allow < 0:
                        break
                sink.sendall(data)
            else:
                sink.shutdown(socket.SHUT_WR)
                return
            self.cuts += 1
            for end in (source, sink):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.listener.close()


@pytest.fixture
def proxied() -> Iterator[Callable[..., Proxy]]:
    made = list[Proxy]()

    def once(target: str, path: Path | None = None) -> Proxy:
        made.append(Proxy(target, path))
        return made[-1]

    yield once
    for proxy in made:
        proxy.close()


def until(what: Callable[[], Any], seconds: float = 60) -> Any:
    """Wait for something to be there."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := what():
            return found
        time.sleep(0.05)
    pytest.fail("it did not come to pass")


def test_nights_in_a_row(shared_registry: str, pipeline: Any) -> None:
    night = pipeline(shared_registry)
    first = night.good()
    date = night.night().started[:10]
    assert [night.tag(tag) for tag in (date, "2.8.0-toolkit12.4", "candidate")] == [first] * 3
    assert night.night().ended == "promoted"
    record = night.records()[0]
    assert (record["digest"], record["gpu"], record["signature"]) == (first, False, "not signed: no key was given")
    place = Path(record["verified_by"]).parent
    bill = json.loads((place / "sbom-debian.cdx.json").read_text())
    assert {"bash", "dpkg"} <= {c["name"] for c in bill["components"]}
    bill = json.loads((place / "sbom-python.cdx.json").read_text())
    assert [c["purl"] for c in bill["components"]] == ["pkg:pypi/package-one@1"]
    assert json.loads((place / "provenance.json").read_text())["subject"][0]["digest"]["sha256"] == first[7:]

    # No change: no push, no new record, no new promotion.
    code, said = night.run()
    assert (code, night.latest(), len(night.records())) == (0, first, 1)
    assert "nothing was pushed" in said
    assert "push" not in night.night().steps

    night.product(version="2")
    second = night.good()
    assert second != first
    step = night.night().steps["report"]
    report = (state.folder(night.state, night.night()) / "report.md").read_text()
    assert "| package-one | 1 | 2 |" in report
    assert "| VERSION | 1 | 2 |" in report
    assert "| /data |" in report
    assert "Debian packages" not in report
    assert "not signed" in report
    assert "WITHOUT a GPU" in report
    # The base is not pulled again: the bytes are those of the layers that changed.
    assert 0 < step.data["pulled"] < 10_000
    there = registry.of(night.repository)
    assert step.data["pulled"] <= delta.counted(there, first, second) < 30_000
    assert delta.counted(there, second, second) == 0

    assert subprocess.run(night.words("rollback", "--why", "bad"), cwd=ROOT, check=False).returncode == 0
    assert night.latest() == first
    assert night.records()[-1]["from"] == second
    code, said = night.run("--without-gpu", "--new")
    assert (code, night.latest()) == (1, first)
    assert "taken back" in said
    assert night.good("--without-gpu", "--again") == second
    done = subprocess.run(night.words("status"), cwd=ROOT, capture_output=True, text=True, check=False)
    assert "night: promoted" in done.stdout


def test_without_a_gpu_it_stops_before_promotion(shared_registry: str, pipeline: Any) -> None:
    if Path("/proc/driver/nvidia/version").exists():
        pytest.skip("This machine has a GPU.")
    night = pipeline(shared_registry)
    code, said = night.run("--keep=7")
    assert (code, night.latest()) == (2, "")
    assert "is not promoted without a GPU's verdict" in said
    built = night.night().steps["build"]
    assert night.good("--without-gpu")
    # The stages before were not done again.
    assert night.night().steps["build"] == built


def test_bad_image_is_refused(shared_registry: str, pipeline: Any) -> None:
    night = pipeline(shared_registry)
    good = night.good()
    night.product(version="2", code=1)
    code, said = night.run()
    assert (code, night.latest(), night.night().ended) == (1, good, "refused")
    assert "The stage static failed" in said
    night.product(version="3")
    assert night.good() != good


def test_one_stage_is_repeated_by_its_command(shared_registry: str, pipeline: Any) -> None:
    night = pipeline(shared_registry)
    code, said = night.run("--keep=7")
    assert code == 2
    line = next(line for line in said.splitlines() if "repeat this stage:" in line)
    words = [*shlex.split(line.partition(": ")[2]), "--without-gpu"]
    again = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    steps = night.night().steps
    assert steps["gpu"].status == "done"
    assert "promote" not in steps
    assert night.latest() == ""
    assert night.good()


def test_retention_keeps_the_newest_verified(shared_registry: str, pipeline: Any) -> None:
    night = pipeline(shared_registry)
    digests = []
    for version in ("1", "2", "3"):
        night.product(version=version)
        digests.append(night.good("--without-gpu", "--keep=2"))
    assert [bool(night.tag(digest)) for digest in digests] == [False, True, True]
    assert night.latest() == digests[2]


def test_registry_down_before(pipeline: Any, tmp_path: Path) -> None:
    folder = tmp_path / "registry"
    with serving(folder) as address:
        night = pipeline(address)
        good = night.good()
        night.product(version="2")
        control("stop", folder)
        code, said = night.run()
        assert code == 2
        assert "The stage resolve failed: The registry" in said
        control("start", folder)
        assert night.latest() == good
        assert night.good() != good


def test_push_cut_half_way(shared_registry: str, pipeline: Any, proxied: Any) -> None:
    line = proxied(shared_registry)
    night = pipeline(line.address)
    good = night.good()
    night.product(version="2", size=8 << 20)
    line.allow = 4 << 20
    code, said = night.run()
    line.allow = None
    assert code == 2
    assert line.cuts > 0
    assert "The stage push failed" in said
    assert night.latest() == good
    assert night.good() != good


def test_registry_disk_full(pipeline: Any, tmp_path: Path) -> None:
    folder = tmp_path / "registry"
    with mounted(folder / "data", "72m"), serving(folder) as address:
        night = pipeline(address)
        good = night.good()
        night.product(version="2", size=64 << 20)
        code, said = night.run()
        assert (code, night.latest()) == (2, good)
        assert "The stage push failed" in said
        subprocess.run(["mount", "-o", "remount,size=500m", str(folder / "data")], check=True)
        assert night.good() != good


@contextmanager
def mounted(folder: Path, size: str) -> Iterator[None]:
    """A small file system of its own."""
    folder.mkdir(parents=True)
    words = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    done = subprocess.run(words, capture_output=True, check=False)
    if done.returncode:
        pytest.skip("A disk that fills needs a tmpfs, and only root can mount one.")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_state_disk_full(shared_registry: str, pipeline: Any) -> None:
    night = pipeline(shared_registry)
    with mounted(night.state, "8m"):
        good = night.good()
        night.product(version="2")
        fill = night.state / "fill"
        with suppress(OSError), fill.open("wb", buffering=0) as stream:
            while True:
                stream.write(bytes(4096))
        code, said = night.run()
        assert (code, night.latest()) == (2, good)
        assert "cannot be written" in said
        assert len(night.records()) == 1
        fill.unlink()
        assert night.good() != good
        assert len(night.records()) == 2


def test_verify_killed(shared_registry: str, pipeline: Any, client: Any) -> None:
    night = pipeline(shared_registry)
    good = night.good()
    night.product(version="2", sleep=2)
    process = night.start()

    def running() -> Any:
        return [c for c in client.containers.list() if night.repository in str(c.attrs["Config"]["Image"])]

    until(running)[0].kill()
    said = process.communicate(timeout=120)[1]
    assert process.returncode == 2, said
    assert "The stage gpu failed" in said
    assert night.latest() == good
    assert night.good() != good


@pytest.mark.parametrize("stage", ["build", "gpu"])
def test_nightly_killed(shared_registry: str, pipeline: Any, stage: str) -> None:
    night = pipeline(shared_registry)
    good = night.good()
    night.product(version="2", sleep=1)
    process = night.start()
    last = {"build": "resolve", "gpu": "push"}[stage]
    until(lambda: (now := state.load(night.state)) and not now.ended and last in now.steps)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    assert night.latest() == good
    before = night.night()
    assert night.good() != good
    # It went on: what was done before was not done again.
    assert night.night().steps[last] == before.steps[last]


def test_killed_between_the_tags_and_the_record(shared_registry: str, pipeline: Any) -> None:
    night = pipeline(shared_registry)
    night.good()
    night.product(version="2")
    second = night.good()
    # As if the machine had lost power after the tags moved: neither the record nor the step is there.
    path = night.state / "promotions.jsonl"
    path.write_text(path.read_text().splitlines()[0] + "\n" + '{"kind": "prom')
    stored = night.night()
    steps = {name: step for name, step in stored.steps.items() if name not in ("promote", "prune")}
    state.save(night.state, state.replace(stored, steps=steps, ended=""))
    assert night.good() == second
    assert [r["digest"] for r in night.records()][-1] == second


def test_engine_goes_away(shared_registry: str, pipeline: Any, proxied: Any, tmp_path: Path) -> None:
    engine = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    if not engine.startswith("unix://"):
        pytest.skip("The engine is not on a socket of this machine.")
    line = proxied(engine.removeprefix("unix://"), Path(f"/tmp/nightly-{os.urandom(4).hex()}.sock"))
    night = pipeline(shared_registry, DOCKER_HOST=line.address)
    good = night.good()
    night.product(version="2")
    line.word = b"/push?"
    code, said = night.run()
    assert (code, night.latest()) == (2, good)
    assert "The stage push failed" in said
    assert line.cuts >= 3
    line.word = b""
    assert night.good() != good
    Path(line.address.removeprefix("unix://")).unlink()


def test_two_at_once(shared_registry: str, pipeline: Any) -> None:
    night = pipeline(shared_registry)
    night.product(sleep=2)
    process = night.start()
    until(lambda: state.load(night.state))
    code, said = night.run()
    assert code == 2
    assert "Another nightly is at work" in said
    first = process.communicate(timeout=120)[1]
    assert process.returncode == 0, first
    assert len(night.records()) == 1


def test_another_machine_promoted_meanwhile(shared_registry: str, pipeline: Any) -> None:
    night = pipeline(shared_registry)
    first = night.good()
    night.product(version="2")
    code, _ = night.run("--keep=7")
    assert code == 2
    place = registry.of(night.repository)
    other = registry.manifest(place, "candidate")
    assert other is not None
    body = json.dumps({**other.document, "annotations": {"other": "1"}}).encode()
    assert registry.ask(place, "PUT", "manifests/latest", body, other.media).status == 201
    theirs = night.latest()
    assert theirs not in ("", first)
    code, said = night.run()
    assert (code, night.latest()) == (1, theirs)
    assert "another one ran" in said


def test_expired_login(pipeline: Any, tmp_path: Path) -> None:
    folder, config = tmp_path / "closed", tmp_path / "docker"
    folder.mkdir()
    (folder / "htpasswd").write_text(f"user:{PASSWORDS['good']}\n")
    (folder / "config.yml").write_text(
        f'version: 0.1\nstorage: {{filesystem: {{rootdirectory: "{folder}/data"}}, delete: {{enabled: true}}}}\n'
        f'auth: {{htpasswd: {{realm: closed, path: "{folder}/htpasswd"}}}}\n'
    )
    with serving(folder) as address, pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_CONFIG", str(config))

        def login(password: str) -> None:
            words = ["docker", "login", "--username", "user", "--password-stdin", address]
            subprocess.run(words, input=password, text=True, check=True, capture_output=True)

        login("good")
        night = pipeline(address)
        good = night.good()
        night.product(version="2")
        code, _ = night.run("--keep=7")  # no GPU's verdict: it waits before the promotion
        assert code == 2
        control("stop", folder)
        (folder / "htpasswd").write_text(f"user:{PASSWORDS['new']}\n")
        control("start", folder)
        code, said = night.run()
        assert code == 2
        assert "does not let this user" in said
        login("new")
        assert night.latest() == good
        assert night.good() != good


def test_clock_jumps_back(shared_registry: str, pipeline: Any) -> None:
    night = pipeline(shared_registry)
    first = night.good()
    path = night.state / "promotions.jsonl"
    path.write_text(path.read_text().replace(night.records()[0]["when"], "2099-01-01T00:00:00+00:00"))
    stored = night.night()
    state.save(night.state, state.replace(stored, started="2099-01-01T00:00:00.000+00:00", ended=""))
    night.product(version="2")
    second = night.good()
    assert second != first
    assert "the clock stands before the last promotion" in night.night().steps["promote"].text
    # The dated tag of the first stays; order is that of the file.
    assert night.tag(stored.started[:10]) == first
    assert subprocess.run(night.words("rollback"), cwd=ROOT, capture_output=True, check=False).returncode == 0
    assert night.latest() == first


@pytest.mark.parametrize("tag", ["-x", "../x", "a b", "latest;id", "x" * 129, "latest", "candidate"])
def test_hostile_tag(shared_registry: str, pipeline: Any, tag: str) -> None:
    night = pipeline(shared_registry)
    code, said = night.run("--without-gpu", f"--tag={tag}")
    assert (code, night.latest()) == (2, "")
    assert said.count("error: ") == 1
    assert not night.state.exists()
