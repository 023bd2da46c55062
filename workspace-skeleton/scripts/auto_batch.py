"""The largest batch that fits, found by trying: survives running out of memory, also inside compiled code.

Copy `largest_batch` into your own code: it needs a function that makes one whole training step with a batch of n.
"""

from __future__ import annotations

import gc
from collections.abc import Callable

import torch
from torch import nn

import _common as common


def fits(step: Callable[[int], object], batch: int) -> bool:
    """Try a step. What a failed one left is given back only outside `except`, which holds its frames alive."""
    try:
        step(batch)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return True
    except torch.OutOfMemoryError:
        pass
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return False


def largest_batch(step: Callable[[int], object], limit: int, grain: int = 1) -> int:
    """The largest batch up to `limit` for which `step` fits, to within `grain`; 0 if not even one does."""
    good, bad = 0, limit + 1
    batch = min(grain, limit)
    while batch < bad:  # double while it fits …
        if not fits(step, batch):
            bad = batch
        else:
            good, batch = batch, batch * 2
    if bad > limit and good < limit and fits(step, limit):
        return limit
    bad = min(bad, limit)
    while bad - good > grain:  # … then halve the gap
        middle = (good + bad) // 2 // grain * grain
        middle = middle if middle > good else good + grain
        good, bad = (middle, bad) if fits(step, middle) else (good, middle)
    return good


def main() -> None:
    parser = common.parser(__doc__)
    common.size(parser, "--length", 512, 8, "tokens of a sequence")
    common.size(parser, "--width", 1024, 32, "features of a token, a multiple of 64 or 16")
    common.size(parser, "--layers", 4, 1, "Transformer layers")
    common.size(parser, "--limit", 4096, 64, "no batch larger than this; your data set has an end too")
    common.size(parser, "--grain", 8, 2, "find it to within this many")
    parser.add_argument("--memory-gib", type=float, help="behave as on a GPU with this much memory")
    parser.add_argument("--no-compile", action="store_true", help="eager mode; on a CPU always")
    run = common.start(parser, "auto_batch")
    o = run.options
    if o.memory_gib and run.device == "cuda":
        whole = torch.cuda.get_device_properties(0).total_memory / 2**30
        torch.cuda.set_per_process_memory_fraction(min(1.0, o.memory_gib / whole))

    layer = nn.TransformerEncoderLayer(o.width, o.width // (16 if run.tiny else 64), 4 * o.width, 0.0, batch_first=True)
    model = nn.TransformerEncoder(layer, o.layers, enable_nested_tensor=False).to(run.device)
    optimizer = torch.optim.AdamW(model.parameters(), fused=run.device == "cuda")
    # dynamic: one compilation serves every batch size; otherwise each try would compile again.
    fast = model if o.no_compile or run.device == "cpu" else torch.compile(model, dynamic=True)
    tried: list[str] = []

    def step(batch: int) -> None:
        tried.append(str(batch))
        optimizer.zero_grad(set_to_none=True)  # of a step that failed half-way
        if run.device == "cpu" and batch > 37:
            raise torch.OutOfMemoryError("pretended")
        x = torch.randn(batch, o.length, o.width, device=run.device)
        with torch.autocast(run.device, torch.bfloat16):
            loss = fast(x).square().mean()
        loss.backward()
        optimizer.step()

    if run.device == "cpu":
        print("A CPU swaps instead of failing, so its memory is pretended to end after a batch of 37.")
    best = largest_batch(step, o.limit, o.grain)
    print("tried: " + " ".join(tried))
    if not best:
        raise common.Stop("not even the smallest batch fits: use a shorter --length or fewer --layers.", 1)
    safe = max(1, int(best * 0.9))  # room for fragmentation and for what else the training holds
    rate = safe / common.seconds(lambda: step(safe), 2 if run.tiny else 10)
    words = f"batch {best} fits, {safe} is safe: {rate:.0f} sequences/s, peak {common.peak_gib():.1f} GiB"
    run.finish(words, batch=best, safe=safe, sequences_per_second=rate, tried=tried)


if __name__ == "__main__":
    common.main(main)
