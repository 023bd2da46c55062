"""The speed tier on a real card: every kernel benchmark runs, and what must disturb a figure does."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

import pytest

from verify import child, core, timing
from verify.speed import selftest
from verify.speed.watch import Watch
from verify.speed.work import NotHere, Setup
from verify.speed.worker import measure

core.discover("verify.bench")
KERNELS = sorted(i for i, b in core.BENCHES.items() if b.group == "kernels")
SHARER = """
import torch, time
x = torch.randn(4096, 4096, device="cuda")
until = time.monotonic() + 60
print("ready", flush=True)
while time.monotonic() < until:
    for _ in range(20):
        x @ x
    torch.cuda.synchronize()
"""


@pytest.mark.parametrize("ident", KERNELS)
def test_a_kernel_is_right_and_watched(ident: str) -> None:
    bench = core.BENCHES[ident]
    try:
        made = measure(bench, Setup(), Watch())
    except (NotHere, ImportError) as reason:
        pytest.skip(f"NOT PROVEN HERE: {reason}")
    assert all(error <= limit for error, limit in made["errors"].values()), made["errors"]
    assert all(t > 0 for t in made["times"]["time"])
    assert made["card"]["looks"] > 0
    assert made["card"]["others"] == []


def test_a_wrong_product_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    whole = torch.mm

    def spoilt(a: Any, b: Any, out: Any) -> Any:
        return whole(a, b, out=out).mul_(1.03)

    monkeypatch.setattr(torch, "mm", spoilt)
    made = measure(core.BENCHES["gemm.bf16"], Setup(), Watch())
    error, limit = made["errors"]["product"]
    assert error > limit


def test_company_on_the_card_is_seen() -> None:
    sharer = subprocess.Popen([sys.executable, "-c", SHARER], stdout=subprocess.PIPE, env=child.environment())
    try:
        assert sharer.stdout is not None
        assert sharer.stdout.readline() == b"ready\n"
        time.sleep(1.5)
        assert Watch().quiet(patience=0)
    finally:
        sharer.kill()
        sharer.wait()


def test_an_injected_kernel_takes_what_was_asked() -> None:
    import torch

    a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    clock = timing.events_clock()
    warmth = timing.warm_up({"time": lambda: a @ a}, clock)
    _, achieved = selftest.injection(0.2, 10 * warmth.medians["time"], clock, "cuda")
    assert achieved == pytest.approx(0.2, rel=0.2)
