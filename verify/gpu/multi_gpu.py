"""NCCL over all GPUs of this machine: one process each, started by the parent with RANK, WORLD and STORE set."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

ELEMENTS = 16 << 20  # float32: 64 MiB a GPU


def main() -> None:
    """One rank: all-reduce, reduce-scatter, all-gather, then the time of an all-reduce; answers with a dict."""
    import torch
    from torch import distributed as dist

    from verify.child import answer

    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD"])
    torch.cuda.set_device(rank)
    store = dist.FileStore(os.environ["STORE"], world)
    dist.init_process_group("nccl", store=store, rank=rank, world_size=world, device_id=torch.device("cuda", rank))
    wrong: list[str] = []

    def same(name: str, found: Any, value: float) -> None:
        if not bool((found == value).all()):
            wrong.append(name)

    x = torch.full((ELEMENTS,), rank + 1.0, device="cuda")
    dist.all_reduce(x)
    same("all_reduce", x, world * (world + 1) / 2)
    part = torch.empty(1024, device="cuda")
    dist.reduce_scatter_tensor(part, torch.full((1024 * world,), rank + 1.0, device="cuda"))
    same("reduce_scatter", part, world * (world + 1) / 2)
    whole = torch.empty(1024 * world, device="cuda")
    dist.all_gather_into_tensor(whole, torch.full((1024,), float(rank), device="cuda"))
    same("all_gather", whole.view(world, -1) - torch.arange(float(world), device="cuda").unsqueeze(1), 0.0)
    # Some drivers offered direct access that GeForce cards do not have, and such copies came back as zeros.
    other = (rank + 1) % world
    there = torch.arange(1 << 20, device="cuda").to(f"cuda:{other}")
    torch.cuda.synchronize(other)
    if not torch.equal(there.cpu(), torch.arange(1 << 20)):
        wrong.append(f"a copy from card {rank} to card {other}")
    times = []
    for _ in range(10):
        torch.cuda.synchronize()
        started = time.monotonic()
        dist.all_reduce(x)
        torch.cuda.synchronize()
        times.append(time.monotonic() - started)
    # Bus bandwidth as nccl-tests define it: 2 (n - 1) / n of the bytes cross the slowest link.
    rate = 2 * (world - 1) / world * 4 * ELEMENTS / sorted(times)[len(times) // 2] / 1e9
    peers = [torch.cuda.can_device_access_peer(rank, other) for other in range(world) if other != rank]
    answer({"wrong": wrong, "gbs": rate, "peers": peers})
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
    sys.stdout.flush()
