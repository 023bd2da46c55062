"""A slimmed image says first, and by name, that this card is none of its own."""

import pytest

from verify import core, runner
from verify.checks import targets
from verify.core import Status
from verify.doctor.catalogue import BY_ID
from verify.machine import Gpu, Machine

H200 = Gpu(index=0, name="NVIDIA H200", sm="sm_90")
CARD = Gpu(index=0, name="NVIDIA GeForce RTX 4090 D", sm="sm_89")


def machine(gpu: Gpu, *slimmed: str) -> Machine:
    slim = {"targets": list(slimmed), "files": []} if slimmed else None
    return Machine(gpus=(gpu,), image={"schema": 1, "targets": list(slimmed or ("sm_89",)), "slim": slim})


@pytest.mark.parametrize(
    ("m", "expected"),
    [
        (machine(CARD, "sm_89"), Status.PASS),
        (machine(CARD, "sm_80", "sm_89"), Status.PASS),
        (machine(H200), Status.PASS),
        (machine(H200, "sm_89"), Status.FAIL),
        (machine(CARD, "sm_86"), Status.FAIL),  # the driver would pick sm_89 code where there was some
        (machine(Gpu(index=0, name="?"), "sm_89"), Status.SKIP),
    ],
)
def test_verdict(m, expected):
    assert targets.slimmed_for_gpus(m).status is expected


def test_failure_names_cause_and_fix():
    outcome = targets.slimmed_for_gpus(machine(H200, "sm_89"))
    assert "slimmed for sm_89" in outcome.message
    assert "NVIDIA H200 (sm_90)" in outcome.message
    assert "TARGETS=sm_89,sm_90" in outcome.hint
    assert "SLIM=off" in outcome.hint


def test_it_is_the_first_of_all_checks():
    assert next(iter(core.select(core.discover(), (), ("gpu",), ()))).id == "targets.slimmed_for_gpus"
    check = core.discover()["targets.slimmed_for_gpus"]
    assert runner.run_one(check, machine(H200, "sm_89"), require=("gpu",)).status is Status.FAIL


def test_doctor_knows_it_from_the_machine():
    entry = BY_ID["image-slimmed-for-other-gpu"]
    assert entry.facts is not None
    assert entry.facts(machine(H200, "sm_89")) == "slimmed for sm_89; this machine has NVIDIA H200 (sm_90)"
    assert entry.facts(machine(H200)) == ""
    assert entry.facts(machine(CARD, "sm_89")) == ""
