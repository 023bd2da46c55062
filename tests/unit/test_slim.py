"""verify slim: keeps what the driver picks, zeroes the rest, and leaves every file whole and every RECORD true."""

import base64
import hashlib
import json
import os
from pathlib import Path

import pytest

from tests.unit import elfbuilder as make
from verify import cli, coverage, elf, fatbin
from verify.audit import Code
from verify.core import UsageError
from verify.fatbin import Payload
from verify.slim import decide, edit, wheels, work

BSD = "Metadata-Version: 2.4\nName: torch\nLicense: BSD-3-Clause\n\nLicense: in the text\n"
TORCH = (
    make.container(make.sass(70), make.sass(80), make.sass(86), make.sass(90), make.ptx(80)),
    make.container(make.sass(90, flags=make.ARCH)),
)


def plan(*containers: bytes, targets: tuple[int, ...] = (89,), section: str = ".nv_fatbin") -> decide.Plan:
    return decide.plan(make.library(*containers, section=section), targets)


def kept(entries: dict[str, bytes], *targets: int) -> set[str]:
    content = make.library(make.container(*entries.values()))
    found = fatbin.read(content, elf.read(content)).containers[0].entries
    keep = decide.needed(found, targets)
    return {name for name, entry in zip(entries, found, strict=True) if entry in keep}


ALL = {
    **{str(arch): make.sass(arch) for arch in (70, 75, 80, 86, 90, 100, 120)},
    "90a": make.sass(90, flags=make.ARCH),
    "100f": make.sass(100, flags=make.FAMILY),
    "ptx50": make.ptx(50),
    "ptx80": make.ptx(80),
    "ptx120": make.ptx(120),
}
FEW = {"80": ALL["80"], "90a": ALL["90a"], "ptx80": ALL["ptx80"]}


@pytest.mark.parametrize(
    ("entries", "targets", "expected"),
    [
        (ALL, (89,), {"86"}),
        (ALL, (80,), {"80"}),
        (ALL, (80, 86, 89, 90), {"80", "86", "90", "90a"}),
        (ALL, (90,), {"90", "90a"}),
        (ALL, (75,), {"75"}),
        (ALL, (87,), {"ptx50", "ptx80"}),  # a Jetson runs no desktop SASS
        (ALL, (103,), {"100", "100f"}),
        (ALL, (121,), {"120"}),
        (FEW, (89,), {"80"}),
        (FEW, (90,), {"90a"}),
        (FEW, (120,), {"ptx80"}),
        (FEW, (75,), set()),
        ({"80": ALL["80"], "ptx75": make.ptx(75)}, (75,), {"ptx75"}),
        ({"80": ALL["80"], "ptx75": make.ptx(75)}, (75, 89), {"80", "ptx75"}),
        ({"90a": ALL["90a"], "ptx80": ALL["ptx80"]}, (89,), {"ptx80"}),
        ({"86": ALL["86"], "89": make.sass(89)}, (86, 89), {"86", "89"}),
    ],
)
def test_what_the_driver_of_each_target_picks_is_kept(entries, targets, expected):
    assert kept(entries, *targets) == expected


def test_spans_are_exactly_the_other_payloads():
    content = make.library(*TORCH)
    made = decide.plan(content, (89,))
    assert made.freed.keys() == {"sm_70", "sm_80", "sm_90", "PTX compute_80", "sm_90a"}
    assert sum(span.size for span in made.spans) == sum(made.freed.values())
    edited = bytearray(content)
    for span in made.spans:
        edited[span.offset : span.offset + span.size] = bytes(span.size)
    before, after = (fatbin.read(bytes(c), elf.read(bytes(c))) for c in (content, edited))
    assert after.problems == ()
    for old, new in zip(before.containers, after.containers, strict=True):
        for a, b in zip(old.entries, new.entries, strict=True):
            stays = b.arch == 86
            assert b.payload is (Payload.PRESENT if stays else Payload.ZEROED)
            assert (a.header_offset, a.payload_size, a.flags) == (b.header_offset, b.payload_size, b.flags)
    assert decide.plan(bytes(edited), (89,)).spans == ()


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (make.entry(5, 70, b"x" * 8), "unknown kind 5"),
        (make.sass(70, flags=0x40000000), "unknown flags"),
        (make.entry(8, 70, b"\x88\x5b\xe0", flags=0x18011), "lto code"),
        (make.sass(70, b"garbage that is no cubin"), "does not start like"),
    ],
)
def test_a_container_that_is_not_understood_is_left_alone_and_said(entry, words):
    made = plan(make.container(make.sass(75), entry, make.sass(86)), make.container(make.sass(75), make.sass(86)))
    assert list(made.freed) == ["sm_75"]
    assert len(made.spans) == 1  # of the second container only
    assert words in made.left_alone[0]


def test_code_the_library_loads_itself_is_left_alone():
    made = plan(make.container(make.sass(75), make.sass(86)), section=".rodata")
    assert (made.spans, len(made.left_alone)) == ((), 1)


def test_a_container_that_serves_no_target_is_left_for_the_audit_to_find():
    made = plan(make.container(make.sass(75), make.sass(90)))
    assert made.spans == ()
    assert "serves no target, holds sm_75, sm_90" in made.left_alone[0]


def test_a_shell_without_a_kernel_is_left_alone_in_silence():
    made = plan(make.container(make.sass(52, make.cubin(()))))
    assert (made.spans, made.left_alone) == ((), ())


def test_a_truncated_library_is_edited_only_where_it_is_whole():
    whole = make.container(make.sass(75), make.sass(86))
    content = make.library(whole, whole)
    tables = elf.read(content)
    section = tables.section(".nv_fatbin")
    assert section is not None
    cut = content[: section.offset + len(whole) + 40]
    with pytest.raises(elf.ElfError):
        decide.plan(cut, (89,))  # the section table went with the end


def test_code_lost_before_is_lost_and_not_replaced_by_older_code():
    gone = make.sass(86, bytes(64))
    made = plan(make.container(make.sass(80), gone))
    assert made.spans == ()
    assert "lost the code for sm_86" in made.lost[0]


def test_flash_attention_three_goes_unless_a_target_uses_it():
    path = "xformers/flash_attn_3/_C.so"
    assert "sm_90 only" in decide.left_out(path, (80, 89))
    assert decide.left_out(path, (89, 90)) == ""
    assert decide.left_out("nvidia/cusolver/lib/libcusolver.so.11", (89,)) == ""
    assert decide.left_out("nvidia/cusolver/lib/libcusolverMg.so.11", (89,)) != ""


# A site-packages with files of several licences.


def record(site: Path, wheel: str, metadata: str, *files: str) -> None:
    lines = []
    for name in files:
        content = (site / name).read_bytes()
        code = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={code},{len(content)}\r\n")
    info = f"{wheel}.dist-info"
    make.write(site / info / "METADATA", metadata.encode())
    make.write(site / info / "RECORD", "".join([*lines, f"{info}/RECORD,,\r\n"]).encode())


@pytest.fixture
def site(tmp_path: Path) -> Path:
    root = tmp_path / "site"
    for name in ("torch/lib/libtorch_cuda.so", "torch/lib/libcudnn.so.9", "nvidia/lib/libcublas.so.12", "mine/_C.so"):
        make.write(root / name, make.library(*TORCH))
    make.write(root / "xformers/flash_attn_3/_C.so", make.library(TORCH[1]))
    make.write(root / "xformers/__init__.py", b"")
    record(root, "torch-2.8.0", BSD, "torch/lib/libtorch_cuda.so", "torch/lib/libcudnn.so.9")
    classifier = "License: UNKNOWN\nClassifier: License :: OSI Approved :: BSD License\n"
    record(root, "xformers-0.0.32", classifier, "xformers/__init__.py", "xformers/flash_attn_3/_C.so")
    secret = "License: LicenseRef-NVIDIA-Proprietary\n"
    record(root, "nvidia_cublas_cu12-12.8", secret, "nvidia/lib/libcublas.so.12")
    library = root / "torch/lib/libtorch_cuda.so"
    library.chmod(0o444)
    os.utime(library, (315532800, 315532800))
    return root


def snapshot(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def slim(site: Path, *targets: int, parts: tuple[Path, ...] = (), **options: bool) -> work.Report:
    chosen = list(targets or (89,))
    return work.slim(parts or (site,), chosen, site.parent / "slim.json", measure=False, **options)


def true_records(root: Path) -> list[str]:
    """Lines of RECORD files that are not true."""
    bad = []
    for file in root.glob("*.dist-info/RECORD"):
        for line in file.read_text().splitlines():
            name, code, size = line.rsplit(",", 2)
            content = (root / name).read_bytes() if (root / name).exists() else b"gone"
            right = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            if code and (code != f"sha256={right}" or int(size) != len(content)):
                bad.append(line)
    return bad


def test_only_what_the_licence_allows_is_edited_and_records_stay_true(site: Path):
    before = snapshot(site)
    report = slim(site)
    after = snapshot(site)
    assert report.failed == ()
    changed = {name for name in before if before[name] != after.get(name)}
    assert changed == {
        "torch/lib/libtorch_cuda.so",
        "xformers/flash_attn_3/_C.so",
        "torch-2.8.0.dist-info/RECORD",
        "xformers-0.0.32.dist-info/RECORD",
    }
    assert "xformers/flash_attn_3/_C.so" not in after
    assert true_records(site) == []
    assert b"\r\n" in after["torch-2.8.0.dist-info/RECORD"]
    assert report.manifest.left_alone["torch/lib/libcudnn.so.9"] == ("NVIDIA's own file",)
    assert report.manifest.left_alone["mine/_C.so"] == ("no wheel claims it",)
    assert "Proprietary" in report.manifest.untouched["nvidia-cublas-cu12 12.8"]
    library = site / "torch/lib/libtorch_cuda.so"
    assert len(after["torch/lib/libtorch_cuda.so"]) == len(before["torch/lib/libtorch_cuda.so"])
    assert (library.stat().st_mode & 0o777, library.stat().st_mtime) == (0o444, 315532800)
    (item,) = report.manifest.files
    assert item.sha256_before == hashlib.sha256(before[item.path]).hexdigest()
    assert item.sha256_after == hashlib.sha256(after[item.path]).hexdigest()
    assert (item.wheel, item.licence) == ("torch 2.8.0", "BSD-3-Clause")


def test_dry_run_changes_nothing_and_tells_the_same(site: Path):
    before = snapshot(site.parent)
    shown = slim(site, dry_run=True)
    assert (snapshot(site.parent), shown.changed) == (before, 0)
    done = slim(site)
    assert [f.freed for f in shown.manifest.files] == [f.freed for f in done.manifest.files]


def test_second_run_changes_nothing(site: Path):
    slim(site)
    before = snapshot(site.parent)
    report = slim(site)
    assert (snapshot(site.parent), report.changed, report.failed) == (before, 0, ())


def test_parts_of_a_site_packages_count_as_one(site: Path, tmp_path: Path):
    part = tmp_path / "layer"
    part.mkdir()
    (site / "torch").rename(part / "torch")
    assert slim(site, parts=(site, part)).changed == 2
    assert b"torch/lib/libtorch_cuda.so" in (site / "torch-2.8.0.dist-info/RECORD").read_bytes()
    (part / "torch").rename(site / "torch")
    assert true_records(site) == []


@pytest.mark.parametrize("moment", ["fsync", "replace"])
def test_a_killed_run_leaves_files_whole_and_the_next_run_finishes(site: Path, monkeypatch, moment):
    class Killed(BaseException):
        pass

    def kill(*_: object) -> None:
        raise Killed

    before = snapshot(site)
    library = "torch/lib/libtorch_cuda.so"
    real = os.replace
    with monkeypatch.context() as patch:
        if moment == "fsync":
            patch.setattr(edit.os, "fsync", kill)
        else:
            patch.setattr(edit.os, "replace", lambda a, b: kill() if str(b).endswith(".so") else real(a, b))
        with pytest.raises(Killed):
            slim(site)
    assert snapshot(site)[library] == before[library]
    report = slim(site)
    assert (report.failed, true_records(site)) == ((), [])
    assert report.manifest.files[0].sha256_before == hashlib.sha256(before[library]).hexdigest()
    assert report.manifest.files[0].sha256_after == hashlib.sha256(snapshot(site)[library]).hexdigest()
    assert [p.name for p in site.rglob(".*.slim")] == []


def test_killed_between_the_last_file_and_record_is_made_true_by_the_next_run(site: Path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(work, "_records", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            slim(site)
    assert true_records(site) != []
    slim(site)
    assert true_records(site) == []


def test_a_file_that_cannot_be_replaced_stays_and_is_named(site: Path, monkeypatch):
    before = snapshot(site)
    monkeypatch.setattr(edit.os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    report = slim(site)
    assert "libtorch_cuda.so could not be rewritten and is what it was: No space left on device" in report.failed[0]
    after = snapshot(site)
    assert after["torch/lib/libtorch_cuda.so"] == before["torch/lib/libtorch_cuda.so"]
    assert "RECORD of xformers" in report.failed[-1]
    assert report.manifest.files == ()


def test_slimmed_further_keeps_what_it_was_at_first_and_wider_is_refused(site: Path):
    first = slim(site, 86, 90).manifest.files[0]
    second = slim(site, 86).manifest.files[0]
    assert second.sha256_before == first.sha256_before
    assert second.freed["sm_90"] > 0
    report = slim(site, 86, 90)
    assert "reinstall torch 2.8.0" in report.failed[0]
    assert report.changed == 0


@pytest.mark.parametrize(
    ("metadata", "allowed"),
    [
        ("License-Expression: MIT\n", True),
        ("Classifier: License :: OSI Approved :: Apache Software License\n", True),
        ("License: LicenseRef-NVIDIA-Proprietary\n", False),
        ("License: BSD-3-Clause\nClassifier: License :: Other/Proprietary License\n", False),
        ("Name: torch\n\nLicense: MIT, says the description\n", False),
        ("", False),
    ],
)
def test_the_licence_of_the_metadata_decides(tmp_path: Path, metadata, allowed):
    make.write(tmp_path / "torch/_C.so", b"")
    record(tmp_path, "torch-2.8.0", metadata, "torch/_C.so")
    wheel = wheels.owners([tmp_path])["torch/_C.so"]
    assert (wheel.forbids("torch/_C.so") == "") is allowed


def test_the_audit_finds_what_slimming_lost():
    """The container lost everything, and one that never was for this card did too: only the first is a fault."""
    from verify.audit import Group, Library

    gone = tuple(Code("sass", arch, "", None, False) for arch in (70, 86))
    hopper = (Code("sass", 90, "a", None, False),)
    there = (Code("sass", 70, "", None, False), Code("sass", 86))
    older = (Code("sass", 80), Code("sass", 86, "", None, False))
    groups = tuple(Group(codes, 1, ".nv_fatbin", 0) for codes in (there, hopper))
    good = coverage.judge(Library("/s/_C.so", "_C.so", "torch 2.8.0", 1, groups), 89, (8, 4))
    assert (good.served, good.other_cards, good.faults) == (1, 1, ())
    for lost in (gone, older):
        bad = Library("/s/_C.so", "_C.so", "torch 2.8.0", 1, (*groups, Group(lost, 1, ".nv_fatbin", 0)))
        assert "lost the code for sm_89: sm_86" in coverage.judge(bad, 89, (8, 4)).faults[0]


def test_old_ptx_of_gpudirect_storage_is_no_fault_and_newer_is():
    from verify.audit import Group, Library

    def judged(isa: tuple[int, int]) -> coverage.Verdict:
        codes = (Code("ptx", 80, "", isa), Code("sass", 86))
        return coverage.judge(
            Library("/s/nvidia/cufile/lib/libcufile.so.0", "", "", 1, (Group(codes, 1, ".nv_fatbin", 0),)), 90, (8, 4)
        )

    assert (judged((7, 1)).reach, judged((7, 1)).jit, judged((7, 1)).faults) == (coverage.Reach.JIT, 0, ())
    assert judged((8, 7)).refused != ()


def test_command_line(site: Path, capsys):
    place = site.parent / "m.json"
    assert cli.main(["slim", str(site), "--target", "sm_89", "--manifest", str(place), "--dry-run"]) == 0
    assert not place.exists()
    assert cli.main(["slim", str(site), "--target", "sm_89", "--manifest", str(place)]) == 0
    said = capsys.readouterr().out
    assert "torch/lib/libtorch_cuda.so" in said
    assert "left out: FlashAttention-3" in said
    assert json.loads(place.read_text())["targets"] == ["sm_89"]
    assert cli.main(["slim", str(site), "--target", "sm_89,sm_90", "--manifest", str(place)]) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--target", "8.9"], "write --target sm_89"),
        (["--target", "sm_89", "/nowhere"], "/nowhere is not a folder"),
        ([], "--target"),
    ],
)
def test_bad_arguments_end_in_one_sentence(arguments, words, capsys):
    assert cli.main(["slim", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_a_folder_without_wheels_and_a_manifest_of_something_else_are_refused(site: Path, tmp_path: Path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="RECORD"):
        slim(site, parts=(tmp_path / "empty",))
    (site.parent / "slim.json").write_text('{"schema": 7}')
    with pytest.raises(UsageError, match="no manifest"):
        slim(site)
