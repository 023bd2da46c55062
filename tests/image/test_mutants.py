"""A broken image is rejected by the right check with a hint that helps, and no other check cries wolf.

Two containers at a time share verify's record of the libraries it has read, and a mutant that leaves alone what is
imported and compiled skips those checks; the whole table would take a quarter of an hour otherwise. What verify said of
each mutant is kept in .build/mutants.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.image.mutants import HARMLESS, MUTANTS, PRELUDE, SLOW, Mutant
from verify.core import Run, discover
from verify.report.text import render

ROOT = Path(__file__).parents[2]
REPORTS = ROOT / ".build" / "mutants"
CONTENT = {"pass", "skip"}
# Wheels of the same Python that belong to torch 2.7; the locked ones belong to 2.8.
STRANGERS = ("torchvision==0.22.1", "torchaudio==2.7.1", "xformers==0.0.31.post1")

Results = dict[str, dict[str, Any]]


@pytest.fixture(scope="session")
def wheels(facts: dict[str, Any]) -> Path:
    """The wheels of another torch, for the image's Python, kept between runs."""
    minor = ".".join(facts["python"].split(".")[:2])
    folder = ROOT / ".build" / "strangers" / minor
    if len(list(folder.glob("*.whl"))) < len(STRANGERS):
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "-d", str(folder)]
        command += ["--python-version", minor, "--implementation", "cp"]
        for level in ("manylinux_2_28_x86_64", "manylinux2014_x86_64", "manylinux_2_17_x86_64"):
            command += ["--platform", level]
        done = subprocess.run([*command, *STRANGERS], capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.fail(f"The wheels of another torch cannot be had from the Python index: {done.stderr[-300:]}")
    return folder


@pytest.fixture(scope="session")
def runs(
    client: Any, image: Any, wheels: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Any:
    """Starts the mutants of all selected tests, two containers at a time; name → future of verify's results."""
    from docker.types import Mount

    selected = [item.callspec.params for item in request.session.items if hasattr(item, "callspec")]
    chosen = [params["mutant"] for params in selected if "mutant" in params]
    cache = tmp_path_factory.mktemp("cache")
    static = [check.id for check in discover().values() if check.tier == "static"]
    REPORTS.mkdir(parents=True, exist_ok=True)

    def judge(mutant: Mutant) -> Results:
        setup = f"( {PRELUDE}\n{mutant.script} ) >&2 || exit 99"
        exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in mutant.environment.items())
        ids = " ".join(id_ for id_ in static if not (mutant.light and id_ in SLOW))
        command = f"exec /opt/venv/bin/python -m verify run {ids} --about {mutant.about} --no-progress"
        script = f"{setup}\n{exports}{command} --quiet --json -"
        container = client.containers.create(
            image.attrs["asked"],
            ["timeout", "--kill-after=5", "400", "bash", "-c", script],
            environment={"XDG_CACHE_HOME": "/cache"},
            mounts=[
                Mount("/wheels", str(wheels), type="bind", read_only=True),
                Mount("/cache", str(cache), type="bind"),
            ],
            network_mode="none",
            shm_size="1g",
        )
        try:
            container.start()
            code = container.wait(timeout=420)["StatusCode"]
            text = container.logs(stdout=True, stderr=False).decode()
            noise = container.logs(stdout=False, stderr=True).decode()
        finally:
            container.remove(force=True, v=True)
        assert code in {0, 1}, f"{mutant.name} could not be set up or judged (exit code {code}): {noise[-500:]}"
        found = json.loads(text)
        (REPORTS / f"{mutant.name}.txt").write_text(render(Run.from_dict(found), width=120))
        return {result["id"]: result for result in found["results"]}

    with ThreadPoolExecutor(2) as pool:
        started: dict[str, Future[Results]] = {m.name: pool.submit(judge, m) for m in chosen}
        yield started
        for future in started.values():
            future.cancel()


@pytest.mark.timeout(1500)
@pytest.mark.parametrize("mutant", HARMLESS, ids=lambda m: m.name)
def test_harmless_oddity_is_passed_over(runs: Any, mutant: Mutant) -> None:
    said = {id_: r["message"] for id_, r in runs[mutant.name].result().items() if r["status"] not in CONTENT}
    assert said == {}


@pytest.mark.timeout(1500)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.name)
def test_mutant_is_rejected_by_the_right_check(runs: Any, mutant: Mutant) -> None:
    results = runs[mutant.name].result()
    said = {id_: r for id_, r in results.items() if r["status"] not in CONTENT}
    missed = [id_ for id_ in mutant.rejected_by if said.get(id_, {}).get("status") != "fail"]
    assert missed == [], {id_: (r["status"], r["message"]) for id_, r in said.items()}
    wolf = {
        id_: (r["status"], r["message"]) for id_, r in said.items() if id_ not in mutant.rejected_by + mutant.follows
    }
    assert wolf == {}
    hints = " ".join(said[id_]["hint"] for id_ in mutant.rejected_by)
    assert mutant.hint in hints
