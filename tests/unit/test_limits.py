from pathlib import Path

import pytest

from verify import core, limits
from verify.core import UsageError
from verify.limits import ceiling

core.discover()
HEAD = "schema = 1\n"
CARD = HEAD + '[gpu.x]\nnames = ["X"]\n'
GOOD = CARD + '[gpu.x.limit."gemm.bf16"]\nat_least = 100\nunit = "TFLOP/s"\nsource = "measured"\n'


def overlay(tmp_path: Path, text: str) -> limits.Limits:
    path = tmp_path / "site.toml"
    path.write_text(text)
    return limits.load(core.BENCHES, str(path))


def test_every_shipped_number_has_unit_and_source() -> None:
    made = limits.load(core.BENCHES)
    assert len(made.cards) == 6
    numbers = [n for c in made.cards for n in (*c.facts.values(), *c.limits.values())]
    assert numbers
    assert all(n.unit and n.source for n in numbers)
    assert {c.key for c in made.cards if c.limits} >= {"rtx-4090-d"}


@pytest.mark.parametrize(
    ("bench", "value"),
    [
        ("resnet.tf32_nchw", 1.10),
        ("transformer.gpt2_amp", 1.15),
        ("diffusion.train_bf16", 1.05),
        ("gemm.square_15000", 0.38),
        ("gemm.bf16", 112),
        ("gemm.fp16", 114),
        ("gemm.fp32", 37.6),
        ("memory.dram_copy", 690),
        ("memory.h2d_pinned", 18.9),
    ],
)
def test_the_4090_d_has_its_limits(bench: str, value: float) -> None:
    found, reason = limits.load(core.BENCHES).limit(bench, "NVIDIA GeForce RTX 4090 D", "2.8.0+cu128")
    assert found is not None, reason
    assert found.value == value


def test_a_limit_for_torch_2_1_is_none_for_2_11(tmp_path: Path) -> None:
    made = overlay(tmp_path, GOOD + 'torch = "2.1"\n')
    assert made.limit("gemm.bf16", "X", "2.1.2")[0] is not None
    assert made.limit("gemm.bf16", "X", "2.11.0")[0] is None


def test_a_site_adds_cards_and_overrides_single_limits(tmp_path: Path) -> None:
    name = "NVIDIA GeForce RTX 4090 D"
    made = overlay(tmp_path, GOOD.replace('["X"]', f'["{name}"]'))
    assert made.limit("gemm.bf16", name, "2.8")[0].value == 100  # type: ignore[union-attr]
    assert made.limit("gemm.fp16", name, "2.8")[0].value == 114  # type: ignore[union-attr]
    assert len(made.cards) == 6
    assert len(overlay(tmp_path, GOOD).cards) == 7


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("schema = ", "is no TOML"),
        ("", "schema 1, not None"),
        ("schema = 2", "schema 1, not 2"),
        (HEAD + "gpus = 1", "'gpus' is not one of"),
        (HEAD + "gpu = 3", "a table is needed"),
        (HEAD + "[gpu.x]\n", "names NVML gives"),
        (HEAD + '[gpu.x]\nnames = "X"\n', "names NVML gives"),
        (CARD + "cores = 1\n", "'cores' is not one of"),
        (CARD + 'memory = { value = 1, unit = "MB/s", source = "s" }\n', "the unit is GB/s, not 'MB/s'"),
        (CARD + 'memory = { value = 1, unit = "GB/s" }\n', "every number has a unit and a source"),
        (CARD + 'memory = { value = -1, unit = "GB/s", source = "s" }\n', "above zero is needed, not -1"),
        (GOOD.replace("gemm.bf16", "gemm.bf61"), "no such benchmark"),
        (GOOD.replace("at_least", "at_most"), "takes at_least alone"),
        (GOOD.replace("at_least = 100", ""), "takes at_least alone"),
        (GOOD.replace("100", "true"), "above zero is needed, not True"),
        (GOOD.replace("100", "nan"), "above zero is needed, not nan"),
        (GOOD.replace("TFLOP/s", "GB/s"), "the unit is TFLOP/s"),
        (GOOD.replace('source = "measured"', ""), "every number has a unit and a source"),
        (GOOD + "torch = 2.8\n", "in quotes is needed"),
        (GOOD + "published = 3\n", "every number has a unit and a source"),
        (GOOD + "limit = 3\n", "'limit' is not one of"),
        (HEAD + "[arch.sm_90]\nbf16 = 1\n", "the unit is FLOP/clk/SM"),
        (HEAD + '[arch.sm_90]\nbf17 = 1\nunit = "FLOP/clk/SM"\nsource = "s"\n', "'bf17' is not one of"),
    ],
)
def test_a_bad_file_is_one_sentence(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(UsageError) as error:
        overlay(tmp_path, text)
    assert words in str(error.value)
    assert "site.toml" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        limits.load(core.BENCHES, str(tmp_path / "none.toml"))


def test_ceilings() -> None:
    table = limits.load(core.BENCHES)
    h200 = {"name": "NVIDIA H200", "sm": "sm_90", "sm_count": 132}
    found = ceiling(table, "bf16", h200, {"clock_mhz": 1830})
    assert found is not None
    assert found.value == pytest.approx(989, rel=1e-3)
    assert ceiling(table, "memory", h200, {}).value == 4800  # type: ignore[union-attr]
    assert ceiling(table, "memory", {"name": "Other", "memory_gbs": 1008.1}, {}).value == 1008.1  # type: ignore[union-attr]
    assert ceiling(table, "pcie", h200, {"pcie_gen": 4, "pcie_width": 16}).value == pytest.approx(31.5, rel=1e-3)  # type: ignore[union-attr]
    assert ceiling(table, "pcie", h200, {"pcie_gen": None, "pcie_width": 16}) is None
    assert ceiling(table, "bf16", {"name": "Other", "sm": "sm_120", "sm_count": 170}, {"clock_mhz": 2400}) is None
    assert ceiling(table, "", h200, {}) is None
