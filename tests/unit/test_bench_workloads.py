"""Workloads at a size a CPU runs in seconds: builder, check and closures work. No figure is looked at."""

from __future__ import annotations

import pytest

from verify import core
from verify.speed.watch import Watch
from verify.speed.work import NotHere, Setup
from verify.speed.worker import measure

pytest.importorskip("torch", reason="NOT PROVEN HERE: torch is not installed")
core.discover("verify.bench")
GPU_ONLY = {
    "attention.flash_attn",
    "attention.sdpa_cudnn",
    "attention.sdpa_efficient",
    "attention.xformers",
    "gemm.fp8",
    "launch.graph",
}
# One of each family of models: the others differ by a number format.
SLOW = {
    "resnet.fp32_nchw",
    "resnet.fp32_channels_last",
    "resnet.tf32_nchw",
    "resnet.tf32_channels_last",
    "resnet.amp_nchw",
    "diffusion.sample_fp16",
}


@pytest.mark.parametrize("ident", sorted(set(core.BENCHES) - SLOW - GPU_ONLY))
def test_a_workload_builds_checks_and_runs(ident: str) -> None:
    bench = core.BENCHES[ident]
    made = measure(bench, Setup("cpu", tiny=True), Watch())
    assert set(made["times"]) == ({"eager", "compiled"} if bench.figure == "ratio" else {"time"})
    assert all(len(times) == 2 for times in made["times"].values())
    assert made["errors"]
    assert all(error <= limit for error, limit in made["errors"].values())
    needed = {"rate": "flops", "bandwidth": "bytes", "items": "items"}.get(bench.figure)
    assert needed is None or made[needed] > 0


@pytest.mark.parametrize("ident", sorted(GPU_ONLY))
def test_what_a_cpu_has_not_is_said(ident: str) -> None:
    with pytest.raises(NotHere):
        measure(core.BENCHES[ident], Setup("cpu", tiny=True), Watch())
