"""When torch.compile fails or is slow: where graphs break, why it compiles again, what to leave out, how to fall back.

Five small cases, each with its remedy; the functions `explain` and `compiled_or_not` are for your own code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

import _common as common


def explain(model: Callable[..., Any], *inputs: Any) -> list[str]:
    """Why the graph of a model breaks: one line per break, none when all of it is one graph."""
    found = torch._dynamo.explain(model)(*inputs)
    return [str(reason.reason).strip().splitlines()[0] for reason in found.break_reasons]


def compiled_or_not(
    model: nn.Module, *inputs: Any, ladder: Sequence[dict[str, Any]] = ()
) -> tuple[Callable[..., Any], str]:
    """The first rung of the ladder that compiles this model for these inputs, and its name; or the model itself.

    An error of the model itself comes back as what it is, since the last rung runs it uncompiled.
    """
    rungs = ladder or ({"mode": "max-autotune"}, {}, {"dynamic": True}, {"backend": "aot_eager"})
    for options in rungs:
        name = ", ".join(f"{key}={getattr(value, '__name__', value)}" for key, value in options.items()) or "default"
        torch.compiler.reset()
        tried = torch.compile(model, **options)
        try:
            tried(*inputs)
            return tried, name
        except Exception as error:
            print(f"  {name} failed: {type(error).__name__}: {str(error).strip().splitlines()[0][:90]}")
    model(*inputs)
    return model, "eager"


class Careless(nn.Module):
    """Decides on a value, which is known only when the model runs: the graph breaks there."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        if x.sum() > 0:
            x = -x
        return torch.relu(self.second(x))


class Careful(Careless):
    """The same decision as data: torch.where computes it in the graph."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        x = torch.where(x.sum() > 0, -x, x)
        return torch.relu(self.second(x))


@torch.compiler.disable
def foreign(x: torch.Tensor) -> torch.Tensor:
    """Code that the compiler cannot follow; it stays as it is, and only it."""
    return x + float(x.detach().cpu().numpy().std())


class Mixed(Careless):
    """Such code in the middle. In a loop (or nn.Sequential) the break would leave the whole of it uncompiled."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.second(foreign(torch.relu(self.first(x)))))


def no_compiler(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
    """A back end that stands for a broken installation."""
    raise RuntimeError("no C compiler was found")


def graphs(model: Callable[..., Any], inputs: Sequence[torch.Tensor]) -> int:
    """How many graphs are compiled while the model sees these inputs one after the other."""
    counters = torch._dynamo.utils.counters
    counters.clear()
    for x in inputs:
        model(x)
    return int(counters["stats"]["unique_graphs"])


def main() -> None:
    parser = common.parser(__doc__)
    common.size(parser, "--width", 1024, 16, "features of the small models")
    run = common.start(parser, "compile_troubleshooting")
    width = run.options.width
    x = torch.randn(8, width, device=run.device)
    careless, careful = Careless(width).to(run.device), Careful(width).to(run.device)

    print("1. Where does the graph break?")
    breaks = explain(careless, x)
    print(*(f"  {reason}" for reason in breaks), sep="\n")

    print("2. The same with torch.where: no break, so fullgraph=True works.")
    after = explain(careful, x)
    torch.compiler.reset()
    torch.testing.assert_close(torch.compile(careful, fullgraph=True)(x), careful(x), rtol=1e-2, atol=1e-2)

    print("3. Does each size compile anew?")
    sizes = [torch.randn(n, width, device=run.device) for n in (3, 5, 7, 9, 11)]
    counted = {}
    for name, dynamic in {"dynamic=False": False, "default": None, "dynamic=True": True}.items():
        torch.compiler.reset()
        counted[name] = graphs(torch.compile(careful, dynamic=dynamic), sizes)
        print(f"  {name}: {counted[name]} graphs for {len(sizes)} sizes")

    print("4. A part that must not be compiled: @torch.compiler.disable (torch.compile has no exclude=).")
    torch.compiler.reset()
    parts = graphs(torch.compile(Mixed(width).to(run.device)), [x])
    print(f"  {parts} graphs, before and behind it")

    print("5. Down the ladder until something works:")
    broken = ({"backend": no_compiler}, {"backend": "aot_eager"})
    _, rung = compiled_or_not(careful, x, ladder=broken)
    print(f"  {rung} works")
    _, best = compiled_or_not(careful, x)
    print(f"  on this machine: {best}")

    if not breaks or after or counted["dynamic=True"] > counted["default"] or parts != 2 or rung != "backend=aot_eager":
        raise common.Stop(
            "torch.compile behaves differently here from what this script shows: run `verify run compile`.", 1
        )
    words = ", ".join(f"{name} {count}" for name, count in counted.items())
    words = f"graph breaks {len(breaks)} to {len(after)}; graphs for {len(sizes)} sizes: {words}; {best} works"
    run.finish(words, breaks=breaks, graphs=counted, rung=best)


if __name__ == "__main__":
    common.main(main)
