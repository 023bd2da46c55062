"""The pull benchmark without an engine: its table, its one layer, and what it refuses."""

from __future__ import annotations

import gzip
import hashlib
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from docker.errors import ImageNotFound

from verify import pull_bench
from verify.pull_bench import Variant

LAYERED = Variant("as it is", "bench/layered", 9, 4_000_000_000, "zstd")
SINGLE = Variant("one gzip layer", "bench/single", 1, 5_000_000_000, "gzip")


def test_table_has_bytes_seconds_and_the_ratio_of_pairs() -> None:
    pulls = {"as it is": [10.0, 30.0, 20.0], "one gzip layer": [20.0, 40.0, 50.0]}
    text = pull_bench.table([LAYERED, SINGLE], pulls, {name: [1.0] for name in pulls}, "containerd 1.7")
    _, layered, single, sentence = text.splitlines()
    assert layered.split("  ")[0] == "as it is"
    assert "4000.0 MB zstd" in layered
    assert "20.0 s (10.0–30.0)" in layered
    assert single.split()[-3:] == ["40.0", "s", "(20.0–50.0)"]
    assert "0.50 of the time to pull and unpack and 0.80 of the bytes (3 rounds; containerd 1.7)" in sentence


def test_one_layer_is_gzip_of_all_that_came() -> None:
    digest, parts = hashlib.sha256(), [bytes([n]) * 100_000 for n in range(30)]
    packed = b"".join(pull_bench.gzipped(iter(parts), digest))
    assert gzip.decompress(packed) == b"".join(parts)
    assert digest.hexdigest() == hashlib.sha256(b"".join(parts)).hexdigest()


def engine(monkeypatch: pytest.MonkeyPatch, size: int | None) -> None:
    def get(name: str) -> Any:
        if size is None:
            raise ImageNotFound("none")
        return SimpleNamespace(attrs={"Size": size})

    client = SimpleNamespace(images=SimpleNamespace(get=get))
    monkeypatch.setattr(pull_bench, "connect", lambda timeout: client)
    monkeypatch.setattr(pull_bench.os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")


@pytest.mark.parametrize(("size", "words"), [(None, "There is no image a:1"), (10**15, "1800000.0 GB are needed")])
def test_what_cannot_be_measured_is_refused_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], size: int | None, words: str
) -> None:
    engine(monkeypatch, size)
    assert pull_bench.main(["a:1", "--folder", str(tmp_path)]) == 2
    assert words in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_root_and_containerd_are_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    engine(monkeypatch, 1)
    monkeypatch.setattr(pull_bench.os, "geteuid", lambda: 1000)
    assert pull_bench.main(["a:1", "--folder", str(tmp_path)]) == 2
    assert "Only root" in capsys.readouterr().err
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert pull_bench.main(["a:1", "--folder", str(tmp_path)]) == 2
    assert "install containerd" in capsys.readouterr().err
