import random
import subprocess
from pathlib import Path

import pytest

from tests.unit import elfbuilder as make
from verify import elf, fatbin, payload
from verify.fatbin import Kind, Payload


def read(content: bytes) -> fatbin.FatBinary:
    return fatbin.read(content, elf.read(content))


def one(*entries: bytes) -> fatbin.Container:
    found = read(make.library(make.container(*entries)))
    assert found.problems == ()
    assert len(found.containers) == 1
    return found.containers[0]


def test_kinds_archs_and_places():
    content = make.library(make.container(make.sass(80), make.sass(90, flags=make.ARCH), make.ptx(80, (8, 4))))
    container = read(content).containers[0]
    plain, hopper, text = container.entries
    assert (plain.kind, plain.arch, plain.variant, plain.isa) == (Kind.SASS, 80, "", None)
    assert (hopper.arch, hopper.variant) == (90, "a")
    assert (text.kind, text.arch, text.isa, text.compression) == (Kind.PTX, 80, (8, 4), "none")
    # The places are places in the file: an editor can overwrite exactly the payload.
    assert content[container.offset : container.offset + 4] == fatbin.MAGIC_BYTES
    assert content[plain.payload_offset : plain.payload_offset + 4] == b"\x7fELF"
    assert text.payload_offset + text.payload_size == container.offset + container.size
    assert content[text.payload_offset : text.payload_offset + text.payload_size].rstrip(b"\0") == make.PTX_TEXT


@pytest.mark.parametrize(
    ("flags", "variant", "compression"),
    [
        (0x11, "", "none"),
        (0x13, "", "none"),
        (0x2011, "", "lz4"),
        (0x8011, "", "zstd"),
        (0x100011, "a", "none"),
        (0x102011, "a", "lz4"),
        (0x1202011, "f", "lz4"),
        (0x1100011, "a", "none"),
        (0x1000011, "", "none"),
    ],
)
def test_flags(flags, variant, compression):
    cubin = make.cubin()
    content = {"none": cubin, "lz4": make.lz4_literals(cubin), "zstd": b"\x28\xb5\x2f\xfd" + bytes(40)}[compression]
    found = one(make.entry(2, 100, content, flags=flags, unpacked=len(cubin))).entries[0]
    assert (found.variant, found.compression, found.payload) == (variant, compression, Payload.PRESENT)
    assert found.unpacked_size == (found.payload_size if compression == "none" else len(cubin))


def test_lto_is_its_own_kind():
    assert one(make.entry(8, 80, b"\x88\x5b\xe0", flags=0x18011)).entries[0].kind is Kind.LTO


def test_ptx_without_a_version_is_unknown_not_guessed():
    assert one(make.ptx(80, (0, 0))).entries[0].isa is None


def test_zeros_count_as_absent_and_nonsense_as_damaged():
    zeroed = one(make.sass(80, bytes(3_000_000))).entries[0]
    assert zeroed.payload is Payload.ZEROED
    found = read(make.library(make.container(make.sass(80, b"garbage that is no cubin"))))
    assert found.containers[0].entries[0].payload is Payload.DAMAGED
    assert "does not start like" in found.problems[0].what
    late = read(make.library(make.container(make.sass(80, bytes(64) + b"late"))))
    assert late.containers[0].entries[0].payload is Payload.DAMAGED


def test_padding_between_containers_is_no_problem():
    first, second = make.container(make.sass(80)), make.container(make.sass(86))
    found = read(make.library(bytes(24), first, bytes(40), second, bytes(16)))
    assert [c.entries[0].arch for c in found.containers] == [80, 86]
    assert found.problems == ()


def test_strange_bytes_between_containers_are_reported_and_do_not_hide_the_next():
    found = read(make.library(make.container(make.sass(80)), b"strange!" * 3, make.container(make.sass(86))))
    assert [c.entries[0].arch for c in found.containers] == [80, 86]
    assert found.problems[0].size == 24
    assert "no fat binary" in found.problems[0].what


def test_what_is_not_understood_is_reported():
    odd = {
        "unknown kind 5": make.entry(5, 80, b"x" * 8),
        "unknown flags 0x40000000": make.sass(80, flags=0x40000000),
        "two kinds of compression": make.entry(2, 80, b"\x28\xb5\x2f\xfd", flags=0xA011),
    }
    for words, entry in odd.items():
        found = read(make.library(make.container(entry, make.sass(86))))
        assert any(words in problem.what for problem in found.problems), words
        assert found.containers[0].entries[-1].arch == 86


def test_a_bad_container_header_does_not_hide_what_follows():
    bad = bytearray(make.container(make.sass(80)))
    bad[4] = 9
    found = read(make.library(bytes(bad), make.container(make.sass(86))))
    assert [c.entries[0].arch for c in found.containers] == [86]
    assert "version 9" in found.problems[0].what


def test_an_entry_that_does_not_fit_is_reported():
    body = bytearray(make.container(make.sass(80)))
    body[16 + 8 : 16 + 16] = (1 << 40).to_bytes(8, "little")
    found = read(make.library(bytes(body)))
    assert found.containers[0].entries == ()
    assert "does not fit" in found.problems[0].what


def test_loose_containers_in_other_data_are_found_but_chance_is_not():
    junk = fatbin.MAGIC_BYTES + b"\xff" * 40
    inside = junk + bytes(3000) + make.container(make.sass(89)) + junk
    content = make.shared_object(sections={".ldata": inside, ".text": make.container(make.sass(90))})
    found = read(content)
    assert [(c.section, c.loose, c.entries[0].arch) for c in found.containers] == [(".ldata", True, 89)]
    assert found.problems == ()


def test_relocatable_device_code_is_read():
    assert read(make.library(make.container(make.sass(80)), section="__nv_relfatbin")).containers[0].loose is False


def test_a_file_without_device_code_is_empty():
    assert read(make.shared_object(needed=("libc.so.6",))) == fatbin.FatBinary()


def test_truncation_at_every_byte_never_crashes(tmp_path: Path):
    whole = make.library(make.container(make.sass(80), make.ptx(80)), make.container(make.sass(90)))
    section = next(s for s in elf.read(whole).sections if s.name == ".nv_fatbin")
    tables = elf.read(whole)
    seen = 0
    for length in range(section.offset, len(whole)):
        found = fatbin.read(whole[:length], tables)
        if length < section.offset + section.size:
            assert found.problems, f"{length} bytes"
            seen += 1
        for container in found.containers:
            payload.is_empty(whole[:length], container)
    assert seen == section.size


def test_random_bytes_never_crash():
    chance = random.Random(2)
    whole = make.library(make.container(make.sass(80), make.ptx(80)), make.container(make.sass(90)))
    tables = elf.read(whole)
    section = next(s for s in tables.sections if s.name == ".nv_fatbin")
    troubled = 0
    for _ in range(3000):
        damaged = bytearray(whole)
        for _ in range(chance.randint(1, 6)):
            damaged[section.offset + chance.randrange(section.size)] = chance.randrange(256)
        found = fatbin.read(bytes(damaged), tables)
        troubled += bool(found.problems)
        for container in found.containers:
            payload.is_empty(bytes(damaged), container)
    assert troubled > 0
    noise = make.shared_object(sections={".nv_fatbin": chance.randbytes(5000)})
    assert read(noise).problems


def test_shells_without_a_kernel_are_told_from_code():
    def empty(*entries: bytes) -> bool:
        content = make.library(make.container(*entries))
        return payload.is_empty(content, read(content).containers[0])

    shell = make.cubin(())
    packed = make.entry(2, 52, make.lz4_literals(shell), flags=0x2011, unpacked=len(shell))
    assert empty(make.sass(52, shell), make.ptx(52, payload=make.EMPTY_PTX), packed)
    assert not empty(make.sass(52, shell), make.sass(80, bytes(64)))  # code may have been there
    assert not empty(make.sass(52))
    assert not empty(make.sass(52, shell), make.ptx(52))
    kernel = make.cubin()
    assert not empty(make.entry(2, 52, make.lz4_literals(kernel), flags=0x2011, unpacked=len(kernel)))
    # What cannot be looked into counts as code.
    assert not empty(make.entry(2, 52, b"\x28\xb5\x2f\xfd" + bytes(9), flags=0x8011, unpacked=800))
    assert not empty(make.sass(52, shell + bytes(5000)))
    assert not empty(make.entry(8, 80, b"\x88\x5b\xe0", flags=0x18011))


@pytest.mark.parametrize(
    ("packed", "size", "content"),
    [
        (b"\x50hello", 5, b"hello"),
        (b"\x12a\x01\x00", 7, b"aaaaaaa"),
        (make.lz4_literals(bytes(range(200)) * 3), 600, bytes(range(200)) * 3),
        (b"\x1fab\x00"[:2] + b"\x01\x00\x05", 25, b"a" * 25),
        (b"\x10a\x05\x00", 9, None),  # points before the beginning
        (b"\x50hel", 5, None),
        (b"", 5, None),
        (b"\xf0\xff", 300, None),
    ],
)
def test_lz4(packed, size, content):
    assert payload.unpack_lz4(packed, size) == content


def test_real_wheels_agree_with_tritons_cuobjdump():
    pytest.importorskip("torch", reason="needs the wheels of torch", exc_type=ImportError)
    triton = pytest.importorskip("triton", reason="needs triton's cuobjdump", exc_type=ImportError)
    site = Path(triton.__file__).parent.parent
    tool = site / "triton" / "backends" / "nvidia" / "bin" / "cuobjdump"
    names = (
        "torchvision/_C.so",
        "torchaudio/lib/libtorchaudio.so",
        "xformers/_C.so",
        "nvidia/cufile/lib/libcufile.so.0",
    )
    libraries = [site / name for name in names if (site / name).exists()]
    if not tool.exists() or not libraries:
        pytest.skip("cuobjdump or the wheels are not here")
    for library in libraries:
        ours: dict[str, list[str]] = {"elf": [], "ptx": []}
        for container in fatbin.read_file(library).containers:
            for found in container.entries:
                ours["elf" if found.kind is Kind.SASS else "ptx"].append(f"sm_{found.arch}{found.variant}")
        for kind, labels in ours.items():
            listed = subprocess.run([tool, f"-l{kind}", library], capture_output=True, text=True, check=False).stdout
            theirs = [line.split(".")[-2] for line in listed.splitlines() if ": " in line and " file " in line]
            assert sorted(theirs) == sorted(labels), (library.name, kind)
