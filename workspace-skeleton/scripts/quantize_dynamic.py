"""Quantise and compile: dynamic quantisation on the CPU, weights of 8 bits on the GPU.

`torch.ao.quantization.quantize_dynamic` makes layers that run on the CPU alone; a compiled call of them must stay
there. On a GPU keep the weights in int8 and let the compiler melt their conversion into the product: half the bytes of
float16, which is what counts when few rows are computed at once.
"""

from __future__ import annotations

import copy
import warnings

import torch
from torch import nn
from torch.nn import functional

import _common as common


class Int8Linear(nn.Module):
    """A linear layer whose weight is int8 with one scale per output; computes in the dtype of its input."""

    def __init__(self, old: nn.Linear) -> None:
        super().__init__()
        scale = old.weight.detach().float().abs().amax(dim=1, keepdim=True) / 127
        weight = (old.weight.detach().float() / scale).round().clamp(-127, 127).to(torch.int8)
        self.register_buffer("weight", weight)
        self.register_buffer("scale", scale[:, 0].to(old.weight.dtype))
        self.bias = old.bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        product = functional.linear(x, self.weight.to(x.dtype)) * self.scale
        return product if self.bias is None else product + self.bias


def int8_weights(model: nn.Module) -> nn.Module:
    """A copy in which every linear layer holds int8 weights. Works on any device."""
    made = copy.deepcopy(model)
    for parent in list(made.modules()):
        for name, layer in list(parent.named_children()):
            if isinstance(layer, nn.Linear):
                setattr(parent, name, Int8Linear(layer))
    return made


def dynamic_quantised(model: nn.Module) -> nn.Module:
    """A copy for the CPU with int8 weights and activations that are quantised as they come."""
    from torch.ao.quantization import quantize_dynamic

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch announces torchao as the successor
        made: nn.Module = quantize_dynamic(copy.deepcopy(model).cpu().float(), {nn.Linear}, dtype=torch.qint8)
    return made


def mib(model: nn.Module) -> float:
    """MiB of weights, packed ones too."""
    held = sum(t.numel() * t.element_size() for t in [*model.parameters(), *model.buffers()])
    for layer in model.modules():
        weight = getattr(layer, "weight", None)
        if callable(weight):  # a packed layer of quantize_dynamic gives its weight when asked
            held += weight().numel()
    return float(held / 2**20)


def main() -> None:
    parser = common.parser(__doc__)
    common.size(parser, "--width", 4096, 64, "features; the hidden layer is four times as wide")
    common.size(parser, "--layers", 8, 2, "feed-forward blocks")
    common.size(parser, "--rows", 1, 1, "rows per call; a language model that writes for one person has one")
    common.size(parser, "--repeat", 30, 3, "timed calls")
    run = common.start(parser, "quantize_dynamic")
    o = run.options

    def block() -> nn.Module:
        return nn.Sequential(
            nn.LayerNorm(o.width), nn.Linear(o.width, 4 * o.width), nn.GELU(), nn.Linear(4 * o.width, o.width)
        )

    dtype = run.dtype
    with torch.device(run.device), torch.no_grad():
        model = nn.Sequential(*(block() for _ in range(o.layers))).to(dtype).eval()
        x = torch.randn(o.rows, o.width, dtype=dtype)
        exact = model(x)
    kind = str(dtype).removeprefix("torch.")
    cases: list[tuple[str, nn.Module, torch.Tensor]] = [(f"{kind}, {run.device}", model, x)]
    cases.append((f"int8 weights, {run.device}", int8_weights(model), x))
    if "fbgemm" in torch.backends.quantized.supported_engines or "x86" in torch.backends.quantized.supported_engines:
        few = nn.Sequential(*list(model)[:1]) if run.device == "cuda" else model  # one block is enough for the CPU
        cases.append(("dynamic int8, cpu", dynamic_quantised(few), x.cpu().float()))
    else:
        print("note: this torch has no engine for quantised layers on this CPU, so that row is missing.")

    rows = [("", "weights MiB", "eager ms", "compiled ms", "relative error")]
    times: dict[str, float] = {}
    with torch.no_grad():
        for name, case, given in cases:
            torch.compiler.reset()
            compiled = torch.compile(case)
            want = exact if case is not cases[-1][1] or run.device == "cpu" else model[0](x)
            error = ((compiled(given).to(want) - want).norm() / want.norm()).item()
            if not error < 0.05:
                raise common.Stop(f"{name} is off by {error:.0%}: the quantised model is wrong.", 1)
            slow = common.seconds(lambda: case(given), o.repeat)  # noqa: B023
            times[name] = common.seconds(lambda: compiled(given), o.repeat)  # noqa: B023
            rows.append((name, f"{mib(case):.2f}", f"{slow * 1e3:.3f}", f"{times[name] * 1e3:.3f}", f"{error:.1e}"))
    common.table(rows)
    plain, small = list(times.values())[:2]
    smaller = mib(cases[0][1]) / mib(cases[1][1])
    words = f"int8 weights, compiled: {plain / small:.2f}x as fast as {kind}, {smaller:.1f}x smaller"
    run.finish(words, milliseconds={name: 1e3 * value for name, value in times.items()}, speedup=plain / small)


if __name__ == "__main__":
    common.main(main)
