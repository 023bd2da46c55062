"""FlashAttention-2: every feature of its interface against exact attention, or its own clear refusal."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from verify.core import Outcome, fail, pass_, skip
from verify.gpu import probes
from verify.gpu.attention import Case, References, excess, inputs, references, run
from verify.gpu.kernels import families, record
from verify.gpu.probes import Context, probe

KINDS = ("float16", "bfloat16")
HINT = (
    "Reinstall the image's flash-attn wheel with --no-deps --force-reinstall; if the place differs from run to run, "
    "the card is faulty."
)


def keywords(case: Case) -> dict[str, Any]:
    """The arguments of flash_attn_func for a case."""
    import torch

    made: dict[str, Any] = {"causal": case.causal, "window_size": case.window}
    if case.softcap:
        made["softcap"] = case.softcap
    if case.slopes:
        made["alibi_slopes"] = torch.tensor(case.slopes, dtype=torch.float32, device=probes.DEVICE)
    return made


def measure(case: Case, function: Callable[..., Any]) -> tuple[float, str, set[str]]:
    """(excess over the tolerance, of which result, families of kernels that ran)."""
    *qkv, gradient = (t.to(probes.DEVICE) for t in inputs(case))
    found, kernels = record(lambda: run(partial(function, **keywords(case)), qkv, gradient))
    return (*excess(found, references(case), case.kind), families(kernels))


def judge(title: str, cases: list[Case]) -> Outcome:
    """flash_attn_func on every case, forward and backward."""
    from flash_attn import flash_attn_func

    worst, ran = (0.0, "", ""), set[str]()
    for case in cases:
        ratio, where, names = measure(case, flash_attn_func)
        worst, ran = max(worst, (ratio, where, case.label)), ran | names
    return verdict(title, worst, ran, len(cases))


def verdict(title: str, worst: tuple[float, str, str], ran: set[str], count: int) -> Outcome:
    """`worst` is (excess, result, label)."""
    data = {"excess": worst[0], "ran": sorted(ran)}
    if not worst[0] <= 1:
        return fail(
            f"{title} is wrong: {worst[1]} is {worst[0]:.3g} times the tolerance away from exact ({worst[2]}).",
            hint=HINT,
            data=data,
        )
    if ran and "flash" not in ran:
        return fail(f"{title} ran {', '.join(sorted(ran))} instead of FlashAttention-2.", hint=HINT, data=data)
    return pass_(f"{count} cases, largest error {worst[0]:.2f} of the tolerance.", data=data)


def left_out(context: Context, feature: str, call: Callable[[], Any]) -> Outcome | None:
    """A feature the image says is left out must raise the library's own sentence when called. None when it is in."""
    if feature not in context.disabled:
        return None
    try:
        call()
    except RuntimeError as error:
        said = " ".join(str(error).split())
        if "not support" in said:
            return skip(f"This image's FlashAttention leaves {feature} out, and says so when called.")
        return fail(f"{feature} is left out, and calling it raises something else: {said[:120]}", hint=HINT)
    return fail(
        f"image.json says {feature} is left out of this FlashAttention, and calling it raises nothing.",
        hint="The wheel and image.json do not belong together, or the result ignores the argument; rebuild the image.",
    )


@probe
def fixed(_: Context) -> Outcome:
    """Plain and causal, head dims 32 to 256, queries fewer than keys."""
    dims = (32, 64, 96, 128, 192, 256)
    return judge("flash_attn_func", [Case(k, d, causal=bool(n % 2)) for k in KINDS for n, d in enumerate(dims)])


@probe
def grouped(_: Context) -> Outcome:
    """Fewer key heads than query heads."""
    return judge("GQA", [Case(k, d, kv_heads=n) for k in KINDS for d, n in ((64, 2), (128, 1))])


def simple(feature: str, cases: list[Case], context: Context) -> Outcome:
    """A feature that is an argument: left out and refused, or right."""
    from flash_attn import flash_attn_func

    if told := left_out(context, feature, lambda: measure(cases[0], flash_attn_func)):
        return told
    return judge("The sliding window" if feature == "local" else feature, cases)


@probe
def window(context: Context) -> Outcome:
    """Sliding windows, with and without causal."""
    made = [Case(k, 64, window=w) for k in KINDS for w in ((31, 17), (0, 64))]
    return simple("local", [*made, *(Case(k, 128, window=(40, 0), causal=True) for k in KINDS)], context)


@probe
def softcap(context: Context) -> Outcome:
    """Scores are capped by tanh."""
    return simple("softcap", [Case(k, 64, causal=c, softcap=5.0) for k in KINDS for c in (False, True)], context)


@probe
def alibi(context: Context) -> Outcome:
    """A bias that grows with distance."""
    slopes = (0.5, 0.25, 0.125, 0.0625)
    return simple("alibi", [Case(k, 64, causal=c, slopes=slopes) for k in KINDS for c in (False, True)], context)


@probe
def varlen(_: Context) -> Outcome:
    """Ragged sequences packed into one, forward and backward."""
    import torch
    from flash_attn import flash_attn_varlen_func

    queries, keys = (17, 128, 1, 77), (40, 128, 33, 77)
    worst, ran = (0.0, "", ""), set[str]()
    for kind in KINDS:
        for causal in (False, True):
            pieces = [
                Case(kind, 64, 1, 4, 2, a, b, causal=causal, seed=n)
                for n, (a, b) in enumerate(zip(queries, keys, strict=True))
            ]
            given, refs = [inputs(p) for p in pieces], [references(p) for p in pieces]

            def packed(parts: list[Any]) -> Any:
                return torch.cat(parts, 1)[0]

            whole = References(
                [packed([r.exact[i] for r in refs]) for i in range(4)],
                [packed([r.low[i] for r in refs]) for i in range(4)],
            )
            *qkv, gradient = (packed([g[i] for g in given]).to(probes.DEVICE) for i in range(4))
            starts = [torch.tensor((0, *ns), device=probes.DEVICE).cumsum(0).int() for ns in (queries, keys)]
            call = partial(
                flash_attn_varlen_func,
                cu_seqlens_q=starts[0],
                cu_seqlens_k=starts[1],
                max_seqlen_q=max(queries),
                max_seqlen_k=max(keys),
                causal=causal,
            )
            found, kernels = record(partial(run, call, qkv, gradient))
            worst = max(worst, (*excess(found, whole, kind), f"{kind}{', causal' if causal else ''}"))
            ran |= families(kernels)
    return verdict("flash_attn_varlen_func", worst, ran, 4)


@probe
def dropout(context: Context) -> Outcome:
    """One seed gives one result, another seed another; kept weights are scaled so that the mean stays."""
    import torch
    from flash_attn import flash_attn_func

    case = Case("bfloat16", 64, sq=256, sk=256, heads=8, kv_heads=8)
    q, k, _, g = (t.to(probes.DEVICE) for t in inputs(case))
    ones = torch.ones_like(k)

    def once(seed: int) -> list[Any]:
        torch.manual_seed(seed)
        return run(partial(flash_attn_func, dropout_p=0.25, deterministic=True), (q, k, ones), g)

    if told := left_out(context, "dropout", lambda: once(1)):
        return told
    first, again, other = once(1), once(1), once(2)
    if not all(torch.equal(a, b) for a, b in zip(first, again, strict=True)):
        return fail("Dropout with one seed and deterministic=True gives two different results.", hint=HINT)
    if torch.equal(first[0], other[0]):
        return fail("Dropout gives the same result with two seeds.", hint=HINT)
    # With v = 1 every output is a mean of kept weights / 0.75, of expectation 1. Over all (batch, query, head) rows the
    # standard error is below 0.58 / sqrt(rows): 6 of them fail once in 10^9.
    rows = case.batch * case.sq * case.heads
    mean = first[0].float()[..., 0].mean().item()
    if not abs(mean - 1) <= 6 * 0.58 / rows**0.5:
        return fail(f"Dropout does not keep the mean: {mean:.4f} instead of 1.", hint=HINT)
    return pass_(f"Repeatable, seeded, and the mean stays at {mean:.4f}.")


@probe
def kv_cache(_: Context) -> Outcome:
    """Decoding with a key-value cache: new keys are appended in place, ragged lengths, and the output is exact."""
    import torch
    from flash_attn import flash_attn_with_kvcache

    worst, ran = (0.0, "", ""), set[str]()
    lengths = (150, 37)
    for kind in KINDS:
        pieces = [Case(kind, 64, 1, 4, 2, 1, n + 1, causal=True, seed=n) for n in lengths]
        given = [inputs(p) for p in pieces]
        refs = [references(p) for p in pieces]
        cache = [torch.zeros(2, 256, 2, 64, dtype=given[0][0].dtype, device=probes.DEVICE) for _ in range(2)]
        for row, (one, length) in enumerate(zip(given, lengths, strict=True)):
            for side in (0, 1):
                cache[side][row, :length] = one[1 + side][0, :length].to(probes.DEVICE)
        q = torch.cat([one[0] for one in given]).to(probes.DEVICE)
        new = [torch.cat([one[1 + s][:, -1:] for one in given]).to(probes.DEVICE) for s in (0, 1)]
        filled = torch.tensor(lengths, dtype=torch.int32, device=probes.DEVICE)
        out, kernels = record(partial(flash_attn_with_kvcache, q, *cache, *new, cache_seqlens=filled, causal=True))
        whole = References([torch.cat([r.exact[0] for r in refs])], [torch.cat([r.low[0] for r in refs])])
        worst = max(worst, (*excess([out], whole, kind), kind))
        ran |= families(kernels)
        if not all(torch.equal(cache[0][row, n], new[0][row, 0]) for row, n in enumerate(lengths)):
            return fail("flash_attn_with_kvcache does not append the new keys to the cache.", hint=HINT)
    return verdict("flash_attn_with_kvcache", worst, ran, 2)
