import random
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.elfbuilder import shared_object, write
from verify import elf, symbols

SAMPLE = shared_object(
    soname="libsample.so.1",
    needed=("libc.so.6", "libc10.so"),
    runpath="$ORIGIN/../lib:/usr/lib",
    defined=("answer", "_ZN2at4emptyEv"),
    undefined=("malloc",),
    weak=("__gmon_start__",),
    versions={"libc.so.6": ("GLIBC_2.34", "GLIBC_2.2.5"), "libm.so.6": ("GLIBC_2.29",)},
    sections={".rodata": b"hello"},
)


def test_tables_of_a_shared_object():
    tables = elf.read(SAMPLE)
    assert tables.kind == elf.SHARED
    assert tables.machine == elf.X86_64
    assert tables.dynamic == elf.Dynamic(
        "libsample.so.1", ("libc.so.6", "libc10.so"), (), ("$ORIGIN/../lib", "/usr/lib")
    )
    data = tables.section(".rodata")
    assert data is not None
    assert SAMPLE[data.offset : data.offset + data.size] == b"hello"
    assert data.is_data
    assert tables.section(".nv_fatbin") is None


def test_symbols_and_versions():
    found = symbols.read(SAMPLE, elf.read(SAMPLE))
    assert found.defined == {"answer", "_ZN2at4emptyEv"}
    assert found.undefined == {"malloc"}, "a weak reference may stay unresolved"
    assert found.versions == {"libc.so.6": ("GLIBC_2.34", "GLIBC_2.2.5"), "libm.so.6": ("GLIBC_2.29",)}


def test_rpath_is_kept_apart_from_runpath():
    tables = elf.read(shared_object(rpath="/a:/b"))
    assert tables.dynamic is not None
    assert tables.dynamic.rpath == ("/a", "/b")
    assert tables.dynamic.runpath == ()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not an ELF file"),
        (b"\x7fELF", "shorter than an ELF header"),
        (b"#!/bin/sh\n" * 20, "not an ELF file"),
        (b"\x7fELF\x01\x01" + SAMPLE[6:], "64-bit"),
        (SAMPLE[:-30], "truncated"),
    ],
)
def test_other_files_are_refused_with_a_reason(content, words):
    with pytest.raises(elf.ElfError, match=words):
        elf.read(content)


def test_every_truncation_ends_in_a_clear_error():
    for length in range(len(SAMPLE)):
        with pytest.raises(elf.ElfError, match=r"\w+ \w+"):
            symbols.read(SAMPLE[:length], elf.read(SAMPLE[:length]))


def test_random_damage_never_crashes_the_reader():
    chance = random.Random(1)
    refused = 0
    for _ in range(3000):
        damaged = bytearray(SAMPLE)
        for _ in range(chance.randint(1, 8)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        try:
            symbols.read(bytes(damaged), elf.read(bytes(damaged)))
        except elf.ElfError:
            refused += 1
    assert refused > 0


def test_a_version_chain_that_points_back_at_itself_ends():
    damaged = bytearray(SAMPLE)
    table = next(s for s in elf.read(SAMPLE).sections if s.name == ".gnu.version_r")
    damaged[table.offset + 16 + 12 : table.offset + 16 + 16] = struct.pack("<I", 0xFFFFFFF0)
    with pytest.raises(elf.ElfError):
        symbols.read(bytes(damaged), elf.read(bytes(damaged)))
    damaged = bytearray(SAMPLE)
    damaged[table.offset + 2 : table.offset + 4] = struct.pack("<H", 65535)
    damaged[table.offset + 28 : table.offset + 32] = struct.pack("<I", 0)
    assert symbols.read(bytes(damaged), elf.read(bytes(damaged))).versions["libc.so.6"]


def test_is_elf(tmp_path: Path):
    assert elf.is_elf(write(tmp_path / "a.so", SAMPLE))
    assert not elf.is_elf(write(tmp_path / "b.so", b"\x7fELF\x01\x01 32-bit"))
    assert not elf.is_elf(write(tmp_path / "empty.so", b""))
    assert not elf.is_elf(tmp_path / "absent.so")


def test_read_file_names_what_is_wrong(tmp_path: Path):
    with pytest.raises(elf.ElfError, match="shorter"):
        elf.read_file(write(tmp_path / "empty.so", b""))
    with pytest.raises(FileNotFoundError):
        elf.read_file(tmp_path / "absent.so")
    with pytest.raises(elf.ElfError, match="string table"):
        elf.text_at(b"abc", 9, "a name")


def test_agrees_with_the_system_about_its_own_libraries():
    maps = Path("/proc/self/maps")
    if not maps.exists():
        pytest.skip("no /proc here")
    paths = {line.split()[-1] for line in maps.read_text().splitlines() if ".so" in line}
    libraries = [path for path in sorted(paths) if path.startswith("/") and elf.is_elf(path)]
    assert libraries, sys.version
    for path in libraries:
        tables = elf.read_file(path)
        with elf.mapped(path) as data:
            found = symbols.read(data, tables)
        assert tables.sections
        assert found.defined or found.undefined or tables.dynamic


def test_readelf_says_the_same(tmp_path: Path):
    path = write(tmp_path / "sample.so", SAMPLE)
    try:
        printed = subprocess.run(["readelf", "-dWs", str(path)], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("readelf is not installed")
    assert "Shared library: [libc10.so]" in printed.stdout
    assert "[$ORIGIN/../lib:/usr/lib]" in printed.stdout
    assert "answer" in printed.stdout
