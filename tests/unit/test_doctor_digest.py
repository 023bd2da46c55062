"""Reading a log: bounded, in any encoding, with any prefix, and deaf to source code that a traceback quotes."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest

from verify.doctor import blocks, clean, digest
from verify.doctor.languages import english


def read(data: bytes) -> digest.Digest:
    return digest.read(io.BytesIO(data))


class Endless(io.RawIOBase):
    """A stream of `total` bytes that repeats `line` with a number, and never holds more than a block."""

    def __init__(self, line: bytes, total: int) -> None:
        self.line, self.left, self.made, self.largest = line, total, 0, 0

    def read(self, size: int = -1) -> bytes:
        assert size > 0, "the whole stream must never be asked for at once"
        wanted = min(size, self.left)
        parts: list[bytes] = []
        have = 0
        while have < wanted:
            self.made += 1
            parts.append(self.line % self.made)
            have += len(parts[-1])
        self.left -= wanted
        return b"".join(parts)[:wanted]


@pytest.mark.parametrize(
    "line", [b"INFO step %d loss 0.1\n", b"WARNING: error %d failed\n", b"error %d cannot ", b"\r%d%%"]
)
def test_big_log_gives_a_small_digest(line: bytes) -> None:
    made = digest.read(Endless(line, 12 << 20))  # type: ignore[arg-type]
    assert made.size >= 12 << 20
    assert len(made.lines) <= digest.HEAD + digest.TAIL + digest.FIRST + digest.LAST + digest.NEW + 200
    assert sum(map(len, made.lines)) <= 2 * digest.BUDGET + (1 << 20)


def test_failure_in_the_middle_of_a_big_log_is_kept() -> None:
    noise = b"".join(b"WARNING: something failed at step %d\n" % i for i in range(60000))
    made = read(noise + b"libcuda.so.1 is a thing never seen before\nCUDA driver is a stub library\n" + noise)
    assert "CUDA driver is a stub library" in made.lines
    assert made.numbers[made.lines.index("CUDA driver is a stub library")] == 60002
    assert made.total == 120002


def test_failure_in_the_middle_of_a_long_line_is_kept() -> None:
    made = read(b'{"a": "' + b"x" * 300000 + b" CUDA driver is a stub library " + b"y" * 300000 + b'"}')
    assert any("CUDA driver is a stub library" in line for line in made.lines)


def test_head_and_tail_are_kept_whole() -> None:
    made = read(b"first\n" + b"same\n" * 50000 + b"last\n")
    assert (made.lines[0], made.lines[-1], made.numbers[-1]) == ("first", "last", 50002)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "gb18030"])
def test_encodings(encoding: str) -> None:
    made = read("第一行\n错误：没有那个文件或目录\n".encode(encoding))
    assert made.lines[1] == "error: No such file or directory"


def test_bytes_that_are_no_text_are_read_too() -> None:
    made = read(bytes(range(256)) * 50)
    assert made.total > 1
    assert all("\x00" not in line for line in made.lines)


@pytest.mark.parametrize(
    ("raw", "plain"),
    [
        ("workspace-1  | Killed", "Killed"),
        ("[rank0]: Killed", "Killed"),
        ("[default3]:[rank3]: Killed", "Killed"),
        ("2026-12-01T08:54:01.123Z Killed", "Killed"),
        ("[2026-12-01 08:54:01,123] Killed", "Killed"),
        ("#12 341.7 Killed", "Killed"),
        ("\x1b[1;31mKilled\x1b[0m", "Killed"),
        ("[0;31mKilled[0m", "Killed"),
        ("(EngineCore_0 pid=31) ERROR 12-01 08:54:01 [core.py:39] Killed", "Killed"),
        ("Dec  1 08:54:01 box kernel: Killed", "Killed"),
        ("2026-12-01T08:54:01.1Z stderr F Killed", "Killed"),
        ('{"log":"Killed\\n","stream":"stderr","time":"2026-12-01T08:54:01Z"}', "Killed"),
        ("[rank1]:[E1201 08:54:01.123456 12 Proc.cpp:6] Killed", "Killed"),
        ("│ Killed                       │", "Killed"),
        ("    5 | #include <Python.h>", "    5 | #include <Python.h>"),
        ("    indented", "    indented"),
        ("3.5 is a number", "is a number"),
        ("nothing to take away", "nothing to take away"),
    ],
)
def test_prefixes_are_taken_away(raw: str, plain: str) -> None:
    assert clean.lines(raw.encode())[0] == plain


def test_quoted_error_is_unfolded() -> None:
    said = clean.lines(b'caused \\"could not select device driver \\\\"\\\\" x\\"\\nsecond line\\n')
    assert said[0] == 'caused "could not select device driver "" x"'
    assert said[1] == "second line"


def test_words_of_other_languages() -> None:
    assert english("OSError: [Errno 28] 设备上没有空间") == "OSError: [Errno 28] No space left on device"
    assert english("ld: 找不到 -lcuda：没有那个文件或目录") == "ld: cannot find -lcuda: No such file or directory"
    assert english("Auf dem Gerät ist kein Speicherplatz mehr verfügbar") == "No space left on device"
    assert english("损失值 0.5") == "损失值 0.5"


JUPYTER = """\
----> 1 torch.zeros(1, device="cuda")

File /opt/venv/lib/python3.13/site-packages/torch/cuda/__init__.py:412, in _lazy_init()
    403     raise AssertionError("Torch not compiled with CUDA enabled")
--> 412 torch._C._cuda_init()
    413 # more
RuntimeError: No CUDA GPUs are available
"""
PLAIN = """\
Traceback (most recent call last):
  File "a.py", line 1, in <module>
    raise RuntimeError("CUDA driver is a stub library")
    ^^^^^^^^^^^^^^^^^^
  File "b.py", line 2, in f
RuntimeError: another
"""


@pytest.mark.parametrize(("text", "word"), [(JUPYTER, "not compiled"), (PLAIN, "stub library")])
def test_quoted_source_is_not_searched(text: str, word: str) -> None:
    made = digest.of(text)
    assert any(word in line for line in made.lines)
    assert list(made.having(word)) == []
    last = text.strip().splitlines()[-1]
    assert [made.lines[i] for i in made.having(last.lower())] == [last]


def test_having_gives_first_and_last() -> None:
    made = digest.of("\n".join(["x error"] * 500 + ["y"]))
    found = sorted(set(made.having("error", most=10)))
    assert found[:10] == list(range(10))
    assert found[-10:] == list(range(490, 500))
    assert list(made.having("absent")) == []


def test_letters_that_grow_in_lower_case_keep_positions() -> None:
    made = digest.of("İİİİ one\ntwo stub\n")
    assert [made.lines[i] for i in made.having("stub")] == ["two stub"]


def test_block_without_line_ends_is_cut() -> None:
    class Stream(io.BytesIO):
        pass

    parts: Iterator[bytes] = blocks.blocks(Stream(b"x" * (5 << 20)))
    assert max(map(len, parts)) <= 2 * blocks.BLOCK + 1
