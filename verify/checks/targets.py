"""Whether this machine's cards are among those a slimmed image still holds code for."""

from __future__ import annotations

from verify.core import Outcome, check, fail, pass_, skip
from verify.machine import Machine
from verify.slim.cards import kept, outside


@check(needs=("gpu", "image"))
def slimmed_for_gpus(m: Machine) -> Outcome:
    """If the image was slimmed, it was for the GPUs of this machine.

    A slimmed image holds machine code for its declared targets alone. On any other card kernels are missing: CUDA calls
    fail, or worse, only some of them do. On an H200, torch 2.11 slimmed for sm_75 ended with "CUDA error: unknown
    error".
    """
    targets = kept(m)
    if not targets:
        return pass_("The image was not slimmed: it holds the code of its wheels for every card.")
    unknown = [gpu.name for gpu in m.gpus if not gpu.sm.startswith("sm_")]
    if unknown:
        return skip(f"The architecture of {', '.join(unknown)} could not be read.")
    if strangers := outside(m):
        held = ", ".join(targets)
        wanted = ",".join(dict.fromkeys((*targets, *strangers.values())))
        cards = ", ".join(f"{name} ({sm})" for name, sm in strangers.items())
        return fail(
            f"This image was slimmed for {held} and has no code for {cards}; what fails below fails for that.",
            hint=f"Build it for this card too, `make image SLIM=on TARGETS={wanted}`, or whole, `make image SLIM=off`.",
            data={"targets": list(targets), "gpus": strangers},
        )
    return pass_(f"Slimmed for {', '.join(targets)}, which every GPU here is one of.")
