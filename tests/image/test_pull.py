"""`verify pull` with a real engine and a real registry on loopback, over a line that is cut. No product image is used:
a static program plays `timeout … verify run`. Takes 40 s."""

from __future__ import annotations

import hashlib
import io
import os
import re
import shutil
import socket
import subprocess
import tarfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from verify import cli, fetch, pull_bench
from verify.registry_push import LAYER, Blob, put_blob, put_image

ROOT = Path(__file__).parents[2]
MIB = 1 << 20
STAND_IN = (
    '#include <stdio.h>\nint main(int c, char **v) { for (int i = 0; i < c; i++) printf("<%s>", v[i]); return CODE; }\n'
)


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """host:port of a registry with its data in `folder`."""
    words = ["bash", str(ROOT / "docker/registry.sh")]
    started = subprocess.run([*words, "start", str(folder)], capture_output=True, text=True, check=False)
    if started.returncode:
        pytest.fail(started.stderr, pytrace=False)
    try:
        yield started.stdout.strip()
    finally:
        subprocess.run([*words, "stop", str(folder)], check=True)
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def registry(client: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """host:port of an empty registry."""
    with serving(tmp_path_factory.mktemp("registry")) as address:
        yield address


def packed(files: dict[str, bytes]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o755
            archive.addfile(member, io.BytesIO(content))
    return made.getvalue()


@dataclass(frozen=True)
class Made:
    """An image in the registry: its repository and tag, its digest, the bytes of its layers."""

    repository: str
    tag: str
    digest: str
    size: int


@pytest.fixture
def make(registry: str, client: Any, tmp_path: Path) -> Iterator[Any]:
    """Puts an image into the registry whose `verify` ends with `code`; what the engine got of it is removed."""
    repositories = []

    def once(code: int = 0, layers: int = 1, mib: int = 1, architecture: str = "") -> Made:
        source, program = tmp_path / "timeout.c", tmp_path / "timeout"
        source.write_text(STAND_IN.replace("CODE", str(code)))
        subprocess.run(["gcc", "-static", "-o", str(program), str(source)], check=True)
        contents = [packed({"bin/timeout": program.read_bytes()})]
        contents += [packed({f"data{n}": os.urandom(mib * MIB)}) for n in range(layers)]
        repository = f"test/pull-{os.urandom(4).hex()}"
        repositories.append(repository)
        blobs: list[Blob] = [put_blob(registry, repository, LAYER, [content]) for content in contents]
        diffs = [f"sha256:{hashlib.sha256(content).hexdigest()}" for content in contents]
        config = {
            "architecture": architecture or fetch.host_of(client.info()),
            "os": "linux",
            "config": {"Env": ["PATH=/bin"]},
        }
        digest = put_image(registry, repository, "1", blobs, diffs, config)
        return Made(repository, "1", digest, sum(blob.size for blob in blobs))

    yield once
    for image in client.images.list():
        for name in (*image.attrs["RepoTags"], *image.attrs["RepoDigests"]):
            if any(f"/{repository}" in name for repository in repositories):
                with suppress(Exception):
                    client.images.remove(name, force=True)


class Line:
    """A TCP line to the registry with a rate; it dies after `cut` bytes and is back after `away` seconds.

    `served` counts the bytes that went to the engine, before and after the cut.
    """

    def __init__(self, target: str, *, rate: float, cut: int, away: float) -> None:
        host, _, port = target.partition(":")
        self.target, self.rate, self.cut, self.away = (host, int(port)), rate, cut, away
        self.served, self.open, self.lock, self.alive = [0], set[socket.socket](), threading.Lock(), True
        self.listener = self.listen(0)
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def listen(self, port: int) -> socket.socket:
        made = socket.socket()
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Inherited by what is accepted: bytes in the kernel's buffer are lost with the line and count as served.
        made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
        made.bind(("127.0.0.1", port))
        made.listen(50)
        return made

    def accept(self) -> None:
        while self.alive:
            try:
                near, _ = self.listener.accept()
            except OSError:
                time.sleep(self.away)
                if self.alive:
                    self.listener = self.listen(int(self.address.partition(":")[2]))
                continue
            far = socket.create_connection(self.target)
            with self.lock:
                self.open |= {near, far}
            for one, other, down in ((near, far, False), (far, near, True)):
                threading.Thread(target=self.carry, args=(one, other, down), daemon=True).start()

    def carry(self, one: socket.socket, other: socket.socket, down: bool) -> None:
        with suppress(OSError):
            while part := one.recv(1 << 16):
                other.sendall(part)
                if down:
                    self.count(len(part))
        for end in (one, other):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def count(self, size: int) -> None:
        with self.lock:
            time.sleep(size / self.rate)  # under the lock: the rate is that of the line, not of a connection
            self.served[-1] += size
            if len(self.served) == 1 and self.cut and self.served[0] >= self.cut:
                self.served.append(0)
                self.drop()

    def drop(self) -> None:
        for end in (self.listener, *self.open):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.open.clear()

    def close(self) -> None:
        with self.lock:
            self.alive = False
            self.drop()


def names(client: Any, repository: str) -> list[str]:
    """The tags the engine has of a repository."""
    return [tag for image in client.images.list() for tag in image.tags if f"/{repository}:" in tag]


@pytest.mark.parametrize("code", [0, 1])
def test_pull_gives_the_digest_and_the_verdict(
    registry: str, client: Any, make: Any, capfd: pytest.CaptureFixture[str], code: int
) -> None:
    made = make(code)
    assert cli.main(["pull", f"{registry}/{made.repository}", "--gpus", "none"]) == 2
    assert f"has no {registry}/{made.repository}:latest" in capfd.readouterr().err
    assert cli.main(["pull", f"{registry}/{made.repository}:1", "--gpus", "none"]) == code
    out, err = capfd.readouterr()
    assert out == "<timeout><--kill-after=10><1800><verify><run><--tier><static>"
    assert f"{registry}/{made.repository}:1 is {made.digest}\nSignature: not signed.\n" in err
    assert f"@{made.digest} is {'good' if code == 0 else 'not good'} on this host." in err
    assert len(names(client, made.repository)) == (1 if code == 0 else 0)


def test_signature_is_required_with_a_key(
    registry: str, make: Any, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if not shutil.which("cosign"):
        pytest.skip("cosign is not installed (Debian 13: apt-get install cosign).")
    monkeypatch.setenv("COSIGN_PASSWORD", "")
    for name in ("ours", "theirs"):
        words = ["cosign", "generate-key-pair", "--output-key-prefix", name]
        subprocess.run(words, cwd=tmp_path, check=True, capture_output=True)
    made = make()
    name, ours = f"{registry}/{made.repository}:1", str(tmp_path / "ours.pub")
    assert cli.main(["pull", name, "--key", ours]) == 1
    assert "not signed" in capfd.readouterr().err
    words = ["cosign", "sign", "--yes", "--key", str(tmp_path / "ours.key"), "--tlog-upload=false"]
    subprocess.run([*words, f"{registry}/{made.repository}@{made.digest}"], check=True, capture_output=True)
    assert cli.main(["pull", name, "--key", str(tmp_path / "theirs.pub")]) == 1
    out, err = capfd.readouterr()
    assert "Signature: bad" in err
    assert out == ""
    assert cli.main(["pull", name, "--gpus", "none"]) == 0
    assert "there is one, not checked" in capfd.readouterr().err
    assert cli.main(["pull", name, "--key", ours, "--gpus", "none"]) == 0
    assert "Signature: good" in capfd.readouterr().err


def test_image_for_another_machine(registry: str, make: Any, capfd: pytest.CaptureFixture[str]) -> None:
    made = make(architecture="s390x")
    assert cli.main(["pull", f"{registry}/{made.repository}:1"]) == 2
    assert "is not made for this host" in capfd.readouterr().err


def test_registry_that_is_not_there(client: Any, capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["pull", "127.0.0.1:1/a:1"]) == 2
    assert "The registry 127.0.0.1:1 cannot be reached" in capfd.readouterr().err


def test_registry_that_wants_a_password(client: Any, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = tmp_path / "closed"
    folder.mkdir()
    (folder / "config.yml").write_text(
        f'version: 0.1\nstorage: {{filesystem: {{rootdirectory: "{folder}/data"}}}}\n'
        f'auth: {{htpasswd: {{realm: closed, path: "{folder}/htpasswd"}}}}\n'
    )
    with serving(folder) as address:
        assert cli.main(["pull", f"{address}/a:1"]) == 2
        assert f"The registry {address} does not let this user read" in capfd.readouterr().err


def test_tag_beside_a_digest(registry: str, client: Any, make: Any, capfd: pytest.CaptureFixture[str]) -> None:
    made = make()
    assert cli.main(["pull", f"{registry}/{made.repository}:mine@{made.digest}", "--gpus", "none"]) == 0
    assert names(client, made.repository) == [f"{registry}/{made.repository}:mine"]


def test_registry_that_stays_away_ends_the_attempts(
    registry: str, make: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    made = make(layers=2, mib=8)
    line = Line(registry, rate=20e6, cut=4 * MIB, away=60.0)
    try:
        assert cli.main(["pull", f"{line.address}/{made.repository}:1", "--attempts", "2"]) == 2
    finally:
        line.close()
    err = capfd.readouterr().err
    assert "attempt 2 of 2" in err
    assert f"The registry {line.address} cannot be reached, or hangs up" in err.splitlines()[-1]


def test_cut_pull_goes_on_where_it_stood(
    registry: str, client: Any, make: Any, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if "containerd.snapshotter" not in str(client.info().get("DriverStatus")):
        pytest.skip("The engine has no containerd image store: a pull that was cut begins again there.")
    monkeypatch.setattr(fetch, "CHECKPOINT", 1.0)
    monkeypatch.setattr(fetch, "CHECKPOINT_LAYER", 0.5)
    made = make(layers=4, mib=24)
    line = Line(registry, rate=16e6, cut=64 * MIB, away=3.0)
    try:
        assert cli.main(["pull", f"{line.address}/{made.repository}:1", "--gpus", "none"]) == 0
    finally:
        line.close()
    before, after = line.served
    assert "The pull broke off" in capfd.readouterr().err
    assert before >= 64 * MIB
    # 64 of 96 MiB had come. Without checkpoints all 96 come again.
    assert after < made.size - 24 * MIB, f"{after / MIB:.0f} MiB of {made.size / MIB:.0f} came again after the cut"


def test_layers_against_one_gzip_layer(
    registry: str, client: Any, make: Any, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    if os.geteuid() or not shutil.which("ctr"):
        pytest.skip("Only root with containerd's ctr can unpack an image into a store of its own.")
    made = make(layers=3, mib=2)
    name = f"{registry}/{made.repository}:1"
    assert cli.main(["pull", name, "--gpus", "none"]) == 0
    capfd.readouterr()
    before = {tag for image in client.images.list() for tag in image.tags}
    assert pull_bench.main([name, "--folder", str(tmp_path)]) == 0
    head, layered, single, sentence = capfd.readouterr().out.splitlines()
    assert head.split() == ["layers", "compressed", "download", "pull", "+", "unpack"]
    assert re.match(r"as it is +4 +7\.\d MB tar ", layered)
    assert re.match(r"one gzip layer +1 +6\.\d MB gzip ", single)
    assert re.search(r"[\d.]+ of the time to pull and unpack and 1\.\d\d of the bytes \(1 round; containerd", sentence)
    # Nothing is left: no image, no file.
    assert {tag for image in client.images.list() for tag in image.tags} == before
    assert list(tmp_path.glob("bench-pull-*")) == []
