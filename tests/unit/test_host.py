"""`verify image` without Docker: what it asks of an engine, what it does with the answers, and its sentences."""

from __future__ import annotations

import argparse
import io
import signal
import sys
import tarfile
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from verify import engine, host
from verify.core import UsageError

NVIDIA = {"Runtimes": {"runc": {}, "nvidia": {}}}
CDI = {"Runtimes": {"runc": {}}, "DiscoveredDevices": [{"Source": "cdi", "ID": "nvidia.com/gpu=all"}]}
PLAIN: dict[str, Any] = {"Runtimes": {"runc": {}}, "DiscoveredDevices": None}


@pytest.mark.parametrize(
    ("mode", "info", "local", "driver", "kind"),
    [
        ("auto", NVIDIA, True, True, "all"),
        ("required", NVIDIA, True, True, "all"),
        ("auto", CDI, True, True, "cdi"),
        ("auto", PLAIN, True, True, "all"),  # a GPU that Docker cannot hand over is an error, not "no GPU"
        ("auto", NVIDIA, True, False, ""),  # the toolkit is installed, the driver is not loaded
        ("auto", PLAIN, True, False, ""),
        ("auto", NVIDIA, False, False, "all"),  # a remote engine: only its own word counts
        ("auto", CDI, False, False, "cdi"),
        ("auto", PLAIN, False, True, ""),  # the driver here says nothing about a remote engine
        ("none", NVIDIA, True, True, ""),
    ],
)
def test_gpus_are_asked_for_where_there_are_any(
    mode: str, info: dict[str, Any], local: bool, driver: bool, kind: str
) -> None:
    chosen = host.choose_gpus(mode, info, local=local, driver=driver)
    assert chosen.kind == kind
    assert chosen.why.endswith(".")


@pytest.mark.parametrize(
    ("files", "present"),
    [
        ((), False),
        (("proc/driver/nvidia/version",), True),
        (("proc/driver/nvidia/version", "proc/driver/nvidia/gpus/0000:01:00.0/information"), True),
        (("dev/dxg",), True),
        (("usr/bin/nvidia-smi",), False),
    ],
)
def test_driver_is_told_by_the_kernel(tmp_path: Path, files: tuple[str, ...], present: bool) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert host.has_driver(tmp_path) is present


def test_driver_without_a_gpu_is_no_gpu(tmp_path: Path) -> None:
    (tmp_path / "proc/driver/nvidia/gpus").mkdir(parents=True)
    (tmp_path / "proc/driver/nvidia/version").touch()
    assert not host.has_driver(tmp_path)


@pytest.mark.parametrize(
    ("url", "system", "platform", "local"),
    [
        ("http+docker://localhost", "Debian GNU/Linux 12", "linux", True),
        ("http+docker://localhost", "Docker Desktop", "linux", False),
        ("http+docker://localhost", "Alpine", "darwin", False),
        ("http+docker://ssh", "Debian", "linux", False),
        ("http://10.0.0.1:2375", "Debian", "linux", False),
    ],
)
def test_local_engine(url: str, system: str, platform: str, local: bool) -> None:
    client = SimpleNamespace(api=SimpleNamespace(base_url=url))
    assert host.is_local(client, {"OperatingSystem": system}, platform) is local


@pytest.mark.parametrize(
    ("arguments", "gpu", "json", "expected"),
    [
        ([], True, None, "run"),
        ([], False, None, "run --tier static"),
        (["run", "stack"], False, None, "run stack"),
        (["list"], True, None, "list"),
        ([], False, "-", "run --tier static --json -"),
        ([], True, "out.json", "run --json /tmp/verify.json"),
    ],
)
def test_command_inside(arguments: list[str], gpu: bool, json: str | None, expected: str) -> None:
    words = host.command(arguments, gpu=gpu, timeout=90, json=json)
    assert words == ["timeout", "--kill-after=10", "90", "verify", *expected.split()]


def test_without_gpu_the_container_sees_none_and_requires_none() -> None:
    made = host.settings("i", ["verify"], host.Gpus("", "."), tty=False, columns=80)
    assert made["environment"] == {"NVIDIA_VISIBLE_DEVICES": "void", "VERIFY_REQUIRE": "none"}
    assert "device_requests" not in made


@pytest.mark.parametrize(
    ("kind", "request_"),
    [
        ("all", {"Driver": "", "Count": -1, "DeviceIDs": [], "Capabilities": [["gpu"]], "Options": {}}),
        ("cdi", {"Driver": "cdi", "Count": 0, "DeviceIDs": ["nvidia.com/gpu=all"], "Capabilities": [], "Options": {}}),
    ],
)
def test_gpu_request_has_the_form_the_engine_takes(kind: str, request_: dict[str, Any]) -> None:
    made = host.settings("i", ["verify"], host.Gpus(kind, "."), tty=True, columns=99)
    assert [dict(one) for one in made["device_requests"]] == [request_]
    assert made["environment"]["COLUMNS"] == "99"
    assert "VERIFY_REQUIRE" not in made["environment"]


FAILURES = [
    ("DockerException: ('Connection aborted.', FileNotFoundError(2, 'No such file or directory'))", "No Docker engine"),
    ("ConnectionRefusedError(111, 'Connection refused')", "No Docker engine"),
    ("DockerException: ('Connection aborted.', PermissionError(13, 'Permission denied'))", "group docker"),
    ("ImageNotFound: No such image: a:1", "make image"),
    ('could not select device driver "" with capabilities: [[gpu]]', "nvidia-container-toolkit"),
    ('could not select device driver "cdi" with capabilities: []', "daemon.json"),
    ("unknown or invalid runtime name: nvidia", "knows no runtime nvidia"),
    ("failed to inject CDI devices: unresolvable CDI devices nvidia.com/gpu=all: unknown", "nvidia-ctk cdi generate"),
    ("CDI device injection failed: unresolvable CDI devices nvidia.com/gpu=all", "device nvidia.com/gpu=all"),
    ("nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.8, please update", "cuda>=12.8"),
    ("nvidia-container-cli: initialization error: nvml error: driver not loaded: unknown", "driver not loaded"),
    ("nvidia-container-cli: initialization error: nvml error: driver/library version mismatch", "version mismatch"),
    ("write /var/lib/docker/tmp/x: no space left on device", "docker system df"),
    ("fork/exec /usr/bin/runc: cannot allocate memory", "free memory"),
    ('exec: "/usr/bin/tini": stat /usr/bin/tini: no such file or directory', "start program"),
    ("ReadTimeout: HTTPConnectionPool: Read timed out. (read timeout=60)", "did not answer in time"),
    ("an entirely new message\nsecond line", "an entirely new message;"),
    ("", "no reason given"),
]


@pytest.mark.parametrize(("text", "words"), FAILURES)
def test_every_failure_of_the_engine_is_one_sentence(text: str, words: str) -> None:
    sentence = engine.explain(text, image="a:1", socket="unix:///s")
    assert words in sentence
    assert sentence.endswith(".")
    assert "\n" not in sentence
    assert "{" not in sentence.replace('{"cdi": true}', "")


def test_causes_of_an_error_are_read_too() -> None:
    error = RuntimeError("outer")
    error.__cause__ = PermissionError(13, "Permission denied")
    assert "group docker" in engine.explain(engine.describe(error))


def test_missing_sdk_is_told_though_the_folder_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "docker", SimpleNamespace())
    with pytest.raises(UsageError, match="Docker SDK for Python is not installed"):
        engine.sdk()


def test_engine_not_running(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    with pytest.raises(UsageError, match="No Docker engine answers at unix:"):
        engine.connect()


class Container:
    """What `watch` uses of the SDK's container. `frames` are what it prints; a callable entry is called in between."""

    def __init__(self, frames: list[Any], code: int = 0, oom: bool = False) -> None:
        self.frames, self.code, self.calls = frames, code, []
        self.attrs = {"State": {"OOMKilled": oom}}
        self.stopped = threading.Event()

    def attach(self, **_: Any) -> Any:
        for frame in self.frames:
            if callable(frame):
                frame(self)
            else:
                yield frame

    def start(self) -> None:
        self.calls.append("start")

    def stop(self, timeout: float) -> None:
        self.calls.append("stop")
        self.stopped.set()

    def wait(self, timeout: float) -> dict[str, int]:
        return {"StatusCode": self.code}

    def reload(self) -> None:
        pass


def client_of(container: Container, archive: bytes | None = None) -> Any:
    """A client of the SDK with this one container; it keeps what was removed in `removed`."""
    from docker.errors import NotFound

    def get_archive(name: str, path: str) -> tuple[Any, dict[str, str]]:
        if archive is None:
            raise NotFound("none")
        return iter([archive]), {}

    removed: list[str] = []
    api = SimpleNamespace(
        base_url="http+docker://localhost",
        remove_container=lambda name, **_: removed.append(name),
        get_archive=get_archive,
    )
    containers = SimpleNamespace(create=lambda **_: container)
    return SimpleNamespace(api=api, containers=containers, info=lambda: PLAIN, removed=removed)


def options(**given: Any) -> argparse.Namespace:
    defaults = {"image": "a:1", "gpus": "auto", "timeout": 60.0, "json": None, "arguments": []}
    return argparse.Namespace(**(defaults | given))


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "has_driver", lambda: False)


def start(monkeypatch: pytest.MonkeyPatch, container: Container, **given: Any) -> tuple[int, list[str]]:
    client = client_of(container, given.pop("archive", None))
    monkeypatch.setattr(host, "connect", lambda: client)
    try:
        return host.run(options(**given)), client.removed
    finally:
        assert len(client.removed) <= 1


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize("code", [0, 1, 2, 3])
def test_output_and_exit_code_are_passed_on(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], code: int
) -> None:
    container = Container([(b"one\n", None), (None, b"complaint\n"), ("zwei ☃\n".encode(), None)], code)
    result, removed = start(monkeypatch, container)
    out, err = capfd.readouterr()
    assert (result, len(removed)) == (code, 1)
    assert out == "one\nzwei ☃\n"
    assert err == (
        "This host has no GPU that an NVIDIA driver serves. The static tier runs, which needs none.\ncomplaint\n"
    )


@pytest.mark.usefixtures("no_gpu")
def test_required_gpu_that_is_missing_fails(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    container = Container([])
    assert start(monkeypatch, container, gpus="required") == (1, [])
    assert "a GPU is required" in capfd.readouterr().err
    assert container.calls == []


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize(
    ("code", "oom", "words"),
    [(124, False, "not done after 60 s"), (137, True, "ran out of memory"), (127, False, "cannot run `verify`")],
)
def test_no_verdict_is_no_exit_code_of_verify(
    monkeypatch: pytest.MonkeyPatch, code: int, oom: bool, words: str
) -> None:
    client = client_of(Container([], code, oom))
    monkeypatch.setattr(host, "connect", lambda: client)
    with pytest.raises(UsageError, match=words):
        host.run(options())
    assert len(client.removed) == 1


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_signal_stops_and_removes(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], number: signal.Signals, code: int
) -> None:
    def interrupt(container: Container) -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, number)
        container.stopped.wait(20)

    before = signal.getsignal(number)
    container = Container([interrupt, (b"partial report\n", None)])
    result, removed = start(monkeypatch, container)
    assert (result, len(removed)) == (code, 1)
    assert container.calls == ["start", "stop"]
    assert "partial report" in capfd.readouterr().out
    assert signal.getsignal(number) is before


@pytest.mark.usefixtures("no_gpu")
def test_engine_that_refuses_is_explained_and_cleaned_up(monkeypatch: pytest.MonkeyPatch) -> None:
    from docker.errors import APIError

    def refuse() -> None:
        raise APIError("500", explanation='could not select device driver "" with capabilities: [[gpu]]')

    container = Container([])
    monkeypatch.setattr(container, "start", refuse)
    client = client_of(container)
    monkeypatch.setattr(host, "connect", lambda: client)
    with pytest.raises(UsageError, match="nvidia-container-toolkit"):
        host.run(options())
    assert len(client.removed) == 1


@pytest.mark.usefixtures("no_gpu")
def test_report_is_brought_to_the_host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        member = tarfile.TarInfo("verify.json")
        member.size = 2
        archive.addfile(member, io.BytesIO(b"{}"))
    target = tmp_path / "report.json"
    assert start(monkeypatch, Container([], 1), json=str(target), archive=packed.getvalue())[0] == 1
    assert target.read_text() == "{}"
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.usefixtures("no_gpu")
def test_no_report_leaves_no_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert start(monkeypatch, Container([], 2), json=str(tmp_path / "report.json"))[0] == 2
    assert list(tmp_path.iterdir()) == []


def test_report_into_a_missing_folder_is_refused_first(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="folder does not exist"):
        host.run(options(json=str(tmp_path / "none" / "report.json")))


def parsed(*words: str) -> argparse.Namespace:
    made = argparse.ArgumentParser()
    host.add_parser(made.add_subparsers())
    return made.parse_args(["image", *words])


def test_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("IMAGE", raising=False)
    assert parsed().image == "pytorch-workspace:2.8.0"
    monkeypatch.setenv("IMAGE", "b:2")
    made = parsed("--gpus", "none", "--timeout", "9", "--", "run", "--tier", "all")
    assert (made.image, made.gpus, made.timeout, made.arguments) == ("b:2", "none", 9.0, ["run", "--tier", "all"])


@pytest.mark.parametrize("words", [("--timeout", "0"), ("--timeout", "soon"), ("--gpus", "some")])
def test_bad_options_are_refused(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parsed(*words)
    assert words[0] in capsys.readouterr().err


def test_an_engine_over_ssh_is_tried_for_real() -> None:
    """Docker's SDK needs a package more for ssh://, and without it says so instead of trying."""
    with pytest.raises(UsageError, match=r"No Docker engine answers at ssh://nobody@127\.0\.0\.1:1"):
        engine.connect(timeout=10, host="ssh://nobody@127.0.0.1:1")
