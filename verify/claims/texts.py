"""Verdicts on claims that are no single number: names, versions, power, the instance, memory under conditions."""

from __future__ import annotations

from verify.claims.words import CARD, Facts, Word
from verify.machine import Machine
from verify.report.group import cuda

NO_GPU = "no GPU here"


def is_the_card(name: str) -> bool:
    """Whether NVML's name is the card the claims are about; the articles leave out the space."""
    return CARD.replace(" ", "") in name.replace(" ", "")


def name_of(m: Machine) -> str:
    """NVML's name of the first GPU, "" without one."""
    return m.gpus[0].name if m.gpus else ""


def quick_check(m: Machine, _: Facts) -> tuple[Word, str]:
    """C1."""
    torch = m.python.packages.get("torch", "")
    if not m.gpus or not torch:
        return Word.NOT_RUN, NO_GPU if not m.gpus else "torch is not installed"
    said = f'PyTorch {torch}, {len(m.gpus)} × "{name_of(m)}"'
    if not is_the_card(name_of(m)):
        return Word.OTHER_CARD, said
    right = torch.split("+")[0] == "2.8.0" and len(m.gpus) == 1
    return Word.NEAR if right else Word.CONTRADICTED, said


def versions(m: Machine, _: Facts) -> tuple[Word, str]:
    """C15: cuDNN by its wheel's version, the three CUDA versions apart. Another torch than 2.8 settles nothing."""
    cudnn = next((v for n, v in m.python.packages.items() if n.startswith("nvidia-cudnn-cu")), "")
    if not cudnn:
        return Word.NOT_RUN, "torch's cuDNN is not installed as a wheel here"
    parts = [f"cuDNN {cudnn}", f"driver {m.driver.version or 'none'}"]
    parts += [f"driver CUDA {cuda(m.driver.cuda)}"] if m.driver.cuda else []
    parts += [f"runtime CUDA {m.python.torch_cuda}"] if m.python.torch_cuda else []
    parts += [f"toolkit {m.toolkit.version}"] if m.toolkit.version else []
    said = ", ".join(parts)
    if not m.python.packages.get("torch", "").startswith("2.8."):
        return Word.NOT_MEASURABLE, said
    return Word.CONFIRMED if cudnn.startswith("8.9") else Word.CONTRADICTED, said


def power(m: Machine, _: Facts) -> tuple[Word, str]:
    """C16: the board's default power limit."""
    watts = m.gpus[0].power_default if m.gpus else None
    if watts is None:
        return Word.NOT_RUN, NO_GPU if not m.gpus else "the driver does not tell"
    if not is_the_card(name_of(m)):
        return Word.OTHER_CARD, f"{watts:g} W"
    return Word.CONFIRMED if watts == 450 else Word.NEAR, f"{watts:g} W"


def instance(m: Machine, _: Facts) -> tuple[Word, str]:
    """C18: what the container may use; sizes in GB (10^9 bytes) as the article gives them."""
    cores = m.container.cpu_limit or m.system.cpus_usable
    memory = (m.container.memory_limit or m.system.memory) / 1e9
    root, data = m.disk("root"), m.disk("workspace")
    if not cores or not root:
        return Word.NOT_RUN, "the machine was not read"
    sizes = [root.total / 1e9, data.total / 1e9 if data and data.exists else 0.0]
    said = f"{cores:g} cores, {memory:.0f} GB of memory, "
    said += f"a system disk of {sizes[0]:.0f} GB, " + (
        f"a data disk of {sizes[1]:.0f} GB" if sizes[1] else "no data disk"
    )
    if not is_the_card(name_of(m)):
        return Word.OTHER_CARD, said
    near = [abs(v / p - 1) <= 0.1 for v, p in zip((cores, memory, *sizes), (10, 120, 50, 40), strict=True)]
    return Word.CONFIRMED if all(near) else Word.CONTRADICTED, said


def memory_of_training(_: Machine, facts: Facts) -> tuple[Word, str]:
    """C11: 18 GB (within 10 %) as the article has it, or only with paging and the step inside the backward pass."""
    plain, lean = facts.get("train7b.gb_plain"), facts.get("train7b.gb_lean")
    if plain is None or lean is None:
        return Word.NOT_RUN, ""
    said = "; ".join(f"{f.value:.1f} {f.unit} {f.note}" if f.value else f"no figure {f.note}" for f in (plain, lean))
    if lean.value is None:
        return Word.NOT_RUN, said
    if plain.value is not None and plain.value <= 18 * 1.1:
        return Word.CONFIRMED, said
    return Word.CONDITIONAL if lean.value <= 18 * 1.1 else Word.CONTRADICTED, said
