"""What starting a kernel costs: the bound of everything made of many small steps."""

from __future__ import annotations

from typing import Any

from verify.core import bench
from verify.speed.work import NotHere, Setup, Work

KERNELS = 1000


def counted(setup: Setup) -> tuple[Any, Any]:
    """A number, and a function that adds one to it KERNELS times, one kernel each."""
    import torch

    x = torch.zeros(1, device=setup.device)

    def call() -> None:
        for _ in range(KERNELS):
            x.add_(1.0)

    return x, call


@bench(figure="time", unit="us", quick=True, group="kernels", seconds=1.3)
def kernel(setup: Setup) -> Work:
    """Launching a small kernel from Python takes microseconds only."""
    x, call = counted(setup)

    def check() -> dict[str, tuple[float, float]]:
        x.zero_()
        call()
        return {"kernels missing": (abs(float(x) - KERNELS), 0.0)}

    return Work(
        {"time": call}, check, {"kernel": "add_ of one float32"}, inner=KERNELS, wall=True, seconds=0.5, most=60
    )


@bench(figure="time", unit="us", quick=True, group="kernels", seconds=1.3)
def graph(setup: Setup) -> Work:
    """A small kernel inside a replayed CUDA graph takes less than a launch of its own."""
    import torch

    if setup.device != "cuda":
        raise NotHere("CUDA graphs need a GPU.")
    x, call = counted(setup)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        call()
    torch.cuda.current_stream().wait_stream(side)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        call()

    def check() -> dict[str, tuple[float, float]]:
        x.zero_()
        captured.replay()
        return {"kernels missing": (abs(float(x) - KERNELS), 0.0)}

    return Work(
        {"time": captured.replay},
        check,
        {"kernel": "add_ of one float32", "nodes": KERNELS},
        inner=KERNELS,
        wall=True,
        seconds=0.5,
        most=60,
    )
