"""Train all weights of a 7B-shaped model within 24 GB: what each trick gives, then all of them together.

Weights in bfloat16 (13.5 GB), activations recomputed (gradient checkpointing), each weight updated as soon as its
gradient is there, which is then freed, and an optimizer with little state: 8-bit Adam in memory that moves to the host
when the GPU is full (bitsandbytes), or Adafactor, which keeps a row and a column per matrix.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import _common as common

# (recompute activations, optimizer, update inside backward)
STEPS: dict[str, tuple[bool, str, bool]] = {
    "plain AdamW": (False, "adamw", False),
    "+ checkpointing": (True, "adamw", False),
    "+ small optimizer": (True, "small", False),
    "+ update in backward": (True, "small", True),
}


def make_model(run: common.Run, layers: int) -> Any:
    """Llama of 7B shape (or a tiny one) with this many layers, bfloat16, random weights, made on the device."""
    from transformers import LlamaConfig, LlamaForCausalLM

    small = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "vocab_size": 256}
    config = LlamaConfig(**(small if run.tiny else {}), num_hidden_layers=layers, use_cache=False)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device(run.device):
            return LlamaForCausalLM(config).train()
    finally:
        torch.set_default_dtype(before)


def optimizer_of(kind: str) -> Callable[[list[nn.Parameter]], torch.optim.Optimizer]:
    """From a list of parameters to their optimizer."""
    if kind == "adamw":
        return lambda parameters: torch.optim.AdamW(parameters, lr=1e-5)
    if kind == "adafactor":
        return lambda parameters: torch.optim.Adafactor(parameters, lr=1e-5)
    bnb = common.need("bitsandbytes", "--optimizer adam8bit (Adafactor needs nothing)")
    return lambda parameters: bnb.optim.PagedAdamW8bit(parameters, lr=1e-5)


def update_in_backward(model: nn.Module, make: Callable[[list[nn.Parameter]], torch.optim.Optimizer]) -> None:
    """Give each parameter an optimizer of its own that runs when its gradient is complete, and free the gradient."""

    def hook(optimizer: torch.optim.Optimizer) -> Callable[[torch.Tensor], None]:
        def update(parameter: torch.Tensor) -> None:
            optimizer.step()
            parameter.grad = None

        return update

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(hook(make([parameter])))


def train(run: common.Run, layers: int, recompute: bool, kind: str, inside: bool) -> tuple[float, float, float]:
    """Peak GiB, seconds of a step, last loss; of two steps with one sequence."""
    torch.manual_seed(run.options.seed)
    if run.device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    model = make_model(run, layers)
    if recompute:
        # The model's own switch; setting an attribute of that name on every module would do nothing.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # transformers has begun to rename it
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    make = optimizer_of(kind)
    optimizer = None if inside else make(list(model.parameters()))
    if inside:
        update_in_backward(model, make)
    tokens = torch.randint(0, 200, (1, run.options.length), device=run.device)
    loss, once = 0.0, 0.0
    for _ in range(2):
        begin = time.perf_counter()
        result = model(input_ids=tokens, labels=tokens).loss
        result.backward()
        if optimizer:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        loss = result.item()
        if run.device == "cuda":
            torch.cuda.synchronize()
        once = time.perf_counter() - begin
    return common.peak_gib(), once, loss


def main() -> None:
    parser = common.parser(__doc__)
    common.size(parser, "--length", 512, 16, "tokens of the sequence")
    common.size(parser, "--layers", 32, 2, "layers of the whole model; 32 make 7B")
    common.size(parser, "--shown", 2, 1, "layers of the models that show the tricks one by one")
    parser.add_argument("--optimizer", choices=("adam8bit", "adafactor"), default="adam8bit", help="default adam8bit")
    parser.add_argument("--memory-gib", type=float, help="behave as on a GPU with this much memory")
    run = common.start(parser, "train_7b_memory")
    common.need("transformers", "the model")
    o = run.options
    small = o.optimizer
    if run.device == "cpu" and small == "adam8bit":
        print("On the CPU Adafactor stands in for bitsandbytes' paged optimizer, which lives on the GPU.")
        small = "adafactor"
    if o.memory_gib and run.device == "cuda":
        whole = torch.cuda.get_device_properties(0).total_memory / 2**30
        torch.cuda.set_per_process_memory_fraction(min(1.0, o.memory_gib / whole))

    rows = [(f"{o.shown} layers, {o.length} tokens", "peak GiB", "seconds/step", "loss")]
    for name, (recompute, kind, inside) in STEPS.items():
        peak, once, loss = train(run, o.shown, recompute, small if kind == "small" else kind, inside)
        rows.append((name, f"{peak:.2f}", f"{once:.3f}", f"{loss:.2f}"))
    peak, once, loss = train(run, o.layers, True, small, True)
    rows.append((f"all, {o.layers} layers", f"{peak:.2f}", f"{once:.3f}", f"{loss:.2f}"))
    common.table(rows)
    if loss != loss:
        raise common.Stop("the loss is not a number.", 1)
    words = f"{o.layers} layers, {o.length} tokens, {small}: peak {peak:.1f} GiB, {o.length / once:.0f} tokens/s"
    run.finish(words, peak_gib=peak, seconds_per_step=once, optimizer=small, table=rows)


if __name__ == "__main__":
    common.main(main)
