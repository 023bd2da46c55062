"""Text from a large language model in 16, 8 or 4 bits a weight: tokens per second and memory.

    python scripts/llm_inference.py --model models/Llama-2-7b-chat-hf --bits 8 --prompt "Explain deep learning."

Without --model a model of Llama-2-7B's shape is built with random weights: the text is nonsense, speed and memory are
true.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import nn

import _common as common


def quantized(old: nn.Linear, bits: int, device: str, dtype: torch.dtype) -> nn.Module:
    """The same layer in bitsandbytes' 8 or 4 bits; moving the weight to the device is what converts it."""
    bnb = common.need("bitsandbytes", f"--bits {bits}")
    shape, biased = (old.in_features, old.out_features), old.bias is not None
    with torch.device("meta"):
        if bits == 8:
            new = bnb.nn.Linear8bitLt(*shape, bias=biased, has_fp16_weights=False, threshold=6.0)
        else:
            new = bnb.nn.Linear4bit(*shape, bias=biased, compute_dtype=dtype, quant_type="nf4")
    weight = old.weight.data.cpu()
    if bits == 8:
        new.weight = bnb.nn.Int8Params(weight, requires_grad=False, has_fp16_weights=False).to(device)
    else:
        new.weight = bnb.nn.Params4bit(weight, requires_grad=False, quant_type="nf4", module=new).to(device)
    new.bias = old.bias
    return new


def random_model(run: common.Run, dtype: torch.dtype) -> Any:
    """LlamaForCausalLM with the shape of Llama-2-7B (the defaults of its configuration), made layer by layer."""
    from transformers import LlamaConfig, LlamaForCausalLM

    small = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = LlamaConfig(**small, vocab_size=256) if run.tiny else LlamaConfig()
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(run.device):
            model = LlamaForCausalLM(config)
    finally:
        torch.set_default_dtype(before)
    if run.options.bits < 16:
        for parent in list(model.modules()):
            for name, layer in list(parent.named_children()):
                if isinstance(layer, nn.Linear) and name != "lm_head":  # the last layer stays exact, as in transformers
                    setattr(parent, name, quantized(layer, run.options.bits, run.device, dtype))
    return model


def load(run: common.Run, dtype: torch.dtype) -> tuple[Any, Any]:
    """The model, and its tokenizer (None with random weights)."""
    transformers = common.need("transformers", "a language model")
    o = run.options
    if not o.model:
        return random_model(run, dtype), None
    settings: dict[str, Any] = {"dtype": dtype, "device_map": run.device}
    if o.bits < 16:
        common.need("bitsandbytes", f"--bits {o.bits}")
        kind = {"load_in_8bit": True} if o.bits == 8 else {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
        settings["quantization_config"] = transformers.BitsAndBytesConfig(**kind)
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(o.model)
        return transformers.AutoModelForCausalLM.from_pretrained(o.model, **settings), tokenizer
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise common.Stop(
            f"--model {o.model} could not be loaded ({reason}): give a folder or a hub id; HF_ENDPOINT names a mirror."
        ) from None


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--bits", type=int, choices=(16, 8, 4), default=8, help="bits of a weight (default 8)")
    parser.add_argument("--model", help="a folder, or the id of a model on a hub (default: random weights)")
    parser.add_argument("--prompt", default="Explain the basic ideas of deep learning.", help="used with --model")
    common.size(parser, "--tokens", 100, 8, "tokens to write")
    run = common.start(parser, "llm_inference")
    dtype = torch.float16 if run.device == "cuda" and run.options.bits == 8 else torch.bfloat16
    begin = time.perf_counter()
    model, tokenizer = load(run, dtype)
    model.eval()
    loading = time.perf_counter() - begin
    if tokenizer:
        given = tokenizer(run.options.prompt, return_tensors="pt").to(run.device)
    else:
        ids = torch.randint(3, 200, (1, 16), device=run.device)
        given = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if run.device == "cuda":
        torch.cuda.reset_peak_memory_stats()  # without what loading took

    def write(count: int) -> Any:
        return model.generate(**given, min_new_tokens=count, max_new_tokens=count, do_sample=False, pad_token_id=0)

    made = write(2)  # loads the kernels
    count = run.options.tokens
    begin = time.perf_counter()
    made = write(count)[0, given["input_ids"].shape[1] :]
    made = made.tolist()  # waits for the GPU
    rate = count / (time.perf_counter() - begin)
    if tokenizer:
        answer = tokenizer.decode(made, skip_special_tokens=True)
        common.save(run.folder / "answer.txt", lambda path: path.write_text(answer + "\n"))
        print(answer)
    weights = sum(p.numel() * p.element_size() for p in model.parameters()) / 2**30
    words = (
        f"{rate:.1f} tokens/s in {run.options.bits} bits, weights {weights:.1f} GiB, peak {common.peak_gib():.1f} GiB"
    )
    if not run.options.model:
        words += ", random weights"
    figures = {
        "tokens_per_second": rate,
        "load_seconds": loading,
        "weights_gib": weights,
        "peak_gib": common.peak_gib(),
    }
    run.finish(words, **figures)


if __name__ == "__main__":
    common.main(main)
