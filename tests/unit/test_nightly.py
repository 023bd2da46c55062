"""The nightly pipeline's parts that need neither an engine nor a registry."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import tarfile
import threading
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from verify import cli, history
from verify.core import UsageError
from verify.nightly import changes, contents, differ, promotions, provenance, registry, sbom, settings, state
from verify.nightly.changes import Image
from verify.nightly.contents import Contents
from verify.nightly.settings import Settings

NOW = datetime(2026, 3, 1, 2, 0, tzinfo=timezone.utc)


def made(tmp_path: Path, **more: Any) -> Settings:
    return Settings("a:1", "127.0.0.1:5000/a", tmp_path, "true", "true", **more)


def layer(files: dict[str, bytes], mtime: int = 0, mode: int = 0o644) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mtime, member.mode = len(data), mtime, mode
            archive.addfile(member, io.BytesIO(data))
    return packed.getvalue()


def layout(path: Path, layers: list[bytes], media: str = "tar", config: dict[str, Any] | None = None) -> str:
    """An OCI layout with one image, as buildx writes it."""
    blobs = dict[str, bytes]()

    def add(data: bytes, kind: str) -> dict[str, Any]:
        digest = hashlib.sha256(data).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = data
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": len(data)}

    history_ = [{"created_by": f"RUN step {n}"} for n, _ in enumerate(layers, 1)]
    head = add(json.dumps({"history": history_, **(config or {})}).encode(), "config.v1+json")
    rows = [add(data, f"layer.v1.{media}") for data in layers]
    image = add(json.dumps({"config": head, "layers": rows}).encode(), "manifest.v1+json")
    note = {"digest": "sha256:none", "annotations": {"vnd.docker.reference.type": "attestation-manifest"}}
    blobs["index.json"] = json.dumps({"manifests": [note, image]}).encode()
    path.write_bytes(layer(blobs))
    return str(path)


def test_differ_names_the_layer_and_the_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = layer({"etc/a": b"1"})
    first = layout(tmp_path / "1", [common, layer({"x.pyc": b"one", "same": b"", "gone": b""}, 5)])
    second = layout(tmp_path / "2", [common, layer({"x.pyc": b"two", "same": b"", "new": b""}, 5)])
    assert cli.main(["nightly", "diff", first, second]) == 1
    lines = capsys.readouterr().out.splitlines()[1:]
    assert lines == [
        "layer 2 (RUN step 2): 3 difference(s)",
        "  x.pyc: contents",
        "  gone: only in the first",
        "  new: only in the second",
    ]
    assert cli.main(["nightly", "diff", first, first]) == 0


@pytest.mark.parametrize(
    ("one", "two", "said"),
    [
        (layer({"a": b""}, 1), layer({"a": b""}, 2), "a: time 1 → 2"),
        (layer({"a": b""}), layer({"a": b""}, mode=0o755), "a: mode 0o644 → 0o755"),
        (layer({"a": b"", "b": b""}), layer({"b": b"", "a": b""}), "a: the same files in another order"),
        (
            layer({"a": b""}),
            layer({"a": b""}) + bytes(512),
            "the same files: the tar headers or the compression differ",
        ),
    ],
)
def test_differ_on_what_contents_do_not_show(tmp_path: Path, one: bytes, two: bytes, said: str) -> None:
    packed = [layout(tmp_path / name, [gzip.compress(data)], "tar+gzip") for name, data in (("1", one), ("2", two))]
    assert differ.explain(*packed)[-1].strip() == said


def test_differ_on_configuration_and_on_a_broken_layout(tmp_path: Path) -> None:
    one = layout(tmp_path / "1", [layer({"a": b""})], config={"created": "1"})
    two = layout(tmp_path / "2", [layer({"a": b""})], config={"created": "2"})
    assert differ.explain(one, two)[-1] == "all layers are equal; the configuration differs in: created"
    (tmp_path / "3").write_bytes(b"nothing")
    with pytest.raises(UsageError, match="cannot be compared"):
        differ.explain(one, str(tmp_path / "3"))


OLD = Image("sha256:aa", (("sha256:1", 30_000_000), ("sha256:2", 100)), Contents({"bash:amd64": "5"}, {"torch": "2.7"}))
NEW = Image(
    "sha256:bb",
    (("sha256:1", 30_000_000), ("sha256:3", 2_000_000)),
    Contents({"bash:amd64": "5", "zsh:amd64": "5"}, {"torch": "2.8"}, {"A": "<b>|x"}, {"/usr/local/bin/x": "f" * 64}),
)


def test_change_report_names_what_changed_and_nothing_else() -> None:
    text = changes.markdown(OLD, NEW, {"verify": "5 pass", "signature": "not signed"})
    assert "2.0 MB of layers (2000000 bytes)" in text
    assert "| zsh:amd64 | – | 5 |" in text
    assert "| torch | 2.7 | 2.8 |" in text
    assert "bash" not in text
    assert "| A | – | <b>\\|x |" in text
    assert "- signature: not signed" in text
    assert "<b>" not in (page := changes.page(OLD, NEW, {}))
    assert page.count("<table>") == page.count("</table>") == 6


def test_change_report_is_short_without_a_change() -> None:
    assert changes.markdown(OLD, OLD, {}).count("\n") == 3
    assert "<table>" not in changes.page(OLD, OLD, {})


def test_a_layer_twice_in_an_image_is_pulled_once() -> None:
    assert changes.pulled((), (("sha256:1", 5), ("sha256:1", 5), ("sha256:2", 1))) == 6
    assert changes.pulled(NEW.layers, NEW.layers) == 0


def test_bill_of_materials_is_what_cyclonedx_asks_for() -> None:
    found = Contents(
        {"g++-13:amd64": "13.3.0-13+b1"}, {"Jinja2": "3.1", "torch": "2.8.0+cu128"}, licenses={"Jinja2": "MIT"}
    )
    for text in (sbom.debian(found, "a:1", "sha256:aa"), sbom.python(found, "a:1", "sha256:aa")):
        bill = json.loads(text)
        # The fields that the schema of CycloneDX 1.5 requires, and the forms it gives them.
        assert (bill["bomFormat"], bill["specVersion"], bill["version"]) == ("CycloneDX", "1.5", 1)
        assert re.fullmatch(r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", bill["serialNumber"])
        for part in bill["components"]:
            assert {"type", "name"} <= part.keys()
            assert re.fullmatch(r"pkg:(deb/debian|pypi)/[^@ ]+@[^ ]+", part["purl"])
        references = [part["bom-ref"] for part in bill["components"]]
        assert len(set(references)) == len(references) > 0
    assert json.loads(sbom.python(found, "a:1", "sha256:aa"))["components"][0]["licenses"] == [{"expression": "MIT"}]
    assert sbom.debian(found, "a:1", "sha256:aa") == sbom.debian(found, "a:1", "sha256:aa")
    assert sbom.debian(found, "a:1", "sha256:aa") != sbom.debian(found, "a:1", "sha256:bb")


def test_contents_that_were_cut_off_are_no_contents() -> None:
    good = "deb\tbash\t5\tamd64\npy\ttorch\t2.8\tBSD\nfile\tab  /a b\nend\n"
    found = contents.parse(good, {"A": "1"}, "sha256:b")
    assert (found.debian, found.python, found.files) == ({"bash:amd64": "5"}, {"torch": "2.8"}, {"/a b": "ab"})
    with pytest.raises(UsageError, match="cut off"):
        contents.parse(good.removesuffix("end\n"), {}, "")


def test_provenance_names_base_and_locks(tmp_path: Path) -> None:
    (tmp_path / "docker").mkdir()
    (tmp_path / "docker/requirements.txt").write_text("x")
    text = provenance.statement(
        image="r/a", digest="sha256:aa", base="sha256:bb", labels={}, root=tmp_path, build="make", started="now"
    )
    found = json.loads(text)["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert found[0]["digest"]["gitCommit"] == "unknown"
    assert [f["digest"]["sha256"] for f in found[1:]] == ["bb", hashlib.sha256(b"x").hexdigest()]


def promoted(digest: str) -> dict[str, Any]:
    return {"kind": "promote", "digest": digest, "when": "2026"}


def back(digest: str, origin: str) -> dict[str, Any]:
    return {"kind": "rollback", "digest": digest, "from": origin, "when": "2027"}


def test_a_rollback_takes_back_what_came_after() -> None:
    past = [promoted("a"), promoted("b"), promoted("c"), back("b", "c")]
    assert [r["digest"] for r in promotions.stack(past)] == ["a", "b"]
    assert promotions.rejected(past) == {"c": "2027"}
    past += [back("a", "b")]
    assert [r["digest"] for r in promotions.stack(past)] == ["a"]
    past += [promoted("c")]
    assert promotions.rejected(past) == {"b": "2027"}


def test_nothing_to_go_back_to(tmp_path: Path) -> None:
    given = made(tmp_path)
    with pytest.raises(UsageError, match="nothing to go back to"):
        promotions.rollback(given)
    history.append(given.promotions, promoted("a"))
    with pytest.raises(UsageError, match="knows 1 promoted"):
        promotions.rollback(given)


def test_what_may_be_deleted(tmp_path: Path) -> None:
    given = made(tmp_path, keep=2)
    for digest in "abcd":
        history.append(given.candidates, {"kind": "pushed", "digest": digest})
    for digest in "acd":
        history.append(given.promotions, promoted(digest))
    assert sorted(promotions.expired(given, "d")) == ["a", "b"]
    history.append(given.candidates, {"kind": "deleted", "digest": "b"})
    assert promotions.expired(given, "d") == ["a"]
    history.append(given.candidates, {"kind": "pushed", "digest": "b"})
    assert sorted(promotions.expired(given, "a")) == ["b"]


def test_an_unfinished_night_goes_on_the_same_day_only(tmp_path: Path) -> None:
    night = state.at_hand(tmp_path, {"commit": "1"}, NOW).with_step("build", state.Step("done", "x", {"id": "y"}, 1.0))
    state.save(tmp_path, night)
    assert state.at_hand(tmp_path, {"commit": "1"}, NOW + timedelta(hours=1)) == night
    for inputs, time in (
        ({"commit": "2"}, NOW),
        ({"commit": "1"}, NOW + timedelta(hours=13)),
        ({"commit": "1"}, NOW - timedelta(seconds=1)),  # the clock went back
    ):
        assert state.at_hand(tmp_path, inputs, time).steps == {}
    (tmp_path / "night.json").write_text("{")
    assert state.at_hand(tmp_path, {"commit": "1"}, NOW).steps == {}


def test_settings_that_would_be_sorry_later(tmp_path: Path) -> None:
    assert settings.checked(made(tmp_path)).keep == 7
    for more, said in (({"keep": 0}, "no verified image"), ({"tags": ("latest",)}, "own"), ({"tags": ("-x",)}, "tag")):
        with pytest.raises(UsageError, match=said):
            settings.checked(made(tmp_path, **more))
    with pytest.raises(UsageError, match="has a tag"):
        settings.checked(Settings("a:1", "r.example/a:1", tmp_path, "", ""))
    assert cli.main(["nightly", "run"]) == 2


class Guarded(BaseHTTPRequestHandler):
    """A registry that wants a bearer token, which its token service gives for a password."""

    def do_GET(self) -> None:
        where = f"http://127.0.0.1:{self.server.server_address[1]}/token"
        if self.path.startswith("/token"):
            good = self.headers.get("Authorization") == "Basic dTpw"
            self.answer(200 if good else 401, b'{"token": "t"}')
        elif self.headers.get("Authorization") == "Bearer t":
            self.answer(200, b"{}", {"Docker-Content-Digest": "sha256:aa"})
        else:
            self.answer(401, b"", {"WWW-Authenticate": f'Bearer realm="{where}",service="s",scope="pull"'})

    def answer(self, code: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(code)
        for name, value in {**(headers or {}), "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Quiet."""


@pytest.fixture
def guarded() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Guarded)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def test_login_by_token(guarded: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    place = registry.of(f"{guarded}/a/b")
    with pytest.raises(UsageError, match="wrong or expired; `docker login"):
        registry.manifest(place, "latest")
    (tmp_path / "config.json").write_text(json.dumps({"auths": {guarded: {"auth": "dTpw"}}}))
    found = registry.manifest(place, "latest")
    assert found is not None
    assert found.digest == "sha256:aa"


def test_registry_names() -> None:
    assert registry.of("ubuntu") == registry.Registry("registry-1.docker.io", "library/ubuntu")
    assert registry.of("r.example:5/a/b") == registry.Registry("r.example:5", "a/b")
    assert registry.loopback("127.0.0.1:5000")
    assert not registry.loopback("127.0.0.1.example.org")
