"""torch.compile, Triton and nvcc: what they make runs here and is right."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from verify import child
from verify.core import Outcome, fail, pass_, skip
from verify.gpu import probes
from verify.gpu.models import block, hostile, whole
from verify.gpu.numbers import UNIT, relative, text
from verify.gpu.probes import Context, probe

# A pool of compile workers takes longer to start than these few kernels to compile; and no vector instructions of the
# CPU need to be tried out. Both are read when torch._inductor is imported.
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")
SOURCES = Path(__file__).parent.parent / "sources"
LADDER = (
    'Lower it step by step: mode="default", then dynamic=False, then @torch.compiler.disable on the submodule that '
    "fails, then no torch.compile at all; clear /workspace/.cache/inductor first."
)
# Same products, other fusions: float32 results differ by the order of sums, some hundred rounding steps at most.
LIMIT = 512 * UNIT["float32"]


def data(rows: int = 64, seed: int = 0) -> Any:
    """(4, rows, 128)."""
    import torch

    return torch.randn(4, rows, 128, generator=torch.Generator().manual_seed(seed)).to(probes.DEVICE)


def fresh() -> None:
    """Forget compiled code and counters."""
    import torch
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    counters.clear()


def counted() -> tuple[int, int]:
    """(graph breaks, graphs compiled) since `fresh`."""
    from torch._dynamo.utils import counters

    return sum(counters["graph_break"].values()), counters["stats"]["unique_graphs"]


def difference(model: Any, compiled: Any, x: Any, *, train: bool) -> float:
    """The largest relative error of output and gradients between compiled and plain."""
    import torch

    results = []
    for call in (model, compiled):
        given = x.clone().requires_grad_(train)
        out = call(given)
        grads = torch.autograd.grad(out.square().sum(), [given, *model.parameters()]) if train else ()
        results.append([out.detach().clone(), *(g.clone() for g in grads)])
    errors = [relative(a, b) for a, b in zip(results[1], results[0], strict=True)]
    return next((e for e in errors if e != e), max(errors))


def judge(title: str, errors: list[float], breaks: int, graphs: int, *, expected: int) -> Outcome:
    """Right, in one piece, compiled as often as expected. NaN fails."""
    facts = {"errors": errors, "graph_breaks": breaks, "graphs": graphs, "expected_graphs": expected}
    bad = [e for e in errors if not e <= LIMIT]
    if bad:
        return fail(
            f"{title}: compiled and plain differ by {text(bad[0])}, allowed {text(LIMIT)}.", hint=LADDER, data=facts
        )
    if breaks:
        return fail(f"{title}: the model was cut in pieces ({breaks} graph breaks).", hint=LADDER, data=facts)
    if graphs != expected:
        return fail(
            f"{title}: compiled {graphs} times, {expected} expected.",
            hint="Set dynamic=True when shapes change, or pad them to a few sizes; TORCH_LOGS=recompiles says why.",
            data=facts,
        )
    return pass_(f"Same numbers ({text(max(errors))}), no graph break, {graphs} graph(s).", data=facts)


def mode(name: str, *, train: bool, calls: int = 1) -> Outcome:
    """One mode of torch.compile with fullgraph=True on the reference model."""
    import torch

    fresh()
    model = block()
    compiled = torch.compile(model, mode=name, fullgraph=True)
    errors = [difference(model, compiled, data(seed=n), train=train) for n in range(calls)]
    return judge(name, errors, *counted(), expected=1)


@probe
def default(_: Context) -> Outcome:
    """mode="default", forward and backward."""
    return mode("default", train=True)


@probe
def reduce_overhead(_: Context) -> Outcome:
    """mode="reduce-overhead": recorded at the second call, replayed from the third on."""
    return mode("reduce-overhead", train=False, calls=4)


@probe
def dynamic_shapes(_: Context) -> Outcome:
    """dynamic=True compiles once for three lengths; dynamic=False once for each."""
    import torch

    model = block()
    told = []
    for dynamic, expected in ((True, 1), (False, 2)):
        fresh()
        compiled = torch.compile(model, dynamic=dynamic, fullgraph=True)
        lengths = (64, 48, 80) if dynamic else (64, 48, 64)
        errors = [difference(model, compiled, data(rows), train=False) for rows in lengths]
        told.append(judge(f"dynamic={dynamic}", errors, *counted(), expected=expected))
    return next(
        (t for t in told if t.status != "pass"),
        pass_("Three lengths: one graph with dynamic=True, two lengths two without."),
    )


@probe
def fallback_ladder(_: Context) -> Outcome:
    """What cannot be compiled whole is excluded by torch.compiler.disable, and the rest still runs compiled."""
    import torch

    x = data()
    fresh()
    model = whole(hostile())
    try:
        torch.compile(model, fullgraph=True)(x)
    except torch._dynamo.exc.Unsupported:
        pass
    else:
        return fail(
            "fullgraph=True accepts code with a graph break.", hint="Reinstall torch in the version of the lock."
        )
    steps: dict[str, Callable[[], Any]] = {
        "mode lowered": lambda: torch.compile(model, mode="default"),
        "dynamic=False": lambda: torch.compile(model, dynamic=False),
        "submodule excluded": lambda: torch.compile(excluded),
    }
    excluded = whole(torch.compiler.disable(hostile()))
    errors, counts = {}, {}
    for name, make in steps.items():
        fresh()
        errors[name] = difference(excluded if "excluded" in name else model, make(), x, train=False)
        counts[name] = counted()
    graphs = counts["submodule excluded"][1]
    facts = {"errors": errors, "breaks_and_graphs": counts}
    bad = {k: e for k, e in errors.items() if not e <= LIMIT}
    eager = [k for k, (_, compiled) in counts.items() if not compiled]
    if bad or eager:
        what = ", ".join(f"{k} {text(e)}" for k, e in bad.items()) or f"nothing was compiled by {', '.join(eager)}"
        return fail(f"A step of the fallback ladder is wrong: {what}.", hint="Run without torch.compile.", data=facts)
    return pass_(f"{', '.join(steps)}: each right, {graphs} graphs around the excluded part.", data=facts)


@probe
def triton_kernel(_: Context) -> Outcome:
    """A Triton kernel, compiled here and run."""
    import torch

    from verify.sources import triton_add as source

    x, y = (torch.randn(100_003, generator=torch.Generator().manual_seed(s)) for s in (1, 2))
    found = source.add(x.to(probes.DEVICE), y.to(probes.DEVICE)).cpu()
    if not torch.equal(found, x + y):
        return fail(
            "A Triton kernel that adds two vectors gives a wrong sum.",
            hint="Remove TRITON_CACHE_DIR and reinstall triton.",
        )
    return pass_("A Triton kernel adds 100003 numbers exactly.")


@probe
def nvcc_extension(context: Context) -> Outcome:
    """A kernel compiled by nvcc for this very card works on torch's memory and stream."""
    import tempfile

    import torch

    if not context.nvcc:
        return skip("nvcc is not on this machine.")
    if not context.place:
        return skip("No folder here is writable and lets code run from it; container.temporary_folder says more.")
    with tempfile.TemporaryDirectory(prefix="verify-", dir=context.place) as where:
        made = f"{where}/kernel.so"
        arch = f"-gencode=arch=compute_{context.sm},code=sm_{context.sm}"
        argv = [context.nvcc, "-shared", "-Xcompiler=-fPIC", arch, str(SOURCES / "launch.cu"), "-o", made]
        ended = child.run(argv, timeout=120, cwd=where, env={**child.environment(), "TMPDIR": where})
        if ended.ending[0]:
            lines = [line for line in ended.tail.splitlines() if line.strip()] or [ended.ending[1]]
            if "Unsupported gpu architecture" in ended.tail or "is not defined for option 'gpu-" in ended.tail:
                return skip(f"This nvcc is older than the card and knows no sm_{context.sm}.")
            return fail(
                f"nvcc does not compile a kernel for sm_{context.sm}: {lines[0][:200]}.",
                hint="`verify run compilers` names what is missing.",
                data={"output": ended.tail},
            )
        launch = ctypes.CDLL(made).launch
        launch.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p]
        x = torch.arange(10_007, dtype=torch.float32, device="cuda")
        out = torch.empty_like(x)
        code = launch(x.data_ptr(), out.data_ptr(), x.numel(), torch.cuda.current_stream().cuda_stream)
        if code or not torch.equal(out, 2 * x + 1):
            return fail(
                f"A kernel compiled by nvcc does not run (CUDA error {code})."
                if code
                else "A kernel compiled by nvcc is wrong.",
                hint="Error 222 or 35: the toolkit is newer than the driver, see `verify run driver`.",
            )
    return pass_(f"A kernel compiled for sm_{context.sm} runs on torch's memory.")


@probe
def max_autotune(_: Context) -> Outcome:
    """mode="max-autotune": Triton's products against cuBLAS, the faster is taken; a CUDA graph from the second call on.

    One product only: each is compiled in many ways at the first run, fewer the smaller it is.
    """
    import torch
    from torch import nn

    fresh()
    torch.backends.cuda.matmul.allow_tf32 = False
    model = nn.Sequential(nn.Linear(32, 32), nn.GELU()).to(probes.DEVICE)
    compiled = torch.compile(model, mode="max-autotune", fullgraph=True)
    given = [data(4, seed=n)[..., :32].contiguous() for n in range(4)]
    return judge("max-autotune", [difference(model, compiled, x, train=False) for x in given], *counted(), expected=1)
