import argparse
import io
import json
from pathlib import Path

import pytest

from tests.unit import elfbuilder as make
from verify import audit, audit_cli, coverage
from verify.audit import Code, Group, Inventory, Library
from verify.core import UsageError
from verify.coverage import Reach

ISA_550 = (8, 4)


def sass(arch: int, variant: str = "", present: bool = True) -> Code:
    return Code("sass", arch, variant, None, present)


def ptx(arch: int, isa: tuple[int, int] | None = (8, 4), variant: str = "") -> Code:
    return Code("ptx", arch, variant, isa)


def library(*groups: tuple[Code, ...], path: str = "/site/ext/_C.so", section: str = ".nv_fatbin") -> Library:
    made = tuple(Group(codes, 1, section, 0, loose=section != ".nv_fatbin") for codes in groups)
    return Library(path, path.removeprefix("/site/"), "ext 1.0", 1, made)


def judge(*groups: tuple[Code, ...], target: int = 89, **where: str) -> coverage.Verdict:
    return coverage.judge(library(*groups, **where), target, ISA_550)


@pytest.mark.parametrize(
    ("codes", "target", "expected"),
    [
        ((sass(89),), 89, Reach.NATIVE),
        ((sass(80), sass(86)), 89, Reach.COMPATIBLE),
        ((sass(80), ptx(80, (8, 7))), 89, Reach.COMPATIBLE),
        ((sass(86),), 80, Reach.NONE),
        ((sass(75),), 89, Reach.NONE),
        ((sass(90),), 89, Reach.NONE),
        ((sass(90),), 90, Reach.NATIVE),
        ((sass(90, "a"),), 90, Reach.NATIVE),
        ((sass(90, "a"),), 89, Reach.NONE),
        ((sass(100, "a"),), 103, Reach.NONE),
        ((sass(100, "f"),), 103, Reach.COMPATIBLE),
        ((sass(103, "f"),), 100, Reach.NONE),
        ((sass(100, "f"),), 101, Reach.NONE),
        ((sass(120, "f"),), 121, Reach.COMPATIBLE),
        ((sass(100),), 103, Reach.COMPATIBLE),
        ((sass(100),), 120, Reach.NONE),
        ((sass(87),), 89, Reach.NONE),
        ((sass(80),), 87, Reach.NONE),
        ((sass(87),), 87, Reach.NATIVE),
        ((ptx(80),), 89, Reach.JIT),
        ((ptx(80),), 120, Reach.JIT),
        ((ptx(90),), 89, Reach.NONE),
        ((ptx(90, variant="a"),), 100, Reach.NONE),
        ((ptx(90, variant="a"),), 90, Reach.JIT),
        ((ptx(80, (8, 5)),), 89, Reach.NONE),
        ((ptx(80, None),), 89, Reach.JIT),
        ((sass(86, present=False), ptx(80)), 89, Reach.JIT),
        ((sass(86, present=False),), 89, Reach.NONE),
        ((Code("lto", 80),), 89, Reach.NONE),
        ((), 89, Reach.NONE),
    ],
)
def test_how_one_container_gets_to_run(codes, target, expected):
    assert coverage.reach(codes, target, ISA_550) is expected


@pytest.mark.parametrize(
    ("driver", "isa"),
    [
        ("550.90.07", (8, 4)),
        ("525.60.13", (8, 0)),
        ("560.35.03", (8, 5)),
        ("570.86.10", (8, 7)),
        ("580.65.06", (9, 0)),
        ("700.1", (9, 4)),
        ("470.1", None),
        ("", None),
        ("12.4", None),
        ("driver", None),
    ],
)
def test_newest_ptx_of_a_driver(driver, isa):
    assert coverage.driver_isa(driver) == isa


def test_newest_ptx_of_a_driver_by_its_cuda_version():
    assert coverage.cuda_isa(12040) == (8, 4)
    assert coverage.cuda_isa(12080) == (8, 7)
    assert coverage.cuda_isa(13000) == (9, 0)
    assert coverage.cuda_isa(11040) is None


def test_targets_are_written_like_sm_89():
    assert coverage.parse_target("sm_89") == 89
    assert coverage.parse_target("sm_90a") == 90
    for wrong in ("89", "8.9", "compute_89", "sm_", "sm_89x", ""):
        with pytest.raises(ValueError, match="sm_89"):
            coverage.parse_target(wrong)


def test_a_library_is_as_good_as_its_weakest_container():
    assert judge((sass(89),), (sass(89),)).reach is Reach.NATIVE
    assert judge((sass(89),), (sass(86),)).reach is Reach.COMPATIBLE
    verdict = judge((sass(86),), (sass(75), ptx(75)))
    assert (verdict.reach, verdict.served, verdict.jit, verdict.faults) == (Reach.JIT, 1, 1, ())


def test_plain_code_for_another_card_alone_fails():
    verdict = judge((sass(90),))
    assert verdict.reach is Reach.NONE
    assert "sm_90" in verdict.faults[0]


def test_one_unit_built_for_another_card_fails_though_the_others_are_fine():
    verdict = judge((sass(80),), (sass(80),), (sass(90),))
    assert verdict.reach is Reach.NONE
    assert len(verdict.faults) == 1


def test_architecture_specific_units_beside_served_ones_are_for_other_cards():
    verdict = judge((sass(80),), (sass(90, "a"),), (sass(100, "f"), sass(120, "f")))
    assert (verdict.reach, verdict.other_cards, verdict.faults) == (Reach.COMPATIBLE, 2, ())


def test_a_library_of_nothing_but_architecture_specific_code_fails_unless_it_is_known():
    assert judge((sass(90, "a"),)).faults
    known = judge((sass(90, "a"),), path="/site/xformers/flash_attn_3/_C.so")
    assert known.faults == ()
    assert known.reach is Reach.NONE
    assert "Hopper" in known.note


def test_nvidias_libraries_choose_by_architecture_but_must_serve_the_card():
    path = "/site/nvidia/cublas/lib/libcublasLt.so.12"
    verdict = judge((sass(80),), (sass(90), sass(120)), (sass(75),), path=path)
    assert (verdict.reach, verdict.served, verdict.other_cards, verdict.faults) == (Reach.COMPATIBLE, 1, 2, ())
    assert "cuBLASLt" in verdict.note
    assert judge((sass(80),), (ptx(80),), path=path).jit == 1, "PTX alone is meant for the JIT"
    assert judge((sass(90),), path=path).faults, "not one container serves the card"
    # A build of one's own under a similar name gets no such credit.
    assert judge((sass(80),), (sass(90),), path="/site/ext/libcublas_ext.so").faults


def test_lost_code_is_a_fault_in_any_library():
    path = "/site/nvidia/cublas/lib/libcublasLt.so.12"
    for where in ({"path": path}, {}):
        verdict = judge((sass(80),), (sass(80, present=False), sass(90)), **where)
        assert verdict.reach is Reach.NONE
        assert "lost the code" in verdict.faults[0]
        assert "sm_80" in verdict.faults[0]
    # Zeros beside a better choice are what slimming leaves behind.
    assert judge((sass(80, present=False), sass(86))).faults == ()


def test_code_the_library_loads_itself_counts_when_it_serves():
    verdict = judge((sass(86),), (sass(100),), (Code("lto", 50),), section=".ldata")
    assert (verdict.reach, verdict.served, verdict.other_cards) == (Reach.COMPATIBLE, 1, 2)
    assert judge((sass(100),), section=".ldata").faults


def test_ptx_the_library_itself_has_compiled_is_counted_and_must_be_old_enough():
    made = judge((sass(89),), (ptx(80, (7, 5)),), (ptx(90, (7, 8)),), (Code("lto", 50),), section=".ldata")
    assert (made.reach, made.own_ptx, made.jit, made.refused) == (Reach.NATIVE, 1, 0, ())
    newer = judge((sass(89),), (ptx(80, (8, 7)),), section=".ldata")
    assert (newer.reach, newer.own_ptx) == (Reach.NONE, 1)
    assert "ISA 8.7" in newer.refused[0]


def test_ptx_too_new_for_the_driver_is_named():
    verdict = judge((ptx(80, (8, 7)),))
    assert (verdict.reach, verdict.jit) == (Reach.NONE, 1)
    assert "ISA 8.7" in verdict.refused[0]
    assert coverage.judge(library((ptx(80, (8, 7)),)), 89, (8, 7)).reach is Reach.JIT


def test_shells_do_not_count():
    shell = Library("/s/a.so", "a.so", "", 1, (Group((sass(52),), 1, ".nv_fatbin", 0, empty=True),))
    assert coverage.judge(shell, 89, ISA_550).reach is Reach.NO_CODE


@pytest.fixture
def site(tmp_path: Path) -> Path:
    root = tmp_path / "site"
    both = make.container(make.sass(80), make.sass(90, flags=make.ARCH), make.ptx(80, (8, 7)))
    make.write(root / "ext" / "_C.so", make.library(both, both, make.container(make.sass(89))))
    make.write(root / "plain" / "lib.so.1", make.shared_object(needed=("libc.so.6",)))
    make.write(root / "plain" / "readme.so.txt", b"no ELF file")
    make.write(root / "ext-1.0.dist-info" / "RECORD", b"ext/_C.so,sha256=abc,123\next/__init__.py,,\n")
    (root / "ext" / "link.so").symlink_to(root / "ext" / "_C.so")
    return root.resolve()


def test_scan_counts_equal_containers_and_names_the_wheel(site: Path):
    steps: list[tuple[int, int, str]] = []
    found = audit.scan([site], progress=lambda *step: steps.append(step))
    assert (found.files, found.unreadable, found.cached) == (2, (), 0)
    (library,) = found.libraries
    assert (library.name, library.owner) == ("ext/_C.so", "ext 1.0")
    assert sorted(group.count for group in library.groups) == [1, 2]
    labels = {code.label for group in library.groups for code in group.codes}
    assert labels == {"sm_80", "sm_89", "sm_90a", "PTX compute_80 (ISA 8.7)"}
    assert steps[0][:2] == (0, 2)
    assert steps[-1] == (2, 2, "")


def test_inventory_survives_json(site: Path):
    make.write(site / "cut.so", make.shared_object()[:-20])
    found = audit.scan([site])
    assert found.unreadable
    assert Inventory.from_json(json.loads(json.dumps(found.to_json()))) == found
    with pytest.raises(ValueError, match="schema 99"):
        Inventory.from_json({**found.to_json(), "schema": 99})
    with pytest.raises(TypeError):
        Inventory.from_json({"schema": audit.SCHEMA})


def test_cache_answers_until_a_file_or_its_record_changes(site: Path, tmp_path: Path):
    cache = tmp_path / "cache" / "binaries.json"
    first = audit.scan([site], cache=cache)
    second = audit.scan([site], cache=cache)
    assert (first.cached, second.cached) == (0, 2)
    assert second.libraries == first.libraries
    (site / "ext-1.0.dist-info" / "RECORD").write_text("ext/_C.so,sha256=other,123\n")
    assert audit.scan([site], cache=cache).cached == 1
    make.write(site / "ext" / "_C.so", make.library(make.container(make.sass(90))))
    changed = audit.scan([site], cache=cache)
    assert changed.cached == 1
    assert changed.libraries[0].groups[0].codes == (sass(90),)


@pytest.mark.parametrize("content", ["", "[]", "{", '{"reader": "x"}', '{"reader": "old", "files": {}}'])
def test_a_bad_cache_is_never_fatal(site: Path, tmp_path: Path, content: str):
    cache = make.write(tmp_path / "c" / "binaries.json", content.encode())
    assert audit.scan([site], cache=cache).cached == 0
    assert audit.scan([site], cache=cache).cached == 2


def test_damaged_entries_and_an_unwritable_cache_are_never_fatal(site: Path, tmp_path: Path):
    cache = tmp_path / "binaries.json"
    audit.scan([site], cache=cache)
    data = json.loads(cache.read_text())
    for entry in data["files"].values():
        entry["library"] = {"nonsense": 1}
    cache.write_text(json.dumps(data))
    assert audit.scan([site], cache=cache).cached == 0
    blocked = make.write(tmp_path / "file", b"") / "below" / "binaries.json"
    assert audit.scan([site], cache=blocked).files == 2


def test_cache_place_follows_xdg(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert audit.cache_file() == Path("/somewhere/verify/binaries.json")


def test_roots_are_this_python_and_the_toolkit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    roots = audit.default_roots()
    assert tmp_path.resolve() in roots
    assert len(set(roots)) == len(roots)


def call(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    audit_cli.add_parser(parser.add_subparsers())
    options = parser.parse_args(["audit", "--no-cache", *arguments])
    return int(options.run(options))


def test_command_prints_the_table(site: Path, capsys: pytest.CaptureFixture[str]):
    assert call(str(site)) == 0
    printed = capsys.readouterr().out
    assert "ext/_C.so" in printed
    assert "runs by compatible SASS" in printed
    assert "SASS 80 89 90a | PTX 8.7 for 80" in printed
    assert "1 libraries, 0 with a fault, 0 containers that need JIT" in printed


def test_command_fails_on_a_library_for_other_cards(site: Path, capsys: pytest.CaptureFixture[str]):
    make.write(site / "hopper.so", make.library(make.container(make.sass(90))))
    assert call(str(site), "--target", "sm_89,sm_90") == 1
    printed = capsys.readouterr().out
    assert "! 1 container of .nv_fatbin without code for sm_89, only for sm_90" in printed
    assert "sm_90, driver 550.90.07" in printed
    make.write(site / "hopper.so", make.library(make.container(make.ptx(80, (8, 7)))))
    assert call(str(site)) == 1
    assert "PTX too new for this driver" in capsys.readouterr().out
    assert call(str(site), "--driver", "570.86.10") == 1, "JIT is a finding even where the driver can"


def test_command_gives_json(site: Path, capsys: pytest.CaptureFixture[str]):
    assert call(str(site), "--json", "--target", "sm_75") == 1
    data = json.loads(capsys.readouterr().out)
    assert data["verdicts"][0]["reach"] == "cannot run"
    assert data["inventory"]["libraries"][0]["name"] == "ext/_C.so"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--target", "8.9"], "not written like sm_89"),
        (["--driver", "new"], "no driver version"),
        (["/no/such/folder"], "not a folder"),
    ],
)
def test_command_names_bad_arguments(arguments, words):
    with pytest.raises(UsageError, match=words):
        call(*arguments)


def test_progress_only_on_a_terminal():
    stream = io.StringIO()
    assert audit_cli.progress_on(stream) is None
    stream.isatty = lambda: True  # type: ignore[method-assign]
    show = audit_cli.progress_on(stream)
    assert show is not None
    show(1, 9, "libtorch_cuda.so")
    show(9, 9, "")
    assert "1/9 libtorch_cuda.so" in stream.getvalue()
