"""Training steps of a GPT-2-124M-shaped decoder and of a BERT-base-shaped encoder, random weights and tokens."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from verify.core import bench
from verify.speed.work import Setup, Work, agree, precision

FLOOR = 1e-2


def gpt2(layers: int, width: int, heads: int, vocabulary: int, length: int) -> Any:
    """GPT-2's decoder: learnt positions, pre-norm blocks, GELU (tanh), tied output; no dropout. (b, n) → (b, n, v)."""
    import torch
    from torch import nn
    from torch.nn import functional as f

    class Block(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            b, n, _ = x.shape
            q, k, v = (t.view(b, n, heads, width // heads).transpose(1, 2) for t in self.qkv(self.ln_1(x)).chunk(3, -1))
            made = f.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(made.transpose(1, 2).reshape(b, n, width))
            return x + self.down(f.gelu(self.up(self.ln_2(x)), approximate="tanh"))

    class Gpt2(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
            self.blocks = nn.ModuleList(Block() for _ in range(layers))
            self.last, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
            for p in self.parameters():
                if p.dim() > 1:
                    nn.init.normal_(p, std=0.02)
            self.head.weight = self.tokens.weight

        def forward(self, x: Any) -> Any:
            made = self.tokens(x) + self.places(torch.arange(x.shape[1], device=x.device))
            for block in self.blocks:
                made = block(made)
            return self.head(self.last(made))

    return Gpt2()


def encoder(layers: int, width: int, heads: int, vocabulary: int) -> Any:
    """torch's own TransformerEncoder behind an embedding, with a linear output. (b, n) → (b, n, v)."""
    from torch import nn

    class Encoder(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            layer = nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
            self.tokens = nn.Embedding(vocabulary, width)
            self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
            self.head = nn.Linear(width, vocabulary)

        def forward(self, x: Any) -> Any:
            return self.head(self.layers(self.tokens(x)))

    return Encoder()


def training(setup: Setup, model: Any, *, batch: int, length: int, vocabulary: int, amp: bool, name: str) -> Work:
    """A whole step of language modelling: forward, loss, backward, fused AdamW."""
    import torch
    from torch.nn import functional as f

    precision(tf32=True)
    model = model.to(setup.device).train()
    x, y = (torch.randint(0, vocabulary, (batch, length), device=setup.device) for _ in range(2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)

    def forward(net: Any, low: bool = amp) -> tuple[Any, Any]:
        with torch.autocast(setup.device, torch.bfloat16, enabled=low):
            out = net(x)
            return f.cross_entropy(out.flatten(0, 1), y.flatten()), out[:1]  # one sequence is enough to compare

    def step(net: Any) -> None:
        optimizer.zero_grad(set_to_none=True)
        forward(net)[0].backward()
        optimizer.step()

    compiled = setup.compile(model)
    held = sum(p.numel() for p in model.parameters())
    reference: Callable[[], tuple[Any, Any]] | None = partial(forward, model, low=False)
    return Work(
        calls={"eager": partial(step, model), "compiled": partial(step, compiled)},
        check=lambda: agree(
            partial(forward, model), partial(forward, compiled), model.parameters(), reference=reference, floor=FLOOR
        ),
        conditions={
            "model": f"{name}, random weights, {held / 1e6:.0f} M parameters",
            "batch": batch,
            "length": length,
            "amp": "bfloat16" if amp else "off",
            "tf32": "on",
            "memory_format": "contiguous",
            "sdpa": "torch's choice",
            "optimizer": "AdamW fused, not compiled",
        },
        # 6 per parameter and token (Kaplan et al., 2020), attention's own products left out.
        flops=6.0 * held * batch * length,
        items=batch * length,
        item="tokens",
    )


def gpt2_work(setup: Setup, *, amp: bool, batch: int) -> Work:
    """GPT-2 small: 12 layers, width 768, 12 heads, 50257 tokens, 1024 places."""
    import torch

    layers, width, heads, vocabulary, length = setup.pick((12, 768, 12, 50257, 1024), (2, 64, 2, 211, 32))
    with torch.device(setup.device):
        model = gpt2(layers, width, heads, vocabulary, length)
    return training(
        setup,
        model,
        batch=setup.pick(batch, 2),
        length=length,
        vocabulary=vocabulary,
        amp=amp,
        name="GPT-2-124M-shaped",
    )


@bench(figure="ratio", quick=True, seconds=5.5)
def gpt2_amp(setup: Setup) -> Work:
    """Compiling speeds up GPT-2-124M training, bf16 autocast, 8 x 1024 tokens."""
    return gpt2_work(setup, amp=True, batch=8)


@bench(figure="ratio", seconds=5.5)
def gpt2_tf32(setup: Setup) -> Work:
    """Compiling speeds up GPT-2-124M training, TF32, 4 x 1024 tokens."""
    return gpt2_work(setup, amp=False, batch=4)


@bench(figure="ratio", seconds=5.5)
def encoder_tf32(setup: Setup) -> Work:
    """Compiling speeds up the training of a BERT-base-shaped encoder, TF32, 16 x 512 tokens."""
    import torch

    layers, width, heads, vocabulary, length = setup.pick((12, 768, 12, 30522, 512), (2, 64, 2, 211, 32))
    with torch.device(setup.device):
        model = encoder(layers, width, heads, vocabulary)
    return training(
        setup,
        model,
        batch=setup.pick(16, 2),
        length=length,
        vocabulary=vocabulary,
        amp=False,
        name="BERT-base-shaped encoder (torch.nn.TransformerEncoder)",
    )
