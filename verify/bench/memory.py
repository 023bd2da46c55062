"""Copies: inside the card's memory, and between pinned host memory and the card."""

from __future__ import annotations

from typing import Any

from verify.core import bench
from verify.speed.work import Setup, Work

MIB = 1 << 20


def copy(setup: Setup, source: Any, target: Any, *, moved: int, conditions: dict[str, Any]) -> Work:
    """`target` becomes `source`; `moved` bytes cross the link in question."""
    import torch

    source.copy_(torch.randint(0, 127, source.shape, dtype=torch.uint8, device=setup.device))

    def call() -> Any:
        return target.copy_(source, non_blocking=True)

    def check() -> dict[str, tuple[float, float]]:
        target.zero_()
        call()
        if setup.device == "cuda":
            torch.cuda.synchronize()
        wrong = int((target.to(source.device) != source).sum())
        return {"bytes changed": (float(wrong), 0.0)}

    return Work(
        calls={"time": call},
        check=check,
        conditions={"mib": source.numel() // MIB, **conditions},
        bytes=float(moved),
        seconds=0.5,
        most=60,
    )


def pinned(setup: Setup, size: int) -> Any:
    """Bytes in page-locked host memory."""
    import torch

    return torch.empty(size, dtype=torch.uint8, pin_memory=setup.device == "cuda")


@bench(figure="bandwidth", bound="memory", quick=True, group="kernels", seconds=1.3)
def dram_copy(setup: Setup) -> Work:
    """A copy inside the card's memory is as fast as that memory; bytes read and written both count."""
    import torch

    size = setup.pick(1024 * MIB, MIB)  # far more than any L2 cache
    source, target = (torch.empty(size, dtype=torch.uint8, device=setup.device) for _ in range(2))
    return copy(setup, source, target, moved=2 * size, conditions={"way": "device to device"})


@bench(figure="bandwidth", bound="pcie", quick=True, group="kernels", seconds=1.3)
def h2d_pinned(setup: Setup) -> Work:
    """A copy from pinned memory to the card is as fast as the PCIe link."""
    import torch

    size = setup.pick(256 * MIB, MIB)
    target = torch.empty(size, dtype=torch.uint8, device=setup.device)
    return copy(setup, pinned(setup, size), target, moved=size, conditions={"way": "pinned host to device"})


@bench(figure="bandwidth", bound="pcie", quick=True, group="kernels", seconds=1.3)
def d2h_pinned(setup: Setup) -> Work:
    """A copy from the card to pinned memory is as fast as the PCIe link."""
    import torch

    size = setup.pick(256 * MIB, MIB)
    source = torch.empty(size, dtype=torch.uint8, device=setup.device)
    return copy(setup, source, pinned(setup, size), moved=size, conditions={"way": "device to pinned host"})
