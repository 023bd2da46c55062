"""The small models that torch.compile is judged on. Built inside functions, since torch is imported there."""

from __future__ import annotations

from typing import Any

from verify.gpu import probes


def block() -> Any:
    """The reference model: norm, attention, gated feed-forward; float32, TF32 off."""
    import torch
    from torch import nn

    torch.backends.cuda.matmul.allow_tf32 = False
    torch.manual_seed(0)

    class Block(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.last = nn.LayerNorm(128), nn.LayerNorm(128)
            self.qkv, self.out = nn.Linear(128, 384), nn.Linear(128, 128)
            self.up, self.down = nn.Linear(128, 512), nn.Linear(256, 128)

        def forward(self, x: Any) -> Any:
            b, n, _ = x.shape
            q, k, v = (t.view(b, n, 4, 32).transpose(1, 2) for t in self.qkv(self.norm(x)).chunk(3, -1))
            made = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(made.transpose(1, 2).reshape(b, n, 128))
            gate, value = self.up(self.last(x)).chunk(2, -1)
            return x + self.down(nn.functional.silu(gate) * value)

    return Block().to(probes.DEVICE)


def hostile() -> Any:
    """A module that cannot be traced."""
    import torch
    from torch import nn

    class Hostile(nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            torch._dynamo.graph_break()  # stands for any code that cannot be traced
            return x * 2

    return Hostile()


def whole(inner: Any) -> Any:
    """The reference model with `inner` behind it."""
    from torch import nn

    class Whole(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.block, self.inner = block(), inner

        def forward(self, x: Any) -> Any:
            return self.inner(self.block(x)) + 1

    return Whole()
