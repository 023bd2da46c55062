"""Train a GPT-2-sized Transformer on synthetic text, eager and compiled, and say how much faster compiled is.

The text is arithmetic: each token follows from the one before, so the loss falls when learning works.
"""

from __future__ import annotations

import time

import torch
from torch import nn
from torch.nn import functional

import _common as common


class Block(nn.Module):
    """Attention and a feed-forward layer, each behind a LayerNorm, each added to what came in."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_feed = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        split = (batch, length, self.heads, width // self.heads)
        q, k, v = (part.view(split).transpose(1, 2) for part in self.qkv(self.before_attention(x)).chunk(3, dim=-1))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.feed(self.before_feed(x))


class Transformer(nn.Module):
    """Tokens in, the next token's logits out. (batch, length) → (batch, length, vocabulary)."""

    def __init__(self, vocabulary: int, width: int, layers: int, heads: int, length: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        logits: torch.Tensor = self.head(self.norm(self.blocks(self.tokens(tokens) + self.places(places))))
        return logits


def text(batch: int, length: int, vocabulary: int, device: str) -> torch.Tensor:
    """(batch, length + 1) tokens; each is five times the one before plus three, modulo 97."""
    rows = [torch.randint(0, min(97, vocabulary), (batch,), device=device)]
    for _ in range(length):
        rows.append((rows[-1] * 5 + 3) % min(97, vocabulary))
    return torch.stack(rows, dim=1)


def main() -> None:
    parser = common.parser(__doc__)
    common.size(parser, "--batch", 16, 4, "sequences per step")
    common.size(parser, "--length", 1024, 32, "tokens of a sequence")
    common.size(parser, "--layers", 12, 2, "blocks")
    common.size(parser, "--width", 768, 32, "features of a token, a multiple of 64 or 16")
    common.size(parser, "--vocabulary", 50304, 128, "different tokens")
    common.size(parser, "--steps", 30, 8, "steps of each, eager and compiled")
    parser.add_argument("--lr", type=float, default=6e-4, help="learning rate of AdamW (default 0.0006)")
    run = common.start(parser, "train_transformer")
    o = run.options
    head = 16 if run.tiny else 64
    if o.width % head:
        raise common.Stop(f"--width {o.width} is no multiple of {head}, the width of one attention head.")
    batches = [text(o.batch, o.length, o.vocabulary, run.device) for _ in range(4)]
    writer = run.writer()

    def train(compiled: bool) -> tuple[float, float, float, float]:
        """Tokens per second, seconds of the first step, first and last loss."""
        torch.manual_seed(o.seed)
        model = Transformer(o.vocabulary, o.width, o.layers, o.width // head, o.length).to(run.device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=o.lr, fused=run.device == "cuda")
        fast = torch.compile(model) if compiled else model
        kind, losses, times = "compiled" if compiled else "eager", [], []
        for number in common.bar(range(o.steps), kind):
            begin = time.perf_counter()
            tokens = batches[number % len(batches)]
            with torch.autocast(run.device, torch.bfloat16):
                loss = functional.cross_entropy(fast(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            losses.append(loss.item())  # waits for the GPU, so that the time is this step's
            times.append(time.perf_counter() - begin)
            if writer:
                writer.add_scalar(f"loss/{kind}", losses[-1], number)
        usual = sorted(times[1:] or times)[len(times[1:]) // 2]
        return o.batch * o.length / usual, times[0], losses[0], losses[-1]

    rows = [("", "tokens/s", "first step s", "first loss", "last loss")]
    results = {}
    for name in ("eager", "compiled"):
        results[name] = train(name == "compiled")
        rate, first, before, after = results[name]
        rows.append((name, f"{rate:.0f}", f"{first:.1f}", f"{before:.2f}", f"{after:.2f}"))
    if writer:
        writer.close()
    common.table(rows)
    if not results["compiled"][3] < results["compiled"][2]:
        raise common.Stop("the loss did not fall: train longer (--steps), or use a smaller --lr.")
    speedup = results["compiled"][0] / results["eager"][0]
    words = f"compiled {speedup:.2f}x, {results['compiled'][0]:.0f} tokens/s, {common.peak_gib():.1f} GiB"
    run.finish(words, speedup=speedup, tokens_per_second=results["compiled"][0], peak_gib=common.peak_gib())


if __name__ == "__main__":
    common.main(main)
