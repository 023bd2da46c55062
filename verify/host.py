"""`verify image`: run verify in the image on this host, with its GPUs if it has any; the exit code is verify's own."""

from __future__ import annotations

import argparse
import io
import os
import shutil
import sys
import tarfile
import threading
import time
import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verify.core import UsageError
from verify.engine import connect, describe, explain, sdk
from verify.signals import Stopped, stoppable

IMAGE = "pytorch-workspace:2.8.0"
REPORT = "/tmp/verify.json"  # in the container
GRACE = 30.0  # seconds after the time limit inside, before the launcher gives up on the container


@dataclass(frozen=True)
class Gpus:
    """How the container gets GPUs: "all" (the NVIDIA runtime), "cdi", or "" for none; `why` is one sentence."""

    kind: str
    why: str


def choose_gpus(mode: str, info: Mapping[str, Any], *, local: bool, driver: bool) -> Gpus:
    """What to ask of the engine. `info` is `docker info`, `local` says that it runs on this machine, and `driver` that
    this machine has an NVIDIA driver with a GPU. nvidia-smi is not asked: its text changes between versions.
    """
    if mode == "none":
        return Gpus("", "No GPU is used, as asked with --gpus none.")
    runtime = "nvidia" in (info.get("Runtimes") or {})
    devices = [str(device.get("ID", "")) for device in info.get("DiscoveredDevices") or ()]
    cdi = any(name.startswith("nvidia.com/gpu=") for name in devices)
    if local and not driver:
        return Gpus("", "This host has no GPU that an NVIDIA driver serves.")
    if runtime or (local and not cdi):
        # Without the toolkit Docker refuses this, and that refusal is the answer: a GPU is here and cannot be used.
        return Gpus("all", "The GPUs of this host are handed to the container.")
    if cdi:
        return Gpus("cdi", "The GPUs of this host are handed to the container through CDI.")
    return Gpus("", "The Docker engine offers no NVIDIA runtime and no NVIDIA device.")


def has_driver(root: Path = Path("/")) -> bool:
    """Whether an NVIDIA driver serves a GPU on this machine: the kernel module's own record, or WSL's device."""
    record = root / "proc/driver/nvidia"
    gpus = record / "gpus"
    served = (record / "version").exists() and not (gpus.is_dir() and not any(gpus.iterdir()))
    return served or (root / "dev/dxg").exists()


def is_local(client: Any, info: Mapping[str, Any], platform: str = sys.platform) -> bool:
    """Whether the engine's host is this machine, so that this machine's /proc speaks for it."""
    socket = str(client.api.base_url).startswith("http+docker://local")
    return socket and platform == "linux" and info.get("OperatingSystem") != "Docker Desktop"


def command(arguments: Iterable[str], *, gpu: bool, timeout: float, json: str | None) -> list[str]:
    """The command line inside. The limit holds in there, so that a launcher that was killed leaves nothing behind."""
    inner = list(arguments) or ["run"]
    if inner == ["run"] and not gpu:
        inner += ["--tier", "static"]
    if json:
        inner += ["--json", "-" if json == "-" else REPORT]
    return ["timeout", "--kill-after=10", f"{timeout:g}", "verify", *inner]


def settings(image: str, words: list[str], gpus: Gpus, *, tty: bool, columns: int) -> dict[str, Any]:
    """The arguments of the SDK's `containers.create`."""
    environment = {} if gpus.kind else {"NVIDIA_VISIBLE_DEVICES": "void", "VERIFY_REQUIRE": "none"}
    if tty:
        environment |= {"COLUMNS": str(columns), "TERM": os.environ.get("TERM", "xterm-256color")}
    made: dict[str, Any] = {"image": image, "command": words, "environment": environment, "tty": tty, "shm_size": "8g"}
    types = sdk().types
    if gpus.kind == "all":
        made["device_requests"] = [types.DeviceRequest(count=-1, capabilities=[["gpu"]])]
    elif gpus.kind == "cdi":
        made["device_requests"] = [types.DeviceRequest(driver="cdi", device_ids=["nvidia.com/gpu=all"])]
    return made | {"name": f"verify-{uuid.uuid4().hex[:12]}", "labels": {"pytorch-workspace.launcher": "verify image"}}


def pump(frames: Iterable[tuple[bytes | None, bytes | None]], errors: list[BaseException]) -> None:
    """Pass the container's output on as it comes, each stream to its own."""
    try:
        for frame in frames:
            for data, stream in zip(frame, (sys.stdout, sys.stderr), strict=True):
                if data:
                    stream.buffer.write(data)
                    stream.flush()
    except (OSError, ValueError) as error:  # the reader of our output went away, or the connection did
        errors.append(error)


def watch(client: Any, made: Mapping[str, Any], limit: float) -> int:
    """Start the container, pass its output on, give its exit code. `limit` in seconds; UsageError without a code."""
    container = client.containers.create(**made)
    frames = container.attach(stdout=True, stderr=True, stream=True, demux=True)
    errors: list[BaseException] = []
    reader = threading.Thread(target=pump, args=(frames, errors), daemon=True)
    end = time.monotonic() + limit + GRACE
    try:
        container.start()
        reader.start()
        while reader.is_alive() and time.monotonic() < end:
            reader.join(0.2)
    except Stopped:
        # verify writes a report marked incomplete when it is told to end.
        with suppress(Exception):
            container.stop(timeout=5)
            reader.join(5)
        raise
    if errors:
        raise errors[0]
    if reader.is_alive():
        raise UsageError(overtime(limit))
    code = int(container.wait(timeout=GRACE)["StatusCode"])
    container.reload()
    if container.attrs["State"].get("OOMKilled"):
        raise UsageError(
            "The container ran out of memory and was ended, so there is no verdict: give it a larger limit."
        )
    if code == 124 or (code == 137 and time.monotonic() > end - GRACE):
        raise UsageError(overtime(limit))
    if code in (126, 127):
        raise UsageError(f"The image {made['image']} cannot run `verify`: is it one of this project (`make image`)?")
    return code


def overtime(limit: float) -> str:
    """The sentence for a run that took too long."""
    return (
        f"verify was not done after {limit:g} s and was ended, so there is no verdict: the last line above shows where "
        "it stood; allow more with --timeout, or name single checks after --."
    )


def fetch(client: Any, name: str, path: Path) -> None:
    """Copy the JSON report out of the container; quiet when there is none, because then verify has said why."""
    docker = sdk()
    with suppress(docker.errors.DockerException, KeyError, OSError):
        chunks, _ = client.api.get_archive(name, REPORT)
        with tarfile.open(fileobj=io.BytesIO(b"".join(chunks))) as archive:
            member = archive.extractfile(Path(REPORT).name)
            data = member.read() if member else b""
        part = path.with_name(f".{path.name}.part")
        part.write_bytes(data)
        part.replace(path)


def reportable(json: str | None) -> None:
    """UsageError, before anything is started, when the report could not be put there."""
    if json not in (None, "-") and not Path(str(json)).resolve().parent.is_dir():
        raise UsageError(f"The report cannot be written to {json}, because its folder does not exist: make it.")


def run(options: argparse.Namespace) -> int:
    """The exit code of verify inside; 1 when a required GPU is missing. UsageError: no verdict."""
    reportable(options.json)
    client, docker = connect(), sdk()
    made: dict[str, Any] = {}
    try:
        with stoppable():
            info = client.info()
            gpus = choose_gpus(options.gpus, info, local=is_local(client, info), driver=has_driver())
            if options.gpus == "required" and not gpus.kind:
                cause = gpus.why.rstrip(".")
                print(f"error: {cause}, and a GPU is required: check the driver, or use --gpus auto.", file=sys.stderr)
                return 1
            static = not gpus.kind and not options.arguments
            print(gpus.why + " The static tier runs, which needs none." * static, file=sys.stderr, flush=True)
            words = command(options.arguments, gpu=bool(gpus.kind), timeout=options.timeout, json=options.json)
            tty = sys.stdout.isatty() and options.json != "-"
            made = settings(options.image, words, gpus, tty=tty, columns=shutil.get_terminal_size().columns)
            try:
                return watch(client, made, options.timeout)
            finally:
                if options.json not in (None, "-"):
                    fetch(client, made["name"], Path(options.json))
                with suppress(docker.errors.DockerException, OSError):
                    client.api.remove_container(made["name"], force=True, v=True)
    except (docker.errors.DockerException, OSError) as error:
        if isinstance(error, BrokenPipeError):
            raise
        raise UsageError(explain(describe(error), image=options.image)) from error
    except Stopped as stopped:
        print("error: Stopped before verify was done; its container is removed.", file=sys.stderr)
        return 128 + int(stopped.args[0])


def seconds(text: str) -> float:
    """An argparse type: a positive number of seconds."""
    value = float(text)
    if not 0 < value < 10**6:
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds above 0")
    return value


def add_parser(commands: Any) -> None:
    """Add `image`."""
    made = commands.add_parser(
        "image",
        help="on the host: run verify in the image, with the GPUs of this host",
        description="Start the image on this host, give it the GPUs if the host has any, and run verify in it.",
    )
    made.add_argument("--image", default=os.environ.get("IMAGE") or IMAGE, help="default: $IMAGE, else %(default)s")
    add_options(made)
    made.add_argument("arguments", nargs="*", metavar="-- ARGUMENT", help="verify's own arguments; default: run")
    made.set_defaults(run=run)


def add_options(made: argparse.ArgumentParser) -> None:
    """The options of every command that runs the image here."""
    made.add_argument("--gpus", choices=("auto", "required", "none"), default="auto", help="default: auto")
    made.add_argument("--timeout", type=seconds, default=1800.0, metavar="S", help="seconds; default: %(default)g")
    made.add_argument("--json", metavar="F", help="write the JSON report to F on this host (- is stdout)")
