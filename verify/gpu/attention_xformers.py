"""xFormers' memory_efficient_attention: the op it dispatches to, and that it is right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from verify.core import Outcome, fail, pass_
from verify.gpu import probes
from verify.gpu.attention import Case, References, excess, inputs, references, run
from verify.gpu.kernels import families, record, short
from verify.gpu.probes import Context, probe

REINSTALL = "Reinstall xformers (and flash-attn) in the versions of the lock with --no-deps --force-reinstall."


def wrong_op(sm: int, names: list[str]) -> str:
    """Why what ran cannot be meant for this card, "" when it can. FlashAttention-3 is machine code for sm_90a only."""
    if sm != 90 and any("fa3" in n.lower() for n in names):
        return f"xFormers chose FlashAttention-3, which has no code for sm_{sm}"
    return ""


def not_loaded() -> Outcome | None:
    """Why xFormers runs without its compiled part, None when it has it. xFormers itself only warns."""
    try:
        from xformers._cpp_lib import _cpp_library_load_exception as error
    except ImportError:
        return None  # another version keeps it elsewhere; the probes then tell by what runs
    if error is None:
        return None
    first = str(error.__cause__ or error).strip().splitlines()[0].rstrip(".")
    return fail(
        f"xFormers' compiled part does not load, so it has no attention kernels: {first[:200]}.",
        hint=f"It was built for another torch or CUDA than this one's. {REINSTALL}",
    )


def dispatched(qkv: Sequence[Any], bias: Any) -> str:
    """The name of the forward op xFormers picks, "" where this version does not tell."""
    try:
        from xformers.ops.fmha import Inputs
        from xformers.ops.fmha.dispatch import _dispatch_fw
    except ImportError:
        return ""
    return str(_dispatch_fw(Inputs(query=qkv[0], key=qkv[1], value=qkv[2], attn_bias=bias), True).NAME)


def measure(case: Case, bias: Any, call: Callable[..., Any], ref: References, sm: int) -> tuple[float, str, set[str]]:
    """(excess over the tolerance, where, names of what ran); RuntimeError when an op for another card ran."""
    *qkv, gradient = (t.to(probes.DEVICE) for t in inputs(case))
    named = {dispatched(qkv, bias)} - {""}
    found, kernels = record(lambda: run(call, qkv, gradient))
    ran = named | families(kernels)
    if problem := wrong_op(sm, sorted(ran)):
        raise WrongOp(problem)
    return (*excess(found, ref, case.kind), ran | {short(k) for k in kernels if families([k])})


def attend(bias: Any, q: Any, k: Any, v: Any) -> Any:
    """xFormers' call, the bias first."""
    import xformers.ops as xops

    return xops.memory_efficient_attention(q, k, v, attn_bias=bias)


class WrongOp(Exception):
    """An op that cannot be meant for this card was dispatched."""


def verdict(title: str, rows: list[tuple[float, str, str]], ran: set[str]) -> Outcome:
    """One outcome for several cases: (excess, result, label)."""
    worst = max(rows)
    data = {"excess": worst[0], "ran": sorted(ran)}
    if not worst[0] <= 1:
        return fail(
            f"{title} is wrong: {worst[1]} is {worst[0]:.3g} times the tolerance away from exact ({worst[2]}).",
            hint=f"{REINSTALL} If it differs from run to run, the card is faulty.",
            data=data,
        )
    return pass_(
        f"{len(rows)} cases, largest error {worst[0]:.2f} of the tolerance ({', '.join(sorted(ran)[:3])}).", data=data
    )


def judge(context: Context, title: str, cases: list[tuple[Case, Any]]) -> Outcome:
    """Measure cases given as (case, bias)."""
    if told := not_loaded():
        return told
    rows, ran = [], set[str]()
    for case, bias in cases:
        try:
            ratio, where, names = measure(
                case,
                bias,
                partial(attend, bias),
                references(case),
                context.sm,
            )
        except WrongOp as error:
            return fail(f"{error} ({case.label}).", hint="Use xformers 0.0.32.post2 or newer, or remove flash_attn_3.")
        rows.append((ratio, where, case.label))
        ran |= names
    return verdict(title, rows, ran)


@probe
def dense(context: Context) -> Outcome:
    """No bias and causal, both formats, head dims 32 to 256."""
    import xformers.ops as xops

    made: list[tuple[Case, Any]] = []
    for kind in ("float16", "bfloat16"):
        for n, dim in enumerate((32, 64, 128, 256)):
            case = Case(kind, dim, causal=bool(n % 2))
            # LowerTriangularMask is aligned to the upper left corner, so queries and keys are equally many.
            made.append((replace(case, sq=case.sk), xops.LowerTriangularMask()) if case.causal else (case, None))
    return judge(context, "memory_efficient_attention", made)


@probe
def varlen(context: Context) -> Outcome:
    """Sequences of several lengths packed into one batch (BlockDiagonalMask), plain and causal."""
    from xformers.ops.fmha.attn_bias import BlockDiagonalCausalMask, BlockDiagonalMask

    if told := not_loaded():
        return told
    lengths = (17, 128, 1, 77)
    rows, ran = [], set[str]()
    for kind in ("float16", "bfloat16"):
        for mask in (BlockDiagonalMask, BlockDiagonalCausalMask):
            bias = mask.from_seqlens(list(lengths))
            causal = mask is BlockDiagonalCausalMask
            try:
                ratio, where, names = packed(kind, lengths, causal, bias, context.sm)
            except WrongOp as error:
                return fail(f"{error} (varlen).", hint="Use xformers 0.0.32.post2 or newer, or remove flash_attn_3.")
            rows.append((ratio, where, f"{kind}, varlen{', causal' if causal else ''}"))
            ran |= names
    return verdict("memory_efficient_attention with BlockDiagonalMask", rows, ran)


def packed(kind: str, lengths: tuple[int, ...], causal: bool, bias: Any, sm: int) -> tuple[float, str, set[str]]:
    """One packed call against the references of its sequences, each computed alone."""
    import torch

    pieces = [Case(kind, 64, 1, 4, 4, n, n, causal=causal, seed=i) for i, n in enumerate(lengths)]
    given = [inputs(p) for p in pieces]
    refs = [references(p) for p in pieces]
    whole = References(
        [torch.cat([r.exact[i] for r in refs], 1) for i in range(4)],
        [torch.cat([r.low[i] for r in refs], 1) for i in range(4)],
    )
    *qkv, gradient = (torch.cat([g[i] for g in given], 1).to(probes.DEVICE) for i in range(4))
    named = {dispatched(qkv, bias)} - {""}
    found, kernels = record(partial(run, partial(attend, bias), qkv, gradient))
    ran = named | families(kernels)
    if problem := wrong_op(sm, sorted(ran)):
        raise WrongOp(problem)
    return (*excess(found, whole, kind), ran)


@probe
def bias(_: Context) -> Outcome:
    """A dense additive bias, which only the cutlass op takes."""
    import torch

    if told := not_loaded():
        return told
    rows, ran = [], set[str]()
    for kind in ("float16", "bfloat16"):
        case = Case(kind, 64, sq=128, sk=192)
        q, k, v, gradient = (t.to(probes.DEVICE) for t in inputs(case))
        made = torch.Generator().manual_seed(5)
        added = torch.randn(case.batch, case.heads, case.sq, case.sk, generator=made).to(q.dtype)
        ref = biased(case, added)
        found, kernels = record(partial(run, partial(attend, added.to(probes.DEVICE)), (q, k, v), gradient))
        rows.append((*excess(found, ref, kind), case.label))
        ran |= families(kernels)
    return verdict("memory_efficient_attention with a bias", rows, ran)


def biased(case: Case, added: Any) -> References:
    """The references with an additive bias (batch, heads, sq, sk)."""
    import torch

    def exact(scale_k: bool) -> Callable[..., Any]:
        def call(q: Any, k: Any, v: Any) -> Any:
            s = case.dim**-0.5
            scores = torch.einsum("bqhd,bkhd->bhqk", q if scale_k else q * s, k * s if scale_k else k)
            return torch.einsum("bhqk,bkhd->bqhd", torch.softmax(scores + added.to(q.dtype), -1), v)

        return call

    q, k, v, g = inputs(case)
    return References(run(exact(False), [t.double() for t in (q, k, v)], g.double()), run(exact(True), (q, k, v), g))
