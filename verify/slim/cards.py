"""Which cards a slimmed image still has code for."""

from __future__ import annotations

from verify.machine import Machine


def kept(m: Machine) -> tuple[str, ...]:
    """The targets a slimmed image was slimmed for; () for one that was not slimmed."""
    return tuple(((m.image or {}).get("slim") or {}).get("targets", ()))


def outside(m: Machine) -> dict[str, str]:
    """Name → sm of the GPUs that a slimmed image has no code for."""
    targets = kept(m)
    return {gpu.name: gpu.sm for gpu in m.gpus if targets and gpu.sm.startswith("sm_") and gpu.sm not in targets}
