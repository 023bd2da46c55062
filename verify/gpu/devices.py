"""What torch sees, and the one collective every training script starts with."""

from __future__ import annotations

from verify.core import Outcome, fail, pass_
from verify.gpu.probes import Context, probe


@probe
def seen(_: Context) -> Outcome:
    """data["gpus"]: name, sm and memory in bytes of each device as torch gives them."""
    import torch

    if not torch.cuda.is_available():
        torch.zeros(1, device="cuda")  # raises with the driver's own reason
    made = []
    for index in range(torch.cuda.device_count()):
        p = torch.cuda.get_device_properties(index)
        made.append(
            {
                "name": p.name,
                "sm": f"sm_{p.major}{p.minor}",
                "memory": p.total_memory,
                "sm_count": p.multi_processor_count,
            }
        )
        torch.zeros(1, device=f"cuda:{index}").add_(1).item()
    return pass_(f"{len(made)} device(s).", data={"gpus": made, "torch": torch.__version__, "cuda": torch.version.cuda})


@probe
def one_process(_: Context) -> Outcome:
    """NCCL with a world of one: what `torchrun --nproc-per-node=1` and every Trainer does first."""
    import torch
    from torch import distributed as dist

    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1, device_id=torch.device("cuda:0"))
    try:
        x = torch.arange(1000.0, device="cuda")
        dist.all_reduce(x)
        gathered = [torch.empty_like(x)]
        dist.all_gather(gathered, x)
        dist.broadcast(x, 0)
        dist.barrier()
        torch.cuda.synchronize()
        exact = torch.arange(1000.0)
        if not (torch.equal(x.cpu(), exact) and torch.equal(gathered[0].cpu(), exact)):
            return fail(
                "NCCL changes the data of a single process.", hint="Reinstall nvidia-nccl in the version torch pins."
            )
        version = ".".join(str(n) for n in torch.cuda.nccl.version())
    finally:
        dist.destroy_process_group()
    return pass_(f"NCCL {version} starts and its collectives are right in a world of one.", data={"nccl": version})
