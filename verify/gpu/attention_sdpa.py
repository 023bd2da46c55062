"""torch's scaled_dot_product_attention: every implementation forced, right, and proven by the kernel that ran."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache, partial
from typing import Any

from verify.core import Outcome, fail, pass_, skip
from verify.gpu import probes
from verify.gpu.attention import Case, References, excess, inputs, references, run
from verify.gpu.kernels import families, record, short
from verify.gpu.probes import Context, probe

# Head dims are multiples of 8, as all implementations but math ask for; lengths are ragged on purpose.
DIMS = (32, 64, 128, 256)
KINDS = ("float16", "bfloat16")
# Words of torch when a forced implementation does not take these inputs on this card.
REFUSED = ("No available kernel", "No viable backend", "not supported", "cuDNN SDPA")


@cache
def known(case: Case) -> References:
    """The references of a case, computed once for all implementations."""
    return references(case)


def sdpa(causal: bool, q: Any, k: Any, v: Any) -> Any:
    """torch's call with our layout (batch, length, heads, dim)."""
    import torch

    turned = [t.transpose(1, 2) for t in (q, k, v)]
    return torch.nn.functional.scaled_dot_product_attention(*turned, is_causal=causal).transpose(1, 2)


def cases() -> list[Case]:
    """Both formats, all head dims, ragged; causal with as many queries as keys, where all implementations agree."""
    made = [Case(kind, dim, causal=bool(n % 2)) for kind in KINDS for n, dim in enumerate(DIMS)]
    return [replace(c, sq=c.sk) if c.causal else c for c in made]


def forced(backend: Any, case: Case) -> tuple[list[Any], list[str]]:
    """[output, dq, dk, dv] under one implementation and the kernels that ran; RuntimeError when it takes no such."""
    from torch.nn.attention import sdpa_kernel

    *qkv, gradient = (t.to(probes.DEVICE) for t in inputs(case))
    with sdpa_kernel(backend):
        return record(lambda: run(partial(sdpa, case.causal), qkv, gradient))


def implementation(name: str, wanted: str, chosen: list[Case]) -> Outcome:
    """Force `name` on every case; its kernels must be of the family `wanted` ("" for the unfused one)."""
    import torch
    from torch.nn.attention import SDPBackend

    worst, seen, refused = (0.0, "", ""), set[str](), []
    for case in chosen:
        try:
            found, kernels = forced(getattr(SDPBackend, name), case)
        except RuntimeError as error:
            if not any(word in str(error) for word in REFUSED):
                raise
            refused.append(case.label)
            continue
        ratio, where = excess(found, known(case), case.kind)
        worst = max(worst, (ratio, where, case.label))
        ran = families(kernels)
        if kernels and ran != ({wanted} if wanted else set()):
            return fail(
                f"{name} was asked for and {', '.join(sorted(ran)) or 'unfused kernels'} ran ({case.label}).",
                hint="Attention is slower or larger than asked for; reinstall torch in the version of the lock.",
                data={"kernels": kernels},
            )
        seen |= {short(k) for k in kernels}
    data = {"excess": worst[0], "kernels": sorted(seen), "refused": refused}
    if len(refused) == len(chosen):
        return skip(f"torch {torch.__version__} has no {name} kernel for this card.", data=data)
    if not worst[0] <= 1:
        return fail(
            f"{name} is wrong: {worst[1]} is {worst[0]:.3g} times the tolerance away from exact ({worst[2]}).",
            hint="Run it again: another place each time is a faulty card (memory, overclock), the same place is a "
            "faulty library: reinstall torch in the version of the lock.",
            data=data,
        )
    shown = named(seen, wanted)
    left = f"; {len(refused)} cases are not for it" if refused else ""
    return pass_(
        f"{len(chosen) - len(refused)} cases, largest error {worst[0]:.2f} of the tolerance ({shown}){left}.", data=data
    )


def named(seen: set[str], wanted: str) -> str:
    """The kernels that prove it, forward ones first."""
    if not seen:
        return "the profiler may not see kernels here"
    if not wanted:
        return f"{len(seen)} kernels, none of them fused attention"
    ours = (k for k in seen if families([k]) == {wanted})
    return ", ".join(sorted(ours, key=lambda k: (not re.search("fwd|fprop|cutlassF", k), k))[:2])


@probe
def flash(_: Context) -> Outcome:
    """FLASH_ATTENTION."""
    return implementation("FLASH_ATTENTION", "flash", cases())


@probe
def efficient(_: Context) -> Outcome:
    """EFFICIENT_ATTENTION."""
    return implementation("EFFICIENT_ATTENTION", "efficient", cases())


@probe
def cudnn(_: Context) -> Outcome:
    """CUDNN_ATTENTION: head dims its backward takes on every card. It builds a plan for each case, so there are few."""
    return implementation("CUDNN_ATTENTION", "cudnn", [c for c in cases() if c.dim in (64, 128)])


@probe
def math(_: Context) -> Outcome:
    """MATH."""
    return implementation("MATH", "", [c for c in cases() if c.dim in (64, 128)])


@probe
def planted(_: Context) -> Outcome:
    """Errors that a real fault would make, planted into a right result: each must be beyond the tolerance."""
    missed = [f"{c.label}: {name}" for c in PLANTED for name, ratio in planted_excess(c).items() if not ratio > 1]
    if missed:
        return fail(
            f"A planted error is within the tolerance of the attention checks ({'; '.join(missed)}).",
            hint="The verdicts of the attention checks cannot be relied on with this version of torch; report it.",
        )
    return pass_(f"{len(PLANTED)} cases with {len(FAULTS)} planted errors each are all rejected.")


PLANTED = (Case("float16", 64), Case("bfloat16", 128, sq=203, causal=True))


def spoil_one(out: Any) -> Any:
    """One element of 10⁵ off by a quarter, as a bit error in the exponent's neighbour makes."""
    spoiled = out.clone()
    flat = spoiled.view(-1)
    at = flat.abs().argmax()
    flat[at] = flat[at] * 1.25
    return spoiled


# Name → what is done to a right output.
FAULTS: dict[str, Any] = {
    "one element": spoil_one,
    "scale off by 2 %": lambda out: out * 1.02,
    "a key too many": lambda out: out.roll(1, 1),
    "heads swapped": lambda out: out.flip(2),
    "not a number": lambda out: out.masked_fill(out == out.max(), float("nan")),
}


def planted_excess(case: Case) -> dict[str, float]:
    """Fault → excess of the plain implementation's output on this device with that fault."""
    qkv = [t.to(probes.DEVICE) for t in inputs(case)[:3]]
    (out,) = run(partial(sdpa, case.causal), qkv, None)
    return {name: excess([fault(out)], known(case), case.kind)[0] for name, fault in FAULTS.items()}
