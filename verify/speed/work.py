"""What a benchmark is given (Setup) and what it returns (Work), and the helpers its builders share. Child side."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from verify.gpu.numbers import relative

Call = Callable[[], Any]
Errors = dict[str, tuple[float, float]]  # name → (error, the largest that is allowed)


class NotHere(Exception):
    """The workload cannot run on this machine; the text says why. It becomes a skip."""


@dataclass(frozen=True)
class Setup:
    """Where a workload is built. `tiny` shrinks it to what a CPU runs in a second: a test of the builder, no figure."""

    device: str = "cuda"
    tiny: bool = False

    def compile(self, module: Any) -> Any:
        """torch.compile with its default mode; on the CPU only the capture of the graph, which needs no compiler."""
        import torch

        return torch.compile(module, backend="eager") if self.tiny else torch.compile(module)

    def pick(self, full: Any, tiny: Any) -> Any:
        """`full`, or `tiny` in a test."""
        return tiny if self.tiny else full


@dataclass(frozen=True)
class Work:
    """Closures to time: {"eager", "compiled"} for a ratio, {"time"} otherwise; each runs one whole step.

    `flops` and `bytes` are those of one call, `items` what it processes (`item` names one). `check` gives the errors of
    the output with their limits and runs before anything is timed. `inner` divides a time by the calls it holds.
    `wall` takes the host's clock instead of CUDA events.
    """

    calls: Mapping[str, Call]
    check: Callable[[], Errors]
    conditions: Mapping[str, Any] = field(default_factory=dict)
    flops: float = 0.0
    bytes: float = 0.0
    items: float = 0.0
    item: str = ""
    inner: int = 1
    wall: bool = False
    seconds: float = 2.0
    least: int = 11
    most: int = 40


def precision(*, tf32: bool) -> None:
    """Float32 products and convolutions in TF32, or in full float32."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = tf32
    torch.backends.cudnn.allow_tf32 = tf32


@contextmanager
def full_precision() -> Iterator[None]:
    """TF32 and autocast off: the reference a faster format is judged against."""
    import torch

    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    precision(tf32=False)
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


Pass = Callable[[], tuple[Any, Any]]  # one forward pass: (loss, output)
NOISY = 0.25  # an error of eager's own gradient beyond which it tells nothing


def gradients(forward: Pass, parameters: list[Any]) -> tuple[float, Any, list[Any]]:
    """Loss, output and all gradients of one pass; the parameters are left without gradients."""
    for p in parameters:
        p.grad = None
    loss, output = forward()
    loss.backward()
    made = [p.grad.detach() for p in parameters if p.grad is not None]
    for p in parameters:
        p.grad = None
    return float(loss.detach()), output.detach(), made


def apart(found: list[Any], exact: list[Any]) -> float:
    """‖found − exact‖ / ‖exact‖ over lists of tensors, summed in float32 a tensor and float64 over them.

    Exact enough for limits of 1e-4 and more. NaN when a tensor holds one.
    """
    away: float = sum(float((a.float() - b.float()).square().sum()) for a, b in zip(found, exact, strict=True))
    scale: float = sum(float(b.float().square().sum()) for b in exact)
    return math.sqrt(away / scale) if scale else math.sqrt(away)


def agree(eager: Pass, compiled: Pass, parameters: Iterable[Any], *, reference: Pass | None, floor: float) -> Errors:
    """Loss, output and gradients of the compiled model against eager's.

    With a `reference` in float32 the compiled error may be twice eager's own (the rule of flash-attention's and
    dynamo's tests), but `floor` at least. Without one, `floor` is the largest distance from eager itself. Gradients are
    left out where eager's own are NOISY: deep batch normalisation of random weights can amplify bf16 that far.
    """
    given = list(parameters)
    loss_e, out_e, grad_e = gradients(eager, given)
    loss_c, out_c, grad_c = gradients(compiled, given)
    if reference is None:
        return {
            "loss": (abs(loss_c / loss_e - 1), floor),
            "output": (apart([out_c], [out_e]), floor),
            "gradient": (apart(grad_c, grad_e), floor),
        }
    with full_precision():
        loss_r, out_r, grad_r = gradients(reference, given)
    own = apart(grad_e, grad_r)
    made = {
        "loss": (abs(loss_c / loss_r - 1), max(2 * abs(loss_e / loss_r - 1), floor)),
        "output": (apart([out_c], [out_r]), max(2 * apart([out_e], [out_r]), floor)),
    }
    if own <= NOISY or own != own:
        made["gradient"] = (apart(grad_c, grad_r), max(2 * own, floor))
    return made


def rows_against_float64(found: Any, a: Any, b: Any, limit: float, rows: int = 64) -> Errors:
    """The error of some rows of a @ b against float64 on the same device; the rows lie all over the product."""
    step = max(1, a.shape[0] // rows)
    exact = a[::step].double() @ b.double()
    return {"product": (relative(found[::step], exact), limit)}
