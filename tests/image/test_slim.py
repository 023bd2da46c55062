"""Slimming: the good stack, slimmed in a container, passes every static check; one that lost a container does not."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest

# Zeroes what the image's first target needs in one container of a library, as a slip of `verify slim` would.
LOSE = """
import sys
from pathlib import Path
from verify import coverage, elf, fatbin
from verify.slim import decide, edit
path, targets = Path(sys.argv[1]), [coverage.parse_target(t) for t in sys.argv[2:]]
with elf.mapped(path) as data:
    container = fatbin.read(data, elf.read(data)).containers[5]
entries = decide.needed(container.entries, targets)
assert entries
edit.zeroed(path, [decide.Span(e.payload_offset, e.payload_size) for e in entries])
"""
SITE = "$(python -c 'import sysconfig; print(sysconfig.get_path(\"purelib\"))')"
JUDGE = "python -m verify run --about image --tier static --quiet --no-progress --json - || true"


def results(done: Any) -> dict[str, dict[str, Any]]:
    assert done.code == 0, done.err[-800:]
    return {result["id"]: result for result in json.loads(done.out)["results"]}


@pytest.mark.timeout(600)
def test_slimmed_stack_passes_every_static_check(sh: Any, facts: dict[str, Any]) -> None:
    targets = ",".join(facts["targets"])
    said = results(sh(f"python -m verify slim {SITE} --target {targets} >&2 && {JUDGE}"))
    assert {id_: r["message"] for id_, r in said.items() if r["status"] not in {"pass", "skip"}} == {}
    assert said["binaries.libraries_run_on_targets"]["status"] == "pass"


@pytest.mark.timeout(600)
def test_stack_that_lost_one_needed_container_is_rejected(sh: Any, facts: dict[str, Any]) -> None:
    lose = f'python -c {shlex.quote(LOSE)} "{SITE}/torch/lib/libtorch_cuda.so" {" ".join(facts["targets"])}'
    said = results(sh(f"{lose} && {JUDGE}"))
    assert {id_ for id_, r in said.items() if r["status"] == "fail"} == {"binaries.libraries_run_on_targets"}
    assert "lost the code for" in said["binaries.libraries_run_on_targets"]["message"]
    assert "torch" in said["binaries.libraries_run_on_targets"]["hint"]


def test_slim_manifest_is_for_the_declared_targets(facts: dict[str, Any], box: Any) -> None:
    if facts["slim"] is None:
        pytest.skip("the image was built with SLIM=off")
    assert facts["slim"]["targets"] == facts["targets"]
    assert {"torch/lib/libtorch_cuda.so", "torch/lib/libtorch_cuda_linalg.so"} <= {
        file["path"] for file in facts["slim"]["files"]
    }
    sums = "\n".join(f"{file['sha256_after']}  {file['path']}" for file in facts["slim"]["files"])
    done = box(f"cd {SITE} && sha256sum --quiet -c - <<'END'\n{sums}\nEND")
    assert (done.code, done.out) == (0, "")
    gone = " ".join(item["path"] for item in facts["slim"]["dropped"])
    assert box(f"cd {SITE} && ls {gone} 2>/dev/null").out == ""
