"""How long an image takes to arrive: its layers as they are against the same content as one gzip layer, in one run.

    python -m verify.pull_bench IMAGE [--rounds N]

Both are put into a registry on loopback and pulled, in turn, by a containerd of its own with an empty store (the code
that unpacks for Docker's containerd image store), so that the engine's images neither help nor are touched. The network
is none: what is measured is unpacking, and the bytes tell the rest. Everything made is removed.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from verify.core import UsageError
from verify.engine import connect, describe, sdk
from verify.registry_push import LAYER, put_blob, put_image, read_blob, read_manifest

ROOT = Path(__file__).parents[1]
CHUNK = 4 << 20
# Of the size the engine gives (compressed and unpacked): both images in the registry, one more copy, one unpacked.
ROOM = 1.8


@dataclass(frozen=True)
class Variant:
    """One way to pack the image: repository, layers, compressed bytes, how they are compressed."""

    name: str
    repository: str
    layers: int
    size: int
    media: str


def described(name: str, address: str, repository: str) -> Variant:
    """A Variant as the registry has it."""
    layers = read_manifest(address, repository, "1")["layers"]
    media = sorted({str(layer["mediaType"]).rpartition("+")[2].rpartition(".")[2] for layer in layers})
    return Variant(name, repository, len(layers), sum(layer["size"] for layer in layers), "+".join(media))


def push(client: Any, image: Any, address: str) -> Variant:
    """The image as it is in the engine."""
    docker, repository = sdk(), "bench/layered"
    name = f"{address}/{repository}"
    image.tag(name, "1")
    try:
        for event in client.api.push(name, tag="1", stream=True, decode=True):
            if event.get("error"):
                raise UsageError(f"The image cannot be pushed to the registry on loopback: {event['error']}.")
    finally:
        with contextlib.suppress(docker.errors.DockerException):
            client.images.remove(f"{name}:1", noprune=True)
    return described("as it is", address, repository)


def gzipped(chunks: Iterator[bytes], digest: Any) -> Iterator[bytes]:
    """The chunks through gzip -6, or pigz where it is; `digest` sees them as they come."""
    program = "pigz" if shutil.which("pigz") else "gzip"
    with subprocess.Popen([program, "-6", "-n", "-c"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout

        def feed(stream: Any) -> None:
            with stream:
                for chunk in chunks:
                    digest.update(chunk)
                    stream.write(chunk)

        feeder = threading.Thread(target=feed, args=(process.stdin,), daemon=True)
        feeder.start()
        while part := process.stdout.read(CHUNK):
            yield part
        feeder.join()
    if process.returncode:
        raise UsageError(f"{program} ended with {process.returncode}, so there is nothing to compare with.")


def flatten(client: Any, image: Any, address: str, config: dict[str, Any]) -> Variant:
    """The same files as one gzip layer: what a container of the image exports."""
    repository, digest = "bench/single", hashlib.sha256()
    container = client.containers.create(image.id, ["none"])
    try:
        layer = put_blob(address, repository, f"{LAYER}+gzip", gzipped(container.export(chunk_size=CHUNK), digest))
    finally:
        container.remove(force=True)
    kept = {key: value for key, value in config.items() if key in ("architecture", "os", "config", "variant")}
    put_image(address, repository, "1", [layer], [f"sha256:{digest.hexdigest()}"], kept)
    return described("one gzip layer", address, repository)


@contextlib.contextmanager
def registry(folder: Path) -> Iterator[str]:
    """host:port of a registry that keeps its data in `folder`."""
    words = ["bash", str(ROOT / "docker/registry.sh")]
    started = subprocess.run([*words, "start", str(folder)], capture_output=True, text=True, check=False)
    if started.returncode:
        raise UsageError(started.stderr.strip().rpartition("error: ")[2])
    try:
        yield started.stdout.strip()
    finally:
        subprocess.run([*words, "stop", str(folder)], check=False)


@contextlib.contextmanager
def containerd(folder: Path) -> Iterator[list[str]]:
    """A containerd with an empty store in `folder`: the words before a command of `ctr`."""
    state = Path(tempfile.mkdtemp(prefix="bench-pull-"))  # a socket's path has to be short
    socket, settings = state / "s", state / "config.toml"
    settings.write_text(
        f'version = 2\nroot = "{folder}"\nstate = "{state}/state"\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n'
        f'[grpc]\naddress = "{socket}"\n[plugins."io.containerd.internal.v1.opt"]\npath = "{state}/opt"\n'
    )
    with (state / "log").open("w") as log:
        process = subprocess.Popen(["containerd", "--config", str(settings)], stdout=log, stderr=log)
    try:
        for _ in range(200):
            asked = subprocess.run(["ctr", "--address", str(socket), "version"], capture_output=True, check=False)
            if asked.returncode == 0:
                break
            if process.poll() is not None:
                raise UsageError(f"containerd did not start: {(state / 'log').read_text().strip().splitlines()[-1]}")
            time.sleep(0.1)
        yield ["ctr", "--address", str(socket)]
    finally:
        process.terminate()
        process.wait(60)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(state, ignore_errors=True)


def timed(folder: Path, address: str, variant: Variant, *words: str) -> float:
    """Seconds of `ctr <words> name` on an empty store."""
    os.sync()  # what was written before is not to be paid for here
    with containerd(folder / "containerd") as ctr:
        started = time.monotonic()
        command = [*ctr, *words, "--plain-http", f"{address}/{variant.repository}:1"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise UsageError(f"`ctr {' '.join(words)}` failed: {done.stderr.strip()[-300:]}")
        return time.monotonic() - started


def table(variants: list[Variant], pulls: dict[str, list[float]], fetches: dict[str, list[float]], how: str) -> str:
    """Bytes in MB (10^6), seconds as medians with their range, the ratio of the first to the second."""

    def seconds(values: list[float]) -> str:
        spread = f" ({min(values):.1f}–{max(values):.1f})" if len(values) > 1 else ""
        return f"{median(values):.1f} s{spread}"

    rows = [("", "layers", "compressed", "download", "pull + unpack")]
    for v in variants:
        size = f"{v.size / 1e6:.1f} MB {v.media}"
        rows.append((v.name, str(v.layers), size, seconds(fetches[v.name]), seconds(pulls[v.name])))
    widths = [max(len(row[i]) for row in rows) for i in range(5)]
    lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]
    first, second = variants
    pairs = [a / b for a, b in zip(pulls[first.name], pulls[second.name], strict=True)]
    lines.append(
        f"The image as it is takes {median(pairs):.2f} of the time to pull and unpack and "
        f"{first.size / second.size:.2f} of the bytes ({len(pairs)} round{'s' * (len(pairs) != 1)}; {how})."
    )
    return "\n".join(lines)


def bench(name: str, rounds: int, folder: Path) -> str:
    """The table; UsageError says why there is none."""
    for program in ("containerd", "ctr"):
        if not shutil.which(program):
            raise UsageError(f"{program} is not on PATH, and the pull is measured with it: install containerd.")
    if os.geteuid():
        raise UsageError("Only root can unpack an image into a store of its own: run this with sudo.")
    docker, client = sdk(), connect(timeout=3600)
    try:
        image = client.images.get(name)
        need, free = int(image.attrs["Size"] * ROOM), shutil.disk_usage(folder).free
        if free < need:
            raise UsageError(
                f"{need / 1e9:.1f} GB are needed below {folder} and {free / 1e9:.1f} GB are free: make room."
            )
        with registry(folder / "registry") as address:
            say(f"pushing {name}")
            first = push(client, image, address)
            config = json.loads(
                read_blob(address, first.repository, read_manifest(address, first.repository, "1")["config"]["digest"])
            )
            say("packing the same files into one gzip layer")
            variants = [first, flatten(client, image, address, config)]
            pulls: dict[str, list[float]] = {v.name: [] for v in variants}
            fetches: dict[str, list[float]] = {v.name: [] for v in variants}
            for number in range(rounds):
                for v in variants if number % 2 == 0 else variants[::-1]:
                    say(f"round {number + 1} of {rounds}: {v.name}")
                    pulls[v.name].append(timed(folder, address, v, "images", "pull"))
                    fetches[v.name].append(timed(folder, address, v, "content", "fetch"))
    except docker.errors.ImageNotFound as error:
        raise UsageError(f"There is no image {name} on this machine: build it with `make image`.") from error
    except (docker.errors.DockerException, OSError) as error:
        raise UsageError(f"The measurement broke off: {describe(error).splitlines()[0]}.") from error
    unpacker = next((p for p in ("igzip", "unpigz") if shutil.which(p)), "Go's gzip")
    version = subprocess.run(["containerd", "--version"], capture_output=True, text=True, check=False).stdout.split()
    return table(variants, pulls, fetches, f"containerd {version[2] if len(version) > 2 else '?'}, {unpacker}")


def say(text: str) -> None:
    """Where it stands."""
    print(text, file=sys.stderr, flush=True)


def main(argv: list[str]) -> int:
    """0, or 2 with one sentence."""
    parser = argparse.ArgumentParser(prog="python -m verify.pull_bench", description=__doc__.split("\n\n")[0])
    parser.add_argument("image")
    parser.add_argument("--rounds", type=int, default=1, metavar="N", help="default: %(default)s")
    parser.add_argument("--folder", default=".", help="where some 25 GB for an image of 13 GB are free; default: here")
    options = parser.parse_args(argv)
    folder = Path(tempfile.mkdtemp(prefix="bench-pull-", dir=options.folder)).resolve()
    try:
        print(bench(options.image, max(1, options.rounds), folder))
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
