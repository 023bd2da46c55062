"""Workloads at a size a CPU runs in seconds: builder, check and closures work. No figure is looked at.

They run where VERIFY_STACK_PYTHON names an interpreter that has torch and torchvision.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import pytest

from verify import child, core

STACK = os.environ.get("VERIFY_STACK_PYTHON", "")
pytestmark = pytest.mark.skipif(not STACK, reason="NOT PROVEN HERE: VERIFY_STACK_PYTHON names no Python that has torch")
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
LEFT_OUT = {
    "resnet.fp32_nchw",
    "resnet.fp32_channels_last",
    "resnet.tf32_nchw",
    "resnet.amp_nchw",
    "resnet.amp_channels_last",
    "diffusion.sample_fp16",
}


@cache
def answers() -> dict[str, Any]:
    """What the worker tells of all workloads on the CPU, in one process."""
    ids = sorted(set(core.BENCHES) - LEFT_OUT)
    env = child.environment({"OMP_NUM_THREADS": "1"})
    ended = child.run([STACK, "-m", "verify.speed.worker", "cpu", *ids], timeout=400, env=env)
    said = child.last_answer(ended)
    assert isinstance(said, dict), ended.tail
    assert "raised" not in said, said
    done: dict[str, Any] = said["done"]
    return done


@pytest.mark.parametrize("ident", sorted(set(core.BENCHES) - LEFT_OUT - GPU_ONLY))
def test_a_workload_builds_checks_and_runs(ident: str) -> None:
    bench, made = core.BENCHES[ident], answers()[ident]
    assert "raised" not in made, made.get("trace")
    assert set(made["times"]) == ({"eager", "compiled"} if bench.figure == "ratio" else {"time"})
    assert all(len(times) == 2 for times in made["times"].values())
    assert made["errors"]
    assert all(error <= limit for error, limit in made["errors"].values())
    needed = {"rate": "flops", "bandwidth": "bytes", "items": "items"}.get(bench.figure)
    assert needed is None or made[needed] > 0


@pytest.mark.parametrize("ident", sorted(GPU_ONLY))
def test_what_a_cpu_has_not_is_said(ident: str) -> None:
    assert answers()[ident]["not_here"]


def test_the_own_unet_has_the_published_number_of_parameters() -> None:
    code = (
        "import torch\nfrom verify.speed import unet\n"
        "with torch.device('meta'): made = unet.build()\n"
        "print(sum(p.numel() for p in made.parameters()))"
    )
    ended = child.run([STACK, "-c", code], timeout=120, env=child.environment())
    assert ended.stdout.strip() == "859520964", ended.tail
