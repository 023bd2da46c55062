"""The CUDA run-time behaviour a program relies on: copies, streams, graphs, and errors that are really told."""

from __future__ import annotations

from typing import Any

from verify.core import Outcome, fail, pass_
from verify.gpu.numbers import relative
from verify.gpu.probes import Context, probe

WEDGED = (
    "Run it again in a fresh container; if it stays, the driver or the card is faulty: see dmesg on the host for Xid."
)
MIB = 1 << 20


@probe
def copies(_: Context) -> Outcome:
    """64 MiB go to the GPU and back through pinned and pageable memory, and between places on the card, unchanged."""
    import torch

    made = torch.Generator().manual_seed(1)
    source = torch.randint(-(2**62), 2**62, (8 * MIB,), generator=made)
    there, back = source.pin_memory().to("cuda", non_blocking=True), torch.empty_like(source).pin_memory()
    back.copy_(there.clone(), non_blocking=True)
    torch.cuda.synchronize()
    ways = {"pinned": back, "pageable": source.to("cuda").cpu(), "strided": there.view(-1, 2)[:, 1].cpu()}
    wrong = [n for n, t in ways.items() if not torch.equal(t, source.view(-1, 2)[:, 1] if n == "strided" else source)]
    if wrong:
        return fail(
            f"64 MiB copied to the GPU and back came back changed ({', '.join(wrong)}).",
            hint="Bits are lost on the way: PCIe slot, riser cable or the card. See dmesg on the host.",
        )
    return pass_("64 MiB came back bit for bit, pinned, pageable and strided.")


@probe
def streams(_: Context) -> Outcome:
    """A consumer on one stream waits by an event for a producer on another."""
    import torch

    a = torch.randn(1024, 1024, generator=torch.Generator().manual_seed(2))
    x, out = a.cuda(), torch.zeros(1024, 1024, device="cuda")
    producer, consumer, ready = torch.cuda.Stream(), torch.cuda.Stream(), torch.cuda.Event()
    torch.cuda.synchronize()
    with torch.cuda.stream(producer):
        for _step in range(20):  # long enough that a consumer that does not wait reads too early
            out.copy_(x @ x)
        ready.record()
    with torch.cuda.stream(consumer):
        consumer.wait_event(ready)
        total = out * 2
    torch.cuda.synchronize()
    error = relative(total, 2 * (x @ x))
    if not error <= 1e-6:
        return fail(
            f"A stream read a result before the stream it waits for had made it (error {error:.1e}).", hint=WEDGED
        )
    return pass_("Events order two streams.")


@probe
def graphs(_: Context) -> Outcome:
    """A captured CUDA graph, replayed on new input, gives what the calls themselves give."""
    import torch

    layer = torch.nn.Linear(256, 256, device="cuda")
    static = torch.zeros(64, 256, device="cuda")
    side = torch.cuda.Stream()
    with torch.no_grad():
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _warm in range(3):
                layer(static).relu()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = layer(static).relu()
        worst = 0.0
        for seed in range(3):
            fresh = torch.randn(64, 256, generator=torch.Generator().manual_seed(seed))
            static.copy_(fresh)
            graph.replay()
            worst = max(worst, relative(out, layer(fresh.cuda()).relu()))
    if not worst <= 1e-6:
        return fail(
            f"A replayed CUDA graph gives another result than the calls it was made of ({worst:.1e}).", hint=WEDGED
        )
    return pass_("A captured graph replays on new input.")


@probe
def out_of_memory(_: Context) -> Outcome:
    """Asking for more memory than there is raises, and the memory held comes back afterwards."""
    import torch

    torch.cuda.empty_cache()
    before, total = torch.cuda.mem_get_info()
    held: list[Any] = []
    try:
        held.append(torch.empty(before // 4, dtype=torch.uint8, device="cuda"))
        held.append(torch.empty(2 * total, dtype=torch.uint8, device="cuda"))
    except torch.cuda.OutOfMemoryError as error:
        if "CUDA out of memory" not in str(error):
            return fail(f"Running out of memory raises something unclear: {str(error)[:120]}.", hint=WEDGED)
    else:
        return fail("Twice the memory of the card could be allocated without an error.", hint=WEDGED)
    held.clear()
    torch.cuda.empty_cache()
    after, _total = torch.cuda.mem_get_info()
    # Another process may take some meanwhile; a quarter of the free memory was held here.
    if before - after > max(256 * MIB, before // 16):
        return fail(
            f"{(before - after) // MIB} MiB did not come back after running out of memory.",
            hint="Another process took it (`verify run condition`), or the driver leaks: restart the container.",
        )
    value = torch.full((1000,), 3.0, device="cuda").sum().item()
    if value != 3000:
        return fail("After running out of memory, a sum is wrong.", hint=WEDGED)
    return pass_("It raises, and the memory comes back.")


@probe
def errors_are_raised(_: Context) -> Outcome:
    """A kernel that fails after its launch raises at the next synchronisation. The process cannot go on after it."""
    import torch

    table = torch.zeros(4, device="cuda")
    index = torch.tensor([0, 10_000], device="cuda")
    try:
        table[index].sum()
        torch.cuda.synchronize()
    except RuntimeError as error:
        said = " ".join(str(error).split())
        if "assert" in said or "illegal memory" in said:
            return pass_("An index out of range on the GPU raises at the next synchronisation.")
        return fail(f"An index out of range on the GPU raises something unclear: {said[:160]}.", hint=WEDGED)
    return fail(
        "An index out of range on the GPU raised nothing: wrong results would go unseen.",
        hint="Reinstall torch in the version of the lock: its kernels were built without device-side assertions.",
    )
