"""Images from a DataLoader's workers to the card."""

from __future__ import annotations

import os
from typing import Any

from verify.core import bench
from verify.speed.work import Setup, Work

BATCH, SIZE, POOL = 64, 224, 64
BATCHES = 8  # in one timed call


def dataset() -> Any:
    """An endless stream of (3, 224, 224) uint8: a random crop and flip of one of POOL random 256 x 256 images."""
    import torch
    from torch.utils.data import Dataset

    class Images(Dataset):  # type: ignore[misc]
        def __init__(self) -> None:
            self.pool = torch.randint(0, 256, (POOL, 3, SIZE + 32, SIZE + 32), dtype=torch.uint8)

        def __len__(self) -> int:
            return 1 << 30

        def __getitem__(self, index: int) -> Any:
            top, left = index * 7 % 32, index * 13 % 32
            image = self.pool[index % POOL, :, top : top + SIZE, left : left + SIZE]
            return (image.flip(-1) if index % 2 else image).contiguous()

    return Images()


@bench(figure="items", unit="images/s", quick=True, group="kernels", seconds=3.5)
def loader(setup: Setup) -> Work:
    """A DataLoader with pinned memory brings images to the card faster than ResNet-50 takes them."""
    from torch.utils.data import DataLoader, SequentialSampler

    data = dataset()
    workers = setup.pick(min(4, len(os.sched_getaffinity(0))), 0)
    batch = setup.pick(BATCH, 2)
    pin = setup.device == "cuda"
    made = DataLoader(
        data,
        batch,
        sampler=SequentialSampler(data),
        num_workers=workers,
        pin_memory=pin,
        persistent_workers=workers > 0,
    )
    stream = iter(made)
    sums: list[Any] = []

    def call() -> None:
        for _ in range(BATCHES):
            on_card = next(stream).to(setup.device, non_blocking=True)
            # What a training loop does first; without it the copy would be all.
            sums.append(on_card.float().mul_(1 / 255).mean())
            del sums[:-1]

    def check() -> dict[str, tuple[float, float]]:
        host = next(stream)
        there = host.to(setup.device, non_blocking=True)
        return {"bytes changed": (float((there.cpu() != host).sum()), 0.0)}

    return Work(
        {"time": call},
        check,
        {"workers": workers, "batch": batch, "image": "3 x 224 x 224 uint8, cropped and flipped", "pinned": pin},
        items=float(batch * BATCHES),
        item="images",
        wall=True,
        seconds=1.5,
        least=7,
        most=30,
    )
