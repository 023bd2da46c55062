"""The self-measurement on simulated processes; every seed is fixed."""

import json
import random
from pathlib import Path

import pytest

from verify import cli, selfmeasure
from verify.core import UsageError


def raw(path: Path, *, noise: float = 0.001, alike: int = 16, clock: float = 1980.0, **more: object) -> str:
    """A file like the selftest's: each process measures every level; pairs share noise, processes drift."""
    made, processes = random.Random(1), []
    for order in range(alike):
        drift, own = made.gauss(1, noise), made.gauss(1, noise / 2)
        shared = [drift * made.gauss(1, 0.002) for _ in range(15)]
        eager = [25.7 * s for s in shared]
        for level in (0.0, 0.01, 0.02, 0.05):
            compiled = [21.0 * s * own * (1 + level) for s in shared]
            processes.append(
                {"injected": level, "achieved": level, "order": order, "eager": eager, "compiled": compiled}
                | {"clock_mhz": clock, "others": []}
            )
    processes.append({"injected": 0.0, "order": 99, "raised": "it died"})
    data = {"workload": "a.b", "device": {"name": "a card"}, "processes": processes, **more}
    path.write_text(json.dumps(data))
    return str(path)


def test_a_quiet_machine_meets_the_goals(tmp_path: Path) -> None:
    found = selfmeasure.analyse(raw(tmp_path / "raw.json"), nights=60, sizes=(5,))
    rates = found.rates[0]
    assert (rates.false.value, rates.false_alarm.value) == (0.0, 0.0)
    assert rates.false.high < 0.07
    assert rates.detected[0.02].value >= 0.95
    assert rates.detected[0.05].value == 1.0
    assert rates.alarmed[0.05].value == 1.0
    assert rates.gain_width < 0.005
    assert (found.left_out, found.counts[0.0]) == (1, 16)


def test_a_noisy_machine_misses_what_is_small_but_does_not_cry_wolf(tmp_path: Path) -> None:
    found = selfmeasure.analyse(raw(tmp_path / "raw.json", noise=0.02), nights=60, sizes=(5,))
    rates = found.rates[0]
    assert rates.detected[0.01].value < 0.5
    assert rates.false.value <= 0.05
    assert rates.step_width > 0.005


def test_sizes_that_do_not_fit_are_left_out(tmp_path: Path) -> None:
    found = selfmeasure.analyse(raw(tmp_path / "raw.json"), nights=3)
    assert [r.size for r in found.rates] == [3, 5, 7]
    assert [r.size for r in selfmeasure.analyse(raw(tmp_path / "raw.json", alike=8), nights=3).rates] == [3]


def test_a_night_never_shares_a_process_with_its_baseline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[set[int], set[int]]] = []
    whole = selfmeasure.night

    def spy(baseline: list, processes: list, seed: int) -> tuple:
        seen.append(({p.order for p in baseline}, {p.order for p in processes}))
        return whole(baseline, processes, seed)

    monkeypatch.setattr(selfmeasure, "night", spy)
    selfmeasure.analyse(raw(tmp_path / "raw.json", alike=6), nights=15, sizes=(3,))
    assert len(seen) >= 4 * 15
    assert all(len(a) == len(b) == 3 and not a & b for a, b in seen)


def test_the_command_prints_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = raw(tmp_path / "raw.json")
    assert cli.main(["selfmeasure", path, "--nights", "5"]) == 0
    out = capsys.readouterr().out
    assert "| 5 | ±" in out
    assert "+2 %: SLOW" in out
    assert "1 disturbed or failed processes are left out" in out
    assert cli.main(["selfmeasure", path, "--nights", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["workload"] == "a.b"


def test_too_few_processes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="5 A/A processes"):
        selfmeasure.analyse(raw(tmp_path / "raw.json", alike=5))


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"processes": [1]}', '{"processes": [{"eager": [1], "compiled": [1]}]}']
)
def test_a_foreign_file_is_refused_in_one_sentence(text: str, tmp_path: Path) -> None:
    odd = tmp_path / "odd.json"
    odd.write_text(text)
    with pytest.raises(UsageError, match="is not what `verify bench selftest"):
        selfmeasure.analyse(str(odd))
    with pytest.raises(UsageError, match="cannot be read"):
        selfmeasure.analyse(str(tmp_path / "none.json"))
