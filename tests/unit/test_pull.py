"""`verify pull` without Docker: names, sentences, attempts and checkpoints, signatures, and the order of things."""

from __future__ import annotations

import argparse
import json
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from docker.errors import APIError, ImageNotFound, NotFound

from verify import cli, fetch, pull, signature
from verify.core import UsageError
from verify.reference import Reference, kind_of, parse, sentence

HEX = "0123456789abcdef" * 4
DIGEST = f"sha256:{HEX}"
REF = Reference("registry.example:5000/team/workspace", "2.8.0", "")


@pytest.mark.parametrize(
    ("text", "name", "tag", "digest", "registry"),
    [
        ("ubuntu", "ubuntu", "latest", "", ""),
        ("team/image:1", "team/image", "1", "", ""),
        ("localhost/a", "localhost/a", "latest", "", "localhost"),
        ("127.0.0.1:5000/a/b:2.8.0-toolkit12.4", "127.0.0.1:5000/a/b", "2.8.0-toolkit12.4", "", "127.0.0.1:5000"),
        (f"registry.example/a/b@{DIGEST}", "registry.example/a/b", "", DIGEST, "registry.example"),
        (f"registry.example/a/b:1@{DIGEST}", "registry.example/a/b", "1", DIGEST, "registry.example"),
    ],
)
def test_names(text: str, name: str, tag: str, digest: str, registry: str) -> None:
    made = parse(text)
    assert (made.name, made.tag, made.digest, made.registry) == (name, tag, digest, registry)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "a:",
        "a:b:c",
        "a@",
        f"a@{DIGEST[:-1]}",
        "a@md5:00",
        "a;rm -rf",
        "-a",
        "a//b",
        "../a",
        "a:" + "t" * 129,
    ],
)
def test_bad_names_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is no name of an image"):
        parse(text)


SAID = [
    ('Get "https://r/v2/": dial tcp: lookup r on 10.0.0.1:53: no such host', "away", "cannot be reached"),
    ('failed to do request: Head "https://r/v2/a": dial tcp 1.2.3.4:443: i/o timeout', "away", "i/o timeout"),
    ("failed to read expected number of bytes: unexpected EOF", "away", "hangs up"),
    ("unexpected status from HEAD request to https://r/v2/a/manifests/1: 503 Service Unavailable", "away", "503"),
    ('Get "https://r/v2/": unauthorized: authentication required', "denied", "docker login registry.example:5000"),
    ("pull access denied for a, repository does not exist or may require 'docker login'", "denied", "docker login"),
    ("unexpected status from HEAD request to https://r/v2/a/manifests/1: 403 Forbidden", "denied", "spelling"),
    ("manifest unknown: manifest unknown", "missing", "has no registry.example:5000/team/workspace:2.8.0"),
    ('failed to resolve reference "r/a:1": r/a:1: not found', "missing", "check the spelling and the tag"),
    ("write /var/lib/docker/x: no space left on device", "full", "no room"),
    ("no match for platform in manifest: not found", "arch", "not made for this host (amd64)"),
    ("toomanyrequests: You have reached your pull rate limit", "limit", "mirror"),
    ("x509: certificate signed by unknown authority", "tls", "certs.d/registry.example:5000/ca.crt"),
    ("http: server gave HTTP response to HTTPS client", "tls", "insecure-registries"),
    (f"unexpected commit digest {DIGEST}, expected sha256:00: failed precondition", "damaged", "not what its digest"),
]


@pytest.mark.parametrize(("text", "kind", "words"), SAID)
def test_one_sentence_for_each_way_to_fail(text: str, kind: str, words: str) -> None:
    said = sentence(text, REF, machine="amd64")
    assert kind_of(text) == kind
    assert words in said
    assert said.endswith(".")
    assert "\n" not in said


def test_hub_is_named_where_the_name_has_no_registry() -> None:
    assert "The registry Docker Hub does not let this user read team/a:1: `docker login`, and" in sentence(
        "unauthorized: authentication required", parse("team/a:1")
    )


def test_unknown_words_of_the_engine_are_passed_on() -> None:
    assert "the flux is off" in sentence("the flux is off", REF)


def test_sentence_of_the_client_library_is_no_answer_of_the_registry() -> None:
    assert kind_of("500 Server Error: Internal Server Error for url: http+docker://localhost/v1.45/x") == ""


Events = list[Mapping[str, Any]]
STORE = [["driver-type", "io.containerd.snapshotter.v1"]]


def layer(name: str, status: str, current: int = 0, total: int = 0) -> dict[str, Any]:
    return {"id": name, "status": status, "progressDetail": {"current": current, "total": total} if total else {}}


class Clock:
    """time.monotonic that moves by a second with each question, and a sleep that takes no time."""

    def __init__(self) -> None:
        self.now, self.slept = 0.0, []

    def monotonic(self) -> float:
        self.now += 1.0
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(fetch, "time", made)
    return made


def engine(monkeypatch: pytest.MonkeyPatch, *pulls: Events | Exception, store: Any = STORE) -> list[str]:
    """An engine that answers one pull after another; the list says how each ended."""
    waiting, ended = list(pulls), []

    @contextmanager
    def pulling(client: Any, name: str, digest: str) -> Iterator[Iterator[Mapping[str, Any]]]:
        assert (name, digest) == (REF.name, DIGEST)
        answer = waiting.pop(0)
        if isinstance(answer, Exception):
            raise answer
        try:
            yield iter(answer)
            ended.append("done")
        except fetch.Interrupted as stop:
            ended.append(str(stop) or "checkpoint")
            raise

    monkeypatch.setattr(fetch, "pulling", pulling)
    return ended


def client(store: Any = STORE, **more: Any) -> Any:
    info = {"Architecture": "x86_64", "DriverStatus": store, "DockerRootDir": "/"}
    return SimpleNamespace(info=lambda: info, **more)


WHOLE: Events = [layer("a", "Pulling fs layer"), layer("a", "Downloading", 5, 9), layer("a", "Download complete")]
CUT: Events = [*WHOLE[:2], {"error": "unexpected EOF", "errorDetail": {"message": "unexpected EOF"}}]
SLOW: Events = [layer("a", "Pulling fs layer"), *(layer("a", "Downloading", n, 1000) for n in range(1, 200))]


def test_cut_pull_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = engine(monkeypatch, CUT, ConnectionError("Connection aborted."), CUT, WHOLE)
    fetch.fetch(client(), REF, DIGEST)
    assert ended == ["unexpected EOF", "unexpected EOF", "done"]
    assert clock.slept == [2.0, 4.0, 8.0]
    assert "attempt 2 of 5 in 2 s" in capsys.readouterr().err


def test_attempts_are_bounded(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    engine(monkeypatch, *[CUT] * 9)
    with pytest.raises(UsageError, match="hangs up"):
        fetch.fetch(client(), REF, DIGEST, attempts=3)
    assert len(clock.slept) == 2


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("no space left on device", r"no room .*\(/ has [\d.]+ GB left\)"),
        ("unauthorized: authentication required", "docker login"),
        ("no match for platform in manifest", r"this host \(amd64\)"),
    ],
)
def test_what_will_not_change_is_not_tried_again(
    monkeypatch: pytest.MonkeyPatch, clock: Clock, error: str, words: str
) -> None:
    engine(monkeypatch, [*WHOLE[:2], {"error": error}], WHOLE)
    with pytest.raises(UsageError, match=words):
        fetch.fetch(client(), REF, DIGEST)
    assert clock.slept == []


def test_engine_that_goes_away_is_not_called_the_registry(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    gone = ConnectionError("('Connection aborted.', ConnectionRefusedError(111, 'Connection refused'))")
    engine(monkeypatch, *[gone] * 2)
    with pytest.raises(UsageError, match="No Docker engine answers"):
        fetch.fetch(client(), REF, DIGEST, attempts=2)


def test_checkpoints_save_what_came_and_are_no_failures(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    ended = engine(monkeypatch, SLOW, SLOW, CUT, SLOW, CUT, WHOLE)
    fetch.fetch(client(), REF, DIGEST, attempts=2)
    assert ended == ["checkpoint", "checkpoint", "unexpected EOF", "checkpoint", "unexpected EOF", "done"]


def test_finished_layer_brings_the_checkpoint_forward(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    events = [layer("b", "Pulling fs layer"), *SLOW[:3], layer("b", "Download complete"), *SLOW[3:]]
    seen = fetch.Progress()
    with pytest.raises(fetch.Interrupted):
        fetch.attempt(iter(events), seen, lambda _: None, save=True)
    assert seen.have["a"] < fetch.CHECKPOINT / 2


def test_classic_store_has_no_checkpoints(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    ended = engine(monkeypatch, [*SLOW, layer("a", "Pull complete")])
    fetch.fetch(client([["Backing Filesystem", "extfs"]]), REF, DIGEST)
    assert ended == ["done"]


def test_line_that_stands_still_is_left(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    ended = engine(monkeypatch, [layer("a", "Pulling fs layer"), *[layer("a", "Downloading", 5, 9)] * 400], WHOLE)
    fetch.fetch(client(), REF, DIGEST)
    assert ended == ["timeout: no byte came for 120 s", "done"]


def test_unpacking_is_no_standstill(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    ended = engine(monkeypatch, [*WHOLE, *[layer("a", "Extracting")] * 400])
    fetch.fetch(client(), REF, DIGEST)
    assert ended == ["done"]


def test_progress_tells_only_what_is_known() -> None:
    seen = fetch.Progress()
    for event in (layer("a", "Pulling fs layer"), layer("b", "Pulling fs layer"), layer("c", "Already exists")):
        seen.take(event)
    seen.take(layer("a", "Downloading", 500_000_000, 1_000_000_000))
    assert seen.text(2e6) == "1 of 3 layers, 0.50 GB, 2.0 MB/s"
    seen.take(layer("b", "Downloading", 250_000_000, 3_000_000_000))
    assert seen.text(0) == "1 of 3 layers, 0.75 of 4.00 GB"
    seen.take(layer("a", "Download complete"))
    seen.take(layer("b", "Download complete"))
    assert seen.text(2e6) == "3 of 3 layers, 4.00 of 4.00 GB, unpacking"


def registry(answer: Any, platforms: Any = None) -> Any:
    def get(name: str) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return SimpleNamespace(id=DIGEST, attrs={"Platforms": platforms})

    return client(images=SimpleNamespace(get_registry_data=get))


def test_digest_is_asked_of_the_registry() -> None:
    assert fetch.resolve(registry(None, [{"architecture": "amd64"}, {"architecture": "unknown"}]), REF) == DIGEST
    given = Reference("a", "1", "sha256:" + "f" * 64)
    assert fetch.resolve(registry(None), given) == given.digest


def test_wrong_architecture_is_told_before_the_pull() -> None:
    with pytest.raises(UsageError, match=r"not made for this host \(amd64; it is for arm64\)"):
        fetch.resolve(registry(None, [{"architecture": "arm64"}]), REF)


def test_no_such_tag_is_told() -> None:
    with pytest.raises(UsageError, match=r"has no registry\.example:5000/team/workspace:2\.8\.0"):
        fetch.resolve(registry(NotFound("404", explanation="manifest unknown: manifest unknown")), REF)


@pytest.mark.parametrize(
    ("answer", "state", "words"),
    [
        (None, "unchecked", "give its public key"),
        (NotFound("404", explanation="manifest unknown: manifest unknown"), "none", "not signed"),
        (APIError("500", explanation="dial tcp: i/o timeout"), "unchecked", "does not say"),
    ],
)
def test_signature_without_a_key_is_looked_for_and_named(answer: Any, state: str, words: str) -> None:
    found = signature.check(registry(answer), REF, DIGEST, None)
    assert found.state == state
    assert words in found.text


@pytest.fixture
def cosign(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A stand-in for cosign that ends with the code in the file `code` beside it."""
    program = tmp_path / "cosign"
    program.write_text(
        f'#!/bin/sh\necho "$@" >{tmp_path}/words\necho "Error: said" >&2\nexit "$(cat {tmp_path}/code)"\n'
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    (tmp_path / "key.pub").touch()
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


@pytest.mark.parametrize(("code", "state"), [(0, "good"), (10, "none"), (12, "bad")])
def test_signature_by_key_is_what_cosign_says(cosign: Path, code: int, state: str) -> None:
    (cosign / "code").write_text(str(code))
    assert signature.check(None, REF, DIGEST, str(cosign / "key.pub")).state == state
    words = (cosign / "words").read_text()
    assert words.startswith(f"verify --key {cosign}/key.pub")
    assert words.rstrip().endswith(f"{REF.name}@{DIGEST}")


def test_cosign_that_cannot_tell_gives_no_verdict(cosign: Path) -> None:
    (cosign / "code").write_text("1")
    with pytest.raises(UsageError, match=r"cosign cannot check .* \(said\)"):
        signature.check(None, REF, DIGEST, str(cosign / "key.pub"))


def test_missing_key_or_cosign_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        signature.check(None, REF, DIGEST, str(tmp_path / "none.pub"))
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "key.pub").touch()
    with pytest.raises(UsageError, match="cosign is not installed"):
        signature.check(None, REF, DIGEST, str(tmp_path / "key.pub"))


class Store:
    """The engine's images: `here` once fetched."""

    def __init__(self, here: bool, architecture: str = "amd64") -> None:
        self.here, self.tags, self.architecture = here, [], architecture

    def get(self, name: str) -> Any:
        assert name == f"{REF.name}@{DIGEST}"
        if not self.here:
            raise ImageNotFound("none")
        tag = lambda repository, tag: self.tags.append(f"{repository}:{tag}")  # noqa: E731
        return SimpleNamespace(attrs={"Architecture": self.architecture}, tag=tag)


def start(
    monkeypatch: pytest.MonkeyPatch, store: Store, code: int, signed: signature.Signature, *words: str
) -> tuple[int, list[str]]:
    """The exit code of `verify pull`, and what it did in which order."""
    done: list[str] = []

    def bring(*_: Any, attempts: int) -> None:
        done.append("fetch")
        store.here = True

    def verify(options: argparse.Namespace) -> int:
        done.append(f"run {options.image.rpartition('/')[2]}")
        return code

    monkeypatch.setattr(pull, "IMAGE", Path("/nowhere/image.json"))
    monkeypatch.setattr(pull, "connect", lambda timeout: client(images=store))
    monkeypatch.setattr(fetch, "resolve", lambda *_: DIGEST)
    monkeypatch.setattr(fetch, "fetch", bring)
    monkeypatch.setattr(signature, "check", lambda *_: signed)
    monkeypatch.setattr(pull.host, "run", verify)
    return cli.main(["pull", REF.text, *words]), done


UNSIGNED = signature.Signature("none", "Signature: not signed.")
RUN = f"run workspace@{DIGEST}"


@pytest.mark.parametrize(("code", "word"), [(0, "is good"), (1, "is not good"), (2, "is not judged")])
def test_verdict_is_verifys_and_only_a_good_image_gets_the_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], code: int, word: str
) -> None:
    store = Store(here=False)
    assert start(monkeypatch, store, code, UNSIGNED) == (code, ["fetch", RUN])
    assert store.tags == ([REF.text] if code == 0 else [])
    said = capsys.readouterr().err
    assert f"{REF.text} is {DIGEST}" in said
    assert "not signed" in said
    assert word in said.splitlines()[-1]


def test_what_is_here_is_not_pulled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    assert start(monkeypatch, Store(here=True), 0, UNSIGNED) == (0, [RUN])


@pytest.mark.parametrize("state", ["none", "bad"])
def test_without_the_signature_asked_for_nothing_is_pulled_or_run(monkeypatch: pytest.MonkeyPatch, state: str) -> None:
    assert start(monkeypatch, Store(here=False), 0, signature.Signature(state, "x"), "--key", "k") == (1, [])


def test_report_that_cannot_be_written_is_told_before_the_pull(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert start(monkeypatch, Store(here=False), 0, UNSIGNED, "--json", str(tmp_path / "none/a.json")) == (2, [])
    assert "folder does not exist" in capsys.readouterr().err


def test_image_for_another_machine_is_not_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert start(monkeypatch, Store(here=False, architecture="arm64"), 0, UNSIGNED) == (2, ["fetch"])
    assert "not made for this host" in capsys.readouterr().err


@pytest.fixture
def inside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[list[str]]:
    """As if this were a container of the image; the list holds what was run."""
    (tmp_path / "image.json").write_text(json.dumps({"name": "workspace", "version": "2.8.0", "revision": HEX}))
    monkeypatch.setattr(pull, "IMAGE", tmp_path / "image.json")
    calls: list[list[str]] = []
    before = cli.main

    def main(words: list[str]) -> int:
        if words[0] == "pull":
            return before(words)
        calls.append(words)
        return 1

    monkeypatch.setattr(cli, "main", main)
    return calls


def test_inside_the_image_the_checks_run_in_place(inside: list[list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["pull", "a:1", "--json", "out.json"]) == 1
    assert inside == [["run", "--json", "out.json"]]
    said = capsys.readouterr().err
    assert "container of workspace 2.8.0 of revision 0123456789ab" in said
    assert "cannot be seen from inside" in said


def test_inside_the_image_no_signature_is_claimed(inside: list[list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["pull", "--key", "k"]) == 2
    assert inside == []
    assert re.search("cannot see its own digest", capsys.readouterr().err)


def test_without_a_name_outside(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(pull, "IMAGE", Path("/nowhere/image.json"))
    assert cli.main(["pull"]) == 2
    assert "Which image?" in capsys.readouterr().err
