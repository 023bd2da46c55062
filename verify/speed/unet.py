"""A UNet of Stable Diffusion 1.5's shape, for machines without diffusers: same blocks, same 859.5 M parameters."""

from __future__ import annotations

import math
from typing import Any

# The published configuration of stable-diffusion-v1-5's unet.
CHANNELS, PER_BLOCK, TEXT, HEADS, LATENT = (320, 640, 1280, 1280), 2, 768, 8, 4
ATTENDS = (True, True, True, False)  # the deepest level has no attention


def build(channels: tuple[int, ...] = CHANNELS, text: int = TEXT, heads: int = HEADS, groups: int = 32) -> Any:
    """Module of (latents (b, 4, h, w), steps (b,), text (b, n, `text`)) → noise (b, 4, h, w)."""
    import torch
    from torch import nn
    from torch.nn import functional as f

    embedded = 4 * channels[0]

    class Residual(nn.Module):  # type: ignore[misc]
        def __init__(self, into: int, out: int) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.GroupNorm(groups, into), nn.GroupNorm(groups, out)
            self.conv1, self.conv2 = nn.Conv2d(into, out, 3, padding=1), nn.Conv2d(out, out, 3, padding=1)
            self.time = nn.Linear(embedded, out)
            self.skip = nn.Conv2d(into, out, 1) if into != out else nn.Identity()

        def forward(self, x: Any, t: Any) -> Any:
            made = self.conv1(f.silu(self.norm1(x))) + self.time(f.silu(t))[:, :, None, None]
            return self.skip(x) + self.conv2(f.silu(self.norm2(made)))

    class Attention(nn.Module):  # type: ignore[misc]
        def __init__(self, width: int, context: int) -> None:
            super().__init__()
            self.q = nn.Linear(width, width, bias=False)
            self.k, self.v = (nn.Linear(context, width, bias=False) for _ in range(2))
            self.out = nn.Linear(width, width)

        def forward(self, x: Any, context: Any) -> Any:
            b, n, width = x.shape
            q, k, v = (
                t.view(b, -1, heads, width // heads).transpose(1, 2)
                for t in (self.q(x), self.k(context), self.v(context))
            )
            return self.out(f.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, width))

    class Transformer(nn.Module):  # type: ignore[misc]
        def __init__(self, width: int) -> None:
            super().__init__()
            self.norm = nn.GroupNorm(groups, width, eps=1e-6)
            self.into, self.out = nn.Conv2d(width, width, 1), nn.Conv2d(width, width, 1)
            self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
            self.itself, self.cross = Attention(width, width), Attention(width, text)
            self.up, self.down = nn.Linear(width, 8 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any, words: Any) -> Any:
            b, c, h, w = x.shape
            y = self.into(self.norm(x)).flatten(2).transpose(1, 2)
            seen = self.norms[0](y)
            y = y + self.itself(seen, seen)
            y = y + self.cross(self.norms[1](y), words)
            value, gate = self.up(self.norms[2](y)).chunk(2, -1)
            y = y + self.down(value * f.gelu(gate))
            return x + self.out(y.transpose(1, 2).reshape(b, c, h, w))

    class Level(nn.Module):  # type: ignore[misc]
        """Residual blocks, each with attention behind it if `attends`, and a change of size at the end."""

        def __init__(self, sizes: list[tuple[int, int]], attends: bool, change: Any) -> None:
            super().__init__()
            self.residuals = nn.ModuleList(Residual(*size) for size in sizes)
            self.attention = nn.ModuleList(Transformer(out) for _, out in sizes) if attends else None
            self.change = change

        def one(self, index: int, x: Any, t: Any, words: Any) -> Any:
            x = self.residuals[index](x, t)
            return self.attention[index](x, words) if self.attention is not None else x

    class Unet(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            first, last = channels[0], channels[-1]
            self.time1, self.time2 = nn.Linear(first, embedded), nn.Linear(embedded, embedded)
            self.into = nn.Conv2d(LATENT, first, 3, padding=1)
            self.downs, self.ups, skips = nn.ModuleList(), nn.ModuleList(), [first]
            width = first
            for level, out in enumerate(channels):
                deepest = level == len(channels) - 1
                sizes = [(width if n == 0 else out, out) for n in range(PER_BLOCK)]
                change = None if deepest else nn.Conv2d(out, out, 3, stride=2, padding=1)
                self.downs.append(Level(sizes, ATTENDS[level], change))
                skips += [out] * (PER_BLOCK + (not deepest))
                width = out
            self.middle = nn.ModuleList((Residual(last, last), Transformer(last), Residual(last, last)))
            for level in reversed(range(len(channels))):
                out, sizes = channels[level], []
                for _ in range(PER_BLOCK + 1):
                    sizes.append((width + skips.pop(), out))
                    width = out
                change = nn.Conv2d(out, out, 3, padding=1) if level else None
                self.ups.append(Level(sizes, ATTENDS[level], change))
            self.norm, self.last = nn.GroupNorm(groups, first), nn.Conv2d(first, LATENT, 3, padding=1)

        def forward(self, x: Any, steps: Any, words: Any) -> Any:
            half = channels[0] // 2
            rates = torch.exp(-math.log(10000.0) * torch.arange(half, device=x.device) / half)
            angles = steps.float()[:, None] * rates[None]
            t = self.time2(f.silu(self.time1(torch.cat([angles.cos(), angles.sin()], -1).to(x.dtype))))
            x = self.into(x)
            kept = [x]
            for level in self.downs:
                for n in range(PER_BLOCK):
                    x = level.one(n, x, t, words)
                    kept.append(x)
                if level.change is not None:
                    x = level.change(x)
                    kept.append(x)
            before, attention, after = self.middle
            x = after(attention(before(x, t), words), t)
            for level in self.ups:
                for n in range(PER_BLOCK + 1):
                    x = level.one(n, torch.cat([x, kept.pop()], 1), t, words)
                if level.change is not None:
                    x = level.change(f.interpolate(x, scale_factor=2.0, mode="nearest"))
            return self.last(f.silu(self.norm(x)))

    return Unet()
