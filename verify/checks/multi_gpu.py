"""NCCL: a world of one on any machine, and all GPUs together where there are several."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from verify import child
from verify.core import Outcome, check, fail, pass_, skip, warn
from verify.gpu.ask import NO_JIT, TIMEOUT, ask
from verify.machine import Machine
from verify.scratch import RECORDED, place

NO_P2P = {"NCCL_P2P_DISABLE": "1"}
# GB/s of bus bandwidth that a healthy path exceeds: host memory over PCIe 3.0 x8, the slowest path there is reason for.
FLOOR = 2.0


@check(needs=("gpu", "torch"), timeout=2 * TIMEOUT)
def world_of_one(m: Machine) -> Outcome:
    """NCCL starts and its collectives are right in a world of one process."""
    return ask(m, "devices", "one_process")


def launch(gpus: int, where: str, extra: dict[str, str], timeout: float = 120) -> list[tuple[child.Child, Any]]:
    """One process a GPU; what each said. They meet through a file in `where`."""
    folder = tempfile.mkdtemp(prefix="verify-", dir=where or None)

    def one(rank: int) -> tuple[child.Child, Any]:
        env = {**NO_JIT, **extra, "RANK": str(rank), "WORLD": str(gpus), "STORE": os.path.join(folder, "store")}
        ended = child.run([sys.executable, "-m", "verify.gpu.multi_gpu"], timeout=timeout, env=child.environment(env))
        return ended, child.last_answer(ended)

    try:
        with ThreadPoolExecutor(gpus) as pool:
            return list(pool.map(one, range(gpus)))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def trouble(said: Sequence[tuple[child.Child, Any]]) -> str:
    """What went wrong in a run over all GPUs, "" when nothing did."""
    for rank, (ended, answer) in enumerate(said):
        if not isinstance(answer, dict):
            words = [line for line in ended.tail.splitlines() if "rror" in line][-1:]
            return f"rank {rank} ended by {ended.ending[1] or 'no answer'}{': ' + words[0][:160] if words else ''}"
        if answer["wrong"]:
            return f"rank {rank} has wrong results in {', '.join(answer['wrong'])}"
    return ""


def judge(usual: Sequence[tuple[child.Child, Any]], without: Sequence[tuple[child.Child, Any]] | None) -> Outcome:
    """`without` is the same run with NCCL_P2P_DISABLE=1, made when the usual one failed."""
    why = trouble(usual)
    if why and without is not None and not trouble(without):
        return fail(
            f"NCCL over all GPUs fails with direct access between cards, and works without it: {why}.",
            hint="Set NCCL_P2P_DISABLE=1; on the host switch off IOMMU/ACS, which breaks direct access between cards.",
        )
    if why:
        return fail(
            f"NCCL over all GPUs fails, with and without direct access between cards: {why}.",
            hint="Start the container with --shm-size=8g --ulimit memlock=-1; NCCL_DEBUG=INFO shows where it stops.",
        )
    rate = min(answer["gbs"] for _, answer in usual)
    direct = all(p for _, answer in usual for p in answer["peers"])
    path = "direct access between cards" if direct else "host memory, as GeForce cards of this kind do"
    data = {"gbs": rate, "direct": direct}
    if not rate >= FLOOR:
        return warn(
            f"All-reduce is right and slow: {rate:.1f} GB/s of bus bandwidth over {path}.",
            hint="Look at `verify run condition` for narrow PCIe links, and at nvidia-smi topo -m on the host.",
            data=data,
        )
    return pass_(f"{len(usual)} GPUs: collectives are right, all-reduce {rate:.1f} GB/s over {path}.", data=data)


@check(needs=("multi_gpu", "torch"), timeout=300)
def collectives(m: Machine) -> Outcome:
    """NCCL's collectives are right over all GPUs of this machine."""
    if m.recorded:
        return skip(RECORDED)
    usual = launch(len(m.gpus), place(m), {})
    return judge(usual, launch(len(m.gpus), place(m), NO_P2P) if trouble(usual) else None)
