"""Planted errors: a check that cannot fail on a real card proves nothing. Each test breaks one function and looks."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import pytest

from verify.core import Status
from verify.gpu import attention_flash, attention_sdpa, attention_xformers, computes, memory, runtime
from verify.gpu.attention import Case, excess, inputs, references, run
from verify.gpu.probes import Context

TOLD = Context(sm=90)


def installed(name: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(not importlib.util.find_spec(name), reason=f"NOT PROVEN HERE: no {name}")


def spoil(function: Callable[..., Any], change: Callable[[Any], Any]) -> Callable[..., Any]:
    return lambda *a, **k: change(function(*a, **k))


def one_element(out: Any) -> Any:
    out = out.clone()
    out.view(-1)[7] += out.detach().abs().max() / 4
    return out


def slightly_scaled(out: Any) -> Any:
    return out * 1.03


CHANGES = [one_element, slightly_scaled]


@pytest.mark.parametrize("change", CHANGES)
def test_sdpa(monkeypatch: pytest.MonkeyPatch, change: Callable[[Any], Any]) -> None:
    import torch.nn.functional as f

    monkeypatch.setattr(
        f, "scaled_dot_product_attention", spoil(f.scaled_dot_product_attention, lambda o: change(o.contiguous()))
    )
    found = attention_sdpa.flash(TOLD)
    assert (found.status, "is wrong" in found.message) == (Status.FAIL, True)


def test_sdpa_of_another_implementation(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case("bfloat16", 64)
    found = attention_sdpa.implementation("EFFICIENT_ATTENTION", "flash", [case])
    assert (found.status, "efficient" in found.message) == (Status.FAIL, True)


def test_gradients_too() -> None:
    import torch

    case = Case("float16", 64)
    *qkv, gradient = (t.cuda() for t in inputs(case))
    found = run(lambda q, k, v: attention_sdpa.sdpa(False, q, k, v), qkv, gradient)
    assert excess(found, references(case), case.kind)[0] <= 1
    found[2] = found[2] + torch.randn_like(found[2]) * 0.02
    ratio, where = excess(found, references(case), case.kind)
    assert (ratio > 1, where) == (True, "dk")


@installed("flash_attn")
@pytest.mark.parametrize("change", CHANGES)
def test_flash_attention(monkeypatch: pytest.MonkeyPatch, change: Callable[[Any], Any]) -> None:
    import flash_attn

    monkeypatch.setattr(flash_attn, "flash_attn_func", spoil(flash_attn.flash_attn_func, change))
    monkeypatch.setattr(flash_attn, "flash_attn_varlen_func", spoil(flash_attn.flash_attn_varlen_func, change))
    for probe in (attention_flash.grouped, attention_flash.varlen):
        assert probe(TOLD).status is Status.FAIL


@installed("flash_attn")
def test_flash_attention_without_its_window(monkeypatch: pytest.MonkeyPatch) -> None:
    import flash_attn

    whole = flash_attn.flash_attn_func

    def without(*tensors: Any, window_size: tuple[int, int], causal: bool) -> Any:
        return whole(*tensors, causal=causal)

    monkeypatch.setattr(flash_attn, "flash_attn_func", without)
    assert attention_flash.window(TOLD).status is Status.FAIL


@installed("flash_attn")
def test_an_argument_that_is_ignored_instead_of_refused() -> None:
    found = attention_flash.alibi(Context(sm=90, disabled=("alibi",)))
    assert (found.status, "raises nothing" in found.message) == (Status.FAIL, True)


@installed("xformers")
@pytest.mark.parametrize("change", CHANGES)
def test_xformers(monkeypatch: pytest.MonkeyPatch, change: Callable[[Any], Any]) -> None:
    monkeypatch.setattr(attention_xformers, "attend", spoil(attention_xformers.attend, change))
    for probe in (attention_xformers.bias, attention_xformers.varlen):
        assert probe(TOLD).status is Status.FAIL


def test_an_fp32_product_in_tf32(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    def careless(on: bool) -> None:
        torch.backends.cuda.matmul.allow_tf32 = True

    monkeypatch.setattr(computes, "precise", careless)
    found = computes.matmul(TOLD)
    assert (found.status, "float32" in found.message) == (Status.FAIL, True)


def test_checkpointing_that_saves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch.utils.checkpoint as c

    monkeypatch.setattr(c, "checkpoint", lambda block, x, **_: block(x))
    found = memory.checkpointing(TOLD)
    assert (found.status, "of the memory" in found.message) == (Status.FAIL, True)


def test_a_copy_that_loses_a_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    whole = torch.Tensor.cpu

    def lossy(self: Any) -> Any:
        out = whole(self).clone()
        out.view(-1)[3] ^= 1 << 17
        return out

    monkeypatch.setattr(torch.Tensor, "cpu", lossy)
    found = runtime.copies(TOLD)
    assert (found.status, "pageable" in found.message) == (Status.FAIL, True)
