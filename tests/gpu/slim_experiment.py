"""Slims a private copy of this machine's torch for its card, and compares it with the original; needs a GPU.

    python3 tests/gpu/slim_experiment.py [--out FOLDER]

Every operator of slim_operators.py runs three times a process, in two processes with the original and two with the
slimmed torch: an output passes when it is bit-identical to one of the original's, or no further from the nearest of
them than these are from each other. Then the whole GPU tier of `verify` runs on both. Last, a copy slimmed for another
card shows what that card's error is. Exit code 0: all equal.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
OPERATORS = Path(__file__).with_name("slim_operators.py")
REPEATS = 3
OTHER_CARD = "sm_75"  # what the wrong copy is slimmed for

KERNEL = 'import torch; print((torch.ones(8, device="cuda") * 2).sum().item())'


def copy(torch: Path, site: Path) -> None:
    """A private site-packages with this torch alone; NVIDIA's libraries lie beside it, where its RPATH looks."""

    def same(source: str, target: str) -> None:
        try:
            os.link(source, target)  # `slim` replaces files, so the original keeps its content
        except OSError:
            shutil.copy2(source, target)

    site.mkdir(parents=True)
    shutil.copytree(torch, site / "torch", copy_function=same, symlinks=True)
    for info in torch.parent.glob("torch-*.dist-info"):
        shutil.copytree(info, site / info.name)
    (site / "nvidia").symlink_to(torch.parent / "nvidia")


def call(arguments: list[str], site: Path | None, work: Path, limit: int = 150) -> subprocess.CompletedProcess[str]:
    """Runs this Python with `site` first on its path, and with caches of its own."""
    name = site.name if site else "original"
    paths = [str(p) for p in (site, ROOT) if p] + [p for p in (os.environ.get("PYTHONPATH"),) if p]
    caches = {f"{n}_CACHE_DIR": str(work / f"cache-{name}") for n in ("TORCHINDUCTOR", "TRITON")}
    environment = {**os.environ, **caches, "PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=limit,
        check=False,
    )


def operators(site: Path | None, work: Path, number: int) -> tuple[dict[str, Any], Path]:
    """One process of all operators: its figures, and the file with its outputs."""
    file = work / f"outputs-{number}.pt"
    done = call([str(OPERATORS), str(file), str(REPEATS)], site, work)
    if done.returncode:
        raise SystemExit(f"error: the operators did not run: {done.stderr[-1500:]}")
    return json.loads(done.stdout.strip().splitlines()[-1]), file


def distance(left: Any, right: Any) -> float:
    """0 for equal bits, else the largest difference; infinite for another shape or for NaN in other places."""
    import torch

    if left.shape != right.shape or left.dtype != right.dtype:
        return float("inf")
    same_nan = torch.equal(left.isnan(), right.isnan())
    if torch.equal(left, right) or (same_nan and torch.equal(left.nan_to_num(), right.nan_to_num())):
        return 0.0
    gap = (left.double() - right.double()).abs().max().item()
    return gap if gap == gap else float("inf")


def compare(originals: list[Any], slimmed: list[Any]) -> dict[str, dict[str, Any]]:
    """Operator → verdict: identical, within the original's spread, or DIFFERENT."""
    rows: dict[str, dict[str, Any]] = {}
    for name in {**originals[0]["outputs"], **originals[0]["errors"], **slimmed[0]["errors"]}:
        said = [run["errors"].get(name, "") for run in (*originals, *slimmed)]
        if any(said):
            rows[name] = {"verdict": "same error" if len(set(said)) == 1 else "DIFFERENT", "errors": said}
            continue
        base = [out for run in originals for out in run["outputs"][name]]
        ours = [out for run in slimmed for out in run["outputs"][name]]
        spread = max(distance(x, y) for x in base for y in base)
        far = max(min(distance(x, y) for y in base) for x in ours)
        verdict = "identical" if far == 0 else "within spread" if far <= spread else "DIFFERENT"
        rows[name] = {"verdict": verdict, "distance": far, "spread": spread}
    return rows


def tier(site: Path | None, work: Path, out: Path) -> dict[str, Any]:
    """The GPU tier: id → result."""
    file = out / f"gpu-tier-{site.name if site else 'original'}.json"
    done = call(["-m", "verify", "run", "--tier", "gpu", "--quiet", "--no-progress", "--json", str(file)], site, work)
    if not file.exists():
        raise SystemExit(f"error: the GPU tier did not run: {done.stderr[-1500:]}")
    return {result["id"]: result for result in json.loads(file.read_text())["results"]}


def main() -> int:
    """Everything, then the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--out", type=Path, default=Path(os.environ.get("OUT", ".")), help="folder for the JSON results"
    )
    out: Path = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    import torch

    if not torch.cuda.is_available():
        print("error: torch sees no GPU here; run this on a machine with one.", file=sys.stderr)
        return 2
    major, minor = torch.cuda.get_device_capability()
    target = f"sm_{major}{minor}"
    started = time.monotonic()
    work = Path(tempfile.mkdtemp(prefix="slim-"))
    try:
        return experiment(Path(torch.__file__).parent, target, work, out)
    finally:
        shutil.rmtree(work, ignore_errors=True)
        print(f"{time.monotonic() - started:.0f} s in all")


def experiment(package: Path, target: str, work: Path, out: Path) -> int:
    """Slims, runs, compares, prints, writes slim-experiment.json."""
    import torch

    site, wrong = work / "slimmed", work / "wrong"
    copy(package, site)
    copy(package, wrong)
    manifest = out / "slim-manifest.json"
    slim = ["-m", "verify", "slim", str(site), "--target", target, "--manifest", str(manifest)]
    began = time.monotonic()
    done = call(slim, None, work)
    seconds = time.monotonic() - began
    print(done.stdout, done.stderr, sep="", flush=True)
    audit = call(
        ["-m", "verify", "audit", str(site), "--target", target, "--driver", "580.0", "--no-cache"], None, work
    )
    print(audit.stdout, flush=True)
    plan = [(None, 0), (site, 1), (None, 2), (site, 3)]
    runs = [operators(where, work, number) for where, number in plan]
    results = [torch.load(file) for _, file in runs]
    rows = compare(results[::2], results[1::2])
    tiers = [tier(where, work, out) for where in (None, site)]
    statuses = {name: (tiers[0][name]["status"], tiers[1].get(name, {}).get("status", "missing")) for name in tiers[0]}
    call(
        ["-m", "verify", "slim", str(wrong), "--target", OTHER_CARD, "--manifest", str(work / "wrong.json")], None, work
    )
    foreign = call(["-c", KERNEL], wrong, work)
    last = foreign.stderr.strip().splitlines() or ["no error"]
    error = next((line for line in last if "rror" in line and "Traceback" not in line), last[-1])

    print(f"{'':24}{'original':>12}{'slimmed':>12}{'original':>12}{'slimmed':>12}")
    for key in ("import_s", "first_kernel_s", "all_s", "gpu_mib", "host_mib"):
        print(f"{key:24}" + "".join(f"{run[0][key]:>12}" for run in runs))
    counts = {
        v: sum(row["verdict"] == v for row in rows.values())
        for v in ("identical", "within spread", "same error", "DIFFERENT")
    }
    print(f"{len(rows)} operators: " + ", ".join(f"{n} {v}" for v, n in counts.items() if n))
    for name, row in rows.items():
        if row["verdict"] != "identical":
            print(f"  {name}: {row}")
    unequal = {name: pair for name, pair in statuses.items() if pair[0] != pair[1]}
    passed = sum(pair[0] == "pass" for pair in statuses.values())
    print(f"GPU tier, {len(statuses)} checks: {passed} pass with the original; slimmed differs in: {unequal or 'none'}")
    print(f"slimmed for {OTHER_CARD}, run on {target}: exit code {foreign.returncode}, {error[:200]}")
    private = all(str(site) in run[0]["torch"] for run in runs[1::2])
    good = private and not counts["DIFFERENT"] and not unequal and done.returncode == audit.returncode == 0
    print(f"the slimmed torch was imported: {private}; slim took {seconds:.1f} s; {'EQUAL' if good else 'NOT EQUAL'}")
    summary = {
        "target": target,
        "torch": torch.__version__,
        "slim_seconds": seconds,
        "runs": [run[0] for run in runs],
        "operators": rows,
        "gpu_tier": statuses,
        "wrong_card": {
            "slimmed_for": OTHER_CARD,
            "exit_code": foreign.returncode,
            "error": error,
            "stderr": foreign.stderr[-3000:],
        },
        "equal": good,
    }
    (out / "slim-experiment.json").write_text(json.dumps(summary, indent=1))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
