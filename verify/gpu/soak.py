"""Minutes of load and every free byte of the card's memory, in a child process. Run when asked for."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

from verify.core import Outcome, pass_, skip
from verify.gpu.probes import Context, probe

MINUTES = "VERIFY_SOAK_MINUTES"
DEFAULT = 10.0
CHUNK = 256 << 20  # bytes of one tensor
KEEP = 1 << 30  # bytes left free for the comparison's own scratch and for CUDA
# Moving inversions and the address in its own place (Memtest86+'s tests 3 and 2): a stuck bit shows under one of two
# opposite patterns, a wrong address line when the word found belongs to another place.
PATTERNS = (0, -1, 0x5555555555555555, -0x5555555555555556)
SIZE = 8192


def minutes() -> float:
    """How long the load runs, from the environment; DEFAULT when that is no number above zero."""
    try:
        given = float(os.environ.get(MINUTES, ""))
    except ValueError:
        return DEFAULT
    return given if 0 < given < float("inf") else DEFAULT


def chunks() -> list[Any]:
    """All free memory but KEEP, as int64 tensors."""
    import torch

    held = []
    while torch.cuda.mem_get_info()[0] > KEEP + CHUNK:
        try:
            held.append(torch.empty(CHUNK // 8, dtype=torch.int64, device="cuda"))
        except torch.cuda.OutOfMemoryError:  # noqa: PERF203 - another process was faster
            break
    return held


def passes(held: list[Any]) -> Iterator[tuple[str, Any]]:
    """(name, function of a chunk's number that gives what it must hold)."""
    import torch

    words = CHUNK // 8
    for value in PATTERNS:
        yield f"0x{value & (2**64 - 1):016x}", lambda _, value=value: value
    places = torch.arange(words, dtype=torch.int64, device="cuda")
    yield "its own address", lambda number: places + number * words
    yield "its own address, inverted", lambda number: ~(places + number * words)


@probe
def memory(_: Context) -> Outcome:
    """data: GiB tested, and for each wrong chunk the pattern, the number of wrong words and the first of them."""
    import torch

    held = chunks()
    if not held:
        return skip("The card has too little free memory for a test of its memory.")
    wrong: list[dict[str, Any]] = []
    for name, expected in passes(held):
        # All of it is written before any of it is read: a cache cannot answer, and two places that are one show.
        for number, chunk in enumerate(held):
            value = expected(number)
            chunk.fill_(value) if isinstance(value, int) else chunk.copy_(value)
        torch.cuda.synchronize()
        for number, chunk in enumerate(held):
            bad = chunk != expected(number)
            count = int(bad.sum())
            if count:
                first = int(bad.nonzero()[0])
                wrong.append({"pattern": name, "chunk": number, "words": count, "offset": number * CHUNK + 8 * first})
    return pass_("Tested.", data={"gib": round(len(held) * CHUNK / (1 << 30), 2), "wrong": wrong[:20]})


@probe
def load(_: Context) -> Outcome:
    """data: minutes, products, products that differ from the first, and what NVML saw (verify.speed.watch)."""
    import torch

    from verify.speed.watch import Watch

    made = torch.Generator().manual_seed(5)
    a, b = (torch.randn(SIZE, SIZE, generator=made).to("cuda", torch.float16) for _ in range(2))
    first, out = a @ b, torch.empty(SIZE, SIZE, dtype=torch.float16, device="cuda")
    asked, started, count, wrong = minutes(), time.monotonic(), 0, 0
    with Watch().during() as looks:
        while time.monotonic() - started < 60 * asked:
            for _turn in range(50):
                torch.mm(a, b, out=out)
                count += 1
            # The same kernel on the same numbers: any difference is a computing error.
            wrong += int(not torch.equal(out, first))
        torch.cuda.synchronize()
    spent = (time.monotonic() - started) / 60
    tflops = 2.0 * SIZE**3 * count / (60 * spent) / 1e12
    data = {"minutes": round(spent, 2), "products": count, "wrong": wrong, "tflops": round(tflops, 1)}
    return pass_("Loaded.", data={**data, "card": looks.summary()})
