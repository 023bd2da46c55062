"""The verdicts of the probes, which need no GPU: what is beyond its tolerance fails, and NaN always does."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest

from verify.core import Outcome, Status
from verify.gpu import attention_flash, attention_sdpa, attention_xformers, computes, kernels, memory
from verify.gpu import compile as compiling
from verify.gpu.attention import Case
from verify.gpu.numbers import UNIT, product_limit
from verify.gpu.probes import Context

NAN = float("nan")

# Names as torch 2.8 … 2.11, xFormers 0.0.35, flash-attn 2.8.2 and cuDNN gave them on an H200 (shortened).
NAMES = [
    ("void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128>>", "flash"),
    ("void flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits>", "flash"),
    ("fmha_cutlassB_bf16_aligned_128x128_k128_sm80(PyTorchMemEffAttention::AttentionBackwardKernel)", "efficient"),
    ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128", "cudnn"),
    ("void cutlass::device_kernel<flash::enable_sm90<flash::FlashAttnFwdSm90<>>>", "fa3"),
    ("_fwd_kernel_splitK", "triton splitK"),
    ("void at::native::elementwise_kernel<128, 2>", ""),
    ("ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_stages_64x3_nn", ""),
]


@pytest.mark.parametrize(("name", "kind"), NAMES)
def test_a_kernel_name_tells_the_implementation(name: str, kind: str) -> None:
    assert kernels.family(name) == kind


def test_short_names() -> None:
    assert kernels.short(NAMES[0][0]) == "pytorch_flash::flash_fwd_kernel"
    assert kernels.short("void (anonymous namespace)::softmax_warp<float>") == "anonymous::softmax_warp"


def test_the_tolerance_of_a_product() -> None:
    # An fp32 product that secretly runs in TF32 has an error near 3e-4 and must not pass as fp32.
    assert product_limit("float32", 512) < 3e-4 / 10
    assert 3e-4 < product_limit("tf32", 512) < 1e-3
    assert product_limit("bfloat16", 512) == pytest.approx(2 * UNIT["bfloat16"], rel=0.01)


@pytest.mark.parametrize("error", [2e-3, NAN, float("inf")])
def test_a_wrong_product_fails_by_name(error: float) -> None:
    found = computes.verdict("A matrix product", {"fp16": (1e-4, 1e-3), "tf32": (error, 1e-3)})
    assert (found.status, "tf32" in found.message, "fp16" in found.message) == (Status.FAIL, True, False)
    assert found.hint


def test_a_refused_transform_is_tried_again_with_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_DISABLE_PTX_JIT", "1")
    with pytest.raises(RuntimeError, match="length 1024"):
        computes.no_plan("length 1024: CUFFT_INTERNAL_ERROR")


@pytest.mark.parametrize(("there", "word"), [(True, "verify run binaries"), (False, "libnvidia-ptxjitcompiler.so.1")])
def test_a_transform_refused_with_the_compiler_on_names_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, there: bool, word: str
) -> None:
    monkeypatch.delenv("CUDA_DISABLE_PTX_JIT", raising=False)
    monkeypatch.setattr(computes, "compiler_there", lambda: there)
    found = computes.no_plan("length 1024: CUFFT_INTERNAL_ERROR")
    assert (found.status, "CUFFT_INTERNAL_ERROR" in found.message, word in found.hint) == (Status.FAIL, True, True)


def test_a_right_product_passes() -> None:
    assert computes.verdict("A matrix product", {"int8": (0.0, 0.0)}).status is Status.PASS


@pytest.mark.parametrize(
    ("ratio", "error", "words"), [(0.9, 0.0, "needs 90%"), (0.2, 0.5, "changes the result"), (0.2, NAN, "changes")]
)
def test_what_does_not_save_or_changes_results_fails(ratio: float, error: float, words: str) -> None:
    found = memory.ratio_verdict("Checkpointing", ratio, 0.5, error, 1e-5)
    assert (found.status, words in found.message) == (Status.FAIL, True)
    assert memory.ratio_verdict("Checkpointing", 0.3, 0.5, 0.0, 1e-5).status is Status.PASS


@pytest.mark.parametrize(
    ("errors", "breaks", "graphs", "words"),
    [
        ([1e-2], 0, 1, "differ by"),
        ([NAN], 0, 1, "differ by"),
        ([0.0], 2, 1, "2 graph breaks"),
        ([0.0], 0, 3, "compiled 3 times, 1 expected"),
        ([0.0], 0, 0, "compiled 0 times"),
    ],
)
def test_a_compiled_model_that_is_wrong_cut_or_recompiled_fails(
    errors: list[float], breaks: int, graphs: int, words: str
) -> None:
    found = compiling.judge("default", errors, breaks, graphs, expected=1)
    assert (found.status, words in found.message) == (Status.FAIL, True)
    assert found.hint


def test_a_compiled_model_that_is_right_passes() -> None:
    assert compiling.judge("default", [3e-7], 0, 1, expected=1).status is Status.PASS


@pytest.mark.parametrize(
    ("sm", "ran", "bad"),
    [
        (89, ["fa3F@2.8"], True),
        (80, ["fa2F@2.8.2", "fa3"], True),
        (90, ["fa3F@2.8"], False),
        (89, ["fa2F@2.8.2", "flash"], False),
    ],
)
def test_flash_attention_3_is_for_hopper_alone(sm: int, ran: list[str], bad: bool) -> None:
    assert bool(attention_xformers.wrong_op(sm, ran)) is bad


def broken_xformers(monkeypatch: pytest.MonkeyPatch, error: Exception | None) -> None:
    """xFormers as it is imported when its compiled part did not load, or did."""
    library = types.ModuleType("xformers._cpp_lib")
    library._cpp_library_load_exception = error  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "xformers", types.ModuleType("xformers"))
    monkeypatch.setitem(sys.modules, "xformers._cpp_lib", library)


def test_xformers_without_its_compiled_part_fails_with_the_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    # As on an H200 whose only CUDA runtime was 13's.
    error = RuntimeError("xFormers can't load C++/CUDA extensions. xFormers was built for: …")
    error.__cause__ = OSError("libcudart.so.12: cannot open shared object file: No such file or directory")
    broken_xformers(monkeypatch, error)
    found = attention_xformers.judge(Context(90, 1), "memory_efficient_attention", [])
    assert found.status is Status.FAIL
    assert "libcudart.so.12: cannot open" in found.message
    assert "lock" in found.hint


def test_xformers_with_its_compiled_part_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    broken_xformers(monkeypatch, None)
    assert attention_xformers.not_loaded() is None


@pytest.mark.parametrize("excess", [1.5, float("inf"), NAN])
def test_attention_beyond_its_tolerance_fails(excess: float) -> None:
    flash = attention_flash.verdict("ALiBi", (excess, "dq", "bfloat16"), {"flash"}, 4)
    xformers = attention_xformers.verdict("Attention", [(excess, "dq", "bfloat16")], {"fa2F"})
    for found in (flash, xformers):
        assert (found.status, "dq" in found.message) == (Status.FAIL, True)
        assert found.hint


def test_another_kernel_than_flash_attentions_fails() -> None:
    found = attention_flash.verdict("ALiBi", (0.5, "dq", ""), {"efficient"}, 4)
    assert (found.status, "efficient" in found.message) == (Status.FAIL, True)
    assert attention_flash.verdict("ALiBi", (0.5, "dq", ""), {"flash"}, 4).status is Status.PASS


def refuse(text: str) -> Any:
    def call() -> None:
        raise RuntimeError(text)

    return call


LEAN = Context(89, disabled=("alibi", "dropout", "local", "softcap"))
LIBRARY = "This flash attention build does not support local attention."


@pytest.mark.parametrize(
    ("call", "status"),
    [(refuse(LIBRARY), Status.SKIP), (refuse("CUDA error"), Status.FAIL), (lambda: None, Status.FAIL)],
)
def test_what_the_image_leaves_out_must_be_refused_in_clear_words(call: Any, status: Status) -> None:
    found = attention_flash.left_out(LEAN, "local", call)
    assert isinstance(found, Outcome)
    assert found.status is status
    assert attention_flash.left_out(Context(89), "local", call) is None


def test_kernels_that_prove_an_implementation_are_named_forward_first() -> None:
    seen = {"pytorch_flash::flash_bwd_kernel", "pytorch_flash::flash_fwd_kernel", "at::native::copy"}
    assert attention_sdpa.named(seen, "flash").startswith("pytorch_flash::flash_fwd_kernel")
    assert attention_sdpa.named({"gemm"}, "") == "1 kernels, none of them fused attention"
    assert "may not see" in attention_sdpa.named(set(), "flash")


def test_cases_are_ragged_and_labelled() -> None:
    made = attention_sdpa.cases()
    assert {c.dim for c in made} == {32, 64, 128, 256}
    assert {c.kind for c in made} == {"float16", "bfloat16"}
    assert any(c.sq % 8 and c.sk % 8 for c in made)
    case = Case("float16", 64, kv_heads=2, causal=True, window=(40, 0), softcap=5.0, slopes=(0.5,) * 4)
    assert case.label == "float16, head dim 64, 113×203, causal, GQA, window (40, 0), softcap, ALiBi"
