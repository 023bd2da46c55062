"""It works and is slow."""

from __future__ import annotations

from verify.doctor import facts
from verify.doctor.entry import Entry

ENTRIES = (
    Entry(
        id="card-held-back",
        title="The card is held back by its slot, its power or its heat",
        layer="speed",
        rank=3,
        cause="The GPU cannot run at its speed: fewer PCIe lanes than it has, a lowered power limit, or throttling "
        "by heat or power. (Lanes and generation count under load: an idle link is slow to save power.)",
        fix="Measure under load (`nvidia-smi -q -d PERFORMANCE,POWER,CLOCK`), raise the limit (`nvidia-smi -pl`), "
        "improve cooling, move the card to a full slot; on a rented machine change it.",
        command="nvidia-smi -q -d PERFORMANCE,POWER,PCIE",
        text=(
            r"slot is narrower than",
            r"LnkSta:.{0,40}width x\d{1,2} \(downgraded\)",
            r"(?:HW|SW) (?:Power Brake|Thermal|Power|) ?(?:Slowdown|Capping|Cap)\s{0,40}: Active",
            r"(?:hw|sw)_(?:slowdown|thermal_slowdown|power_brake_slowdown)\S{0,12}\W{1,4}active\b",
            r"(?:hardware|software) thermal slowdown",
            r"thermal (?:throttl|slowdown)\w{0,8}",
            r"GPU is (?:being )?throttl",
            r"(?:pcie|link).{0,30}(?:width|lanes).{0,12}x?[1248] ?(?:of|/|<|instead of) ?x?16",
            r"power limit.{0,40}below (?:the )?default",
            r"temperature.{0,40}(?:exceed|above).{0,20}(?:slowdown|limit)",
        ),
        facts=facts.slowed,
        source=("noonghunna/club-3090#585", "tinygrad/open-gpu-kernel-modules#6"),
    ),
    Entry(
        id="too-many-threads",
        title="More threads than the container has cores",
        layer="speed",
        rank=5,
        cause="A variable for the number of threads is not usable, or more workers are started than the container "
        "has cores.",
        fix="Set OMP_NUM_THREADS to the number of cores, and num_workers to no more.",
        command="export OMP_NUM_THREADS=$(nproc)",
        text=(
            r"invalid value for environment variable OMP_NUM_THREADS",
            r"suggested max number of worker in current system is",
        ),
        checks=("container.processors",),
    ),
)
