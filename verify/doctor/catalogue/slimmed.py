"""A slimmed image on a card that it was not slimmed for."""

from __future__ import annotations

from verify.doctor.entry import Entry
from verify.machine import Machine
from verify.slim.cards import kept, outside


def _outside(m: Machine) -> str:
    cards = ", ".join(f"{name} ({sm})" for name, sm in outside(m).items())
    return f"slimmed for {', '.join(kept(m))}; this machine has {cards}" if cards else ""


ENTRIES = (
    Entry(
        id="image-slimmed-for-other-gpu",
        title="The image was slimmed for other GPUs than this machine has",
        layer="driver",
        rank=3,
        cause="A slimmed image holds machine code for its declared targets alone, and this card is none of them: its "
        "kernels end in error 209 (no kernel image) or 200 (invalid image).",
        fix="Build the image with TARGETS naming this card too, or whole with SLIM=off.",
        command="make image SLIM=off",
        text=(r"image was slimmed for sm_\d.{0,80}has no code for",),
        facts=_outside,
        checks=("targets.slimmed_for_gpus",),
        hides=("no-kernel-for-gpu", "torch-lacks-gpu"),
    ),
)
