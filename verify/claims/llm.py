"""Llama-2-7B-shaped decoding and training, random weights from the configuration. Child side."""

from __future__ import annotations

import importlib.util
import time
from typing import Any

from verify.claims.meter import MISSING, Notes, NotHere, fresh, out_of_memory, peak, sync

PROMPT, NEW = 16, 64  # tokens
TRAINED = 512  # tokens of the one sequence in a training step
LINEAR = 6.0  # LLM.int8()'s threshold, as transformers' load_in_8bit sets it


def model(device: str, tiny: bool, kind: Any) -> Any:
    """LlamaForCausalLM with the published shape of Llama-2-7B (the configuration's own defaults), made on `device`."""
    if not importlib.util.find_spec("transformers"):
        raise NotHere(f"transformers is {MISSING}.")
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    shape = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = LlamaConfig(**shape, vocab_size=128) if tiny else LlamaConfig()
    before = torch.get_default_dtype()
    torch.set_default_dtype(kind)
    try:
        with torch.device(device):
            return LlamaForCausalLM(config)
    finally:
        torch.set_default_dtype(before)


def to_int8(net: Any) -> Any:
    """Every linear layer but the last in bitsandbytes' int8, as load_in_8bit does it, one layer at a time."""
    if not importlib.util.find_spec("bitsandbytes"):
        raise NotHere(f"bitsandbytes is {MISSING}.")
    import bitsandbytes as bnb
    from torch import nn

    layers = [(m, n, c) for m in net.modules() for n, c in m.named_children() if isinstance(c, nn.Linear)]
    for parent, name, old in layers:
        if old is net.lm_head:
            continue
        quantized, scale, _ = bnb.functional.int8_vectorwise_quant(old.weight.data)
        new = bnb.nn.Linear8bitLt(
            old.in_features, old.out_features, bias=False, has_fp16_weights=False, threshold=LINEAR, device="meta"
        )
        new.weight = bnb.nn.Int8Params(quantized, requires_grad=False, has_fp16_weights=False, CB=quantized, SCB=scale)
        setattr(parent, name, new)
    return net


def decode(notes: Notes, device: str, tiny: bool, *, int8: bool) -> None:
    """Tokens a second of `generate` for one sequence, and the memory it takes."""
    import torch

    net = model(device, tiny, torch.float16 if device == "cuda" else torch.bfloat16).eval().requires_grad_(False)
    if int8:
        net = to_int8(net)
    fresh(device)
    prompt = torch.randint(3, 100, (1, PROMPT), device=device)
    mask = torch.ones_like(prompt)

    def write(count: int) -> float:
        sync(device)
        started = time.perf_counter()
        made = net.generate(
            prompt, attention_mask=mask, min_new_tokens=count, max_new_tokens=count, do_sample=False, pad_token_id=0
        )
        sync(device)
        if made.shape[1] != PROMPT + count:
            raise RuntimeError(f"generate made {made.shape[1] - PROMPT} tokens, {count} were asked for")
        return count / (time.perf_counter() - started)

    write(4)
    count = 8 if tiny else NEW
    rates = sorted(write(count) for _ in range(2 if tiny else 3))
    held, reserved = peak(device)
    note = "bitsandbytes int8" if int8 else "fp16"
    notes.add("rate", rates[len(rates) // 2], "tokens/s", f"({note}, {count} new tokens, random weights)")
    notes.add("gb", reserved, "GB", "taken from the driver")
    notes.add("held", held, "GB", "of tensors")


def training(notes: Notes, device: str, tiny: bool) -> None:
    """Peak memory of a training step in bf16 with checkpointing: 8-bit Adam as printed, and the leanest form."""
    import torch

    if not importlib.util.find_spec("bitsandbytes"):
        raise NotHere(f"bitsandbytes is {MISSING}.")
    import bitsandbytes as bnb

    for name, lean in (("lean", True), ("plain", False)):
        note = (
            "with paged 8-bit Adam and its step inside backward"
            if lean
            else "with checkpointing and 8-bit Adam alone, as the article has it"
        )
        net = None
        fresh(device)
        try:
            net = model(device, tiny, torch.bfloat16).train()
            net.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
            net.config.use_cache = False
            step = lean_step(net, bnb.optim.PagedAdamW8bit) if lean else plain_step(net, bnb.optim.Adam8bit)
            tokens = torch.randint(3, 100, (1, 16 if tiny else TRAINED), device=device)
            for _ in range(2):
                net(input_ids=tokens, labels=tokens).loss.backward()
                step()
            sync(device)
            notes.add(f"gb_{name}", peak(device)[1], "GB", note)
        except RuntimeError as error:
            if not out_of_memory(error):
                raise
            notes.add(f"gb_{name}", None, "GB", f"{note}: it does not fit into this card")
        del net


def plain_step(net: Any, optimizer: Any) -> Any:
    """All gradients first, then the optimizer."""
    made = optimizer(net.parameters(), lr=1e-4)

    def step() -> None:
        made.step()
        made.zero_grad(set_to_none=True)

    return step


def lean_step(net: Any, optimizer: Any) -> Any:
    """Each parameter is updated as soon as its gradient is there, which is freed at once."""
    made = {p: optimizer([p], lr=1e-4) for p in net.parameters()}

    def update(p: Any) -> None:
        made[p].step()
        p.grad = None

    for p in made:
        p.register_post_accumulate_grad_hook(update)
    return lambda: None
