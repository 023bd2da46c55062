import json
from pathlib import Path

import pytest

from tests.unit import helpers
from verify import machine
from verify.core import NEEDS, UsageError
from verify.machine import Machine

SNAPSHOTS = sorted(p.stem for p in helpers.MACHINES.glob("*.json"))


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_a_record_comes_back_from_json_unchanged(name: str) -> None:
    m = helpers.load(name)
    assert Machine.from_dict(json.loads(json.dumps(m.to_dict()))) == m
    assert m.disk("root")


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_a_snapshot_names_nobody(name: str) -> None:
    text = (helpers.MACHINES / f"{name}.json").read_text().lower()
    assert not [word for word in ("serial", "uuid", "hostname", "gpu-", "token", "@") if word in text]


def test_records_are_frozen(healthy: Machine) -> None:
    with pytest.raises(AttributeError):
        healthy.gpus[0].name = "another"  # type: ignore[misc]


def test_unknown_keys_are_ignored_and_absent_ones_default() -> None:
    m = Machine.from_dict({"schema": 1, "novelty": 3, "container": {"engine": "podman", "novelty": 1}})
    assert m.container.engine == "podman"
    assert m.container.memlock == machine.UNLIMITED


@pytest.mark.parametrize("data", [[], {}, {"schema": 2}, {"schema": 1, "container": []}])
def test_what_is_no_machine_is_refused(data: object) -> None:
    with pytest.raises(ValueError, match="not"):
        Machine.from_dict(data)  # type: ignore[arg-type]


def test_a_loaded_record_is_marked(tmp_path: Path, healthy: Machine) -> None:
    path = tmp_path / "m.json"
    path.write_text(json.dumps(healthy.to_dict()))
    assert machine.load(str(path)).recorded
    path.write_text(json.dumps(helpers.run_of().to_dict()))
    assert machine.load(str(path)).gpus == healthy.gpus


@pytest.mark.parametrize("text", ["", "no json", "[]", '{"schema": 5}', '{"schema": 1, "gpus": 3}'])
def test_a_bad_record_is_one_sentence(tmp_path: Path, text: str) -> None:
    path = tmp_path / "m.json"
    path.write_text(text)
    with pytest.raises(UsageError, match="is not a machine recorded by"):
        machine.load(str(path))


def test_a_missing_record_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        machine.load(str(tmp_path / "none.json"))


def test_the_healthy_machine_meets_what_it_has(healthy: Machine) -> None:
    assert {need: healthy.unmet(need) for need in NEEDS if need not in {"multi_gpu", "docker"}} == dict.fromkeys(
        set(NEEDS) - {"multi_gpu", "docker"}, ""
    )
    assert "One GPU only" in healthy.unmet("multi_gpu")
    assert "inside a container" in healthy.unmet("docker")


def test_an_empty_machine_meets_nothing_and_says_what_to_do() -> None:
    for need in set(NEEDS) - {"docker"}:
        assert Machine().unmet(need).endswith(".")
        assert Machine().remedy(need).endswith(".")


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("driver.cuinit", 804, "cuInit says 804"),
        ("driver.kernel_module", "", "device files are here, libcuda.so.1 is not"),
        ("driver.nodes", (), "was not given it"),
    ],
)
def test_the_lowest_missing_layer_is_the_reason(healthy: Machine, path: str, value: object, words: str) -> None:
    m = helpers.change(healthy, "gpus", ())
    m = helpers.change(m, path, value)
    m = m if "cuinit" in path else helpers.change(helpers.change(m, "driver.libcuda", ""), "driver.cuinit", None)
    assert words in m.unmet("gpu")


def test_half_a_driver_has_its_own_remedy(healthy: Machine) -> None:
    m = helpers.change(helpers.change(healthy, "gpus", ()), "driver.libcuda", "")
    assert "NVIDIA_DRIVER_CAPABILITIES" in m.remedy("gpu")
