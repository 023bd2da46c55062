"""A log of any size → a bounded list of plain lines: its head, its tail, new kinds of lines and error words in between.

50 MB take a second or two and a few MB of memory. Lines that differ in their numbers only are kept once.
"""

from __future__ import annotations

import io
from bisect import bisect_right
from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, BinaryIO

from verify.doctor import clean
from verify.doctor.blocks import PIECE, blocks, pieces
from verify.doctor.quoted import source_lines

HEAD, TAIL = 3000, 5000  # lines kept whatever they say
FIRST, LAST = 2500, 2500  # lines with error words kept of what lies between
NEW = 4000  # lines of a form not seen before kept of what lies between
PER_WORD = 300  # such lines looked at per word and block
TEMPLATES = 20000  # forms of lines remembered to tell what was seen before
BUDGET = 3 << 19  # bytes looked at in all
DIGITS = b"0123456789"
# Rows, so that the formatter keeps several words on a line.
ERROR_WORDS = tuple(
    word.encode()
    for row in (
        ("error", "exception", "traceback", "fail", "cannot", "could not", "couldn't", "can't", "unable"),
        ("not found", "no such", "denied", "undefined symbol", "kill", "fatal", "mismatch", "unsupported"),
        ("not support", "invalid", "unknown", "incompatib", "no space", "out of memory", "abort"),
        ("core dumped", "xid", "nccl warn", "timed out", "refused", "not available", "no cuda", "no nvidia"),
        ("unresolvable", "oom", "no_pubkey", "nvrm", "missing", "requires", "recompile_limit"),
        ("graph break", "throttl", "错误", "失败", "无法", "没有", "不足", "找不到", "权限"),
    )
    for word in row
)


@dataclass(frozen=True)
class Digest:
    """`lines` and the number of each in the text (from 1); `total` lines and `size` bytes were read in all.

    `source` are the indices of lines that quote source code; `memo` keeps what was looked for already.
    """

    lines: tuple[str, ...]
    numbers: tuple[int, ...]
    total: int
    size: int
    source: frozenset[int] = field(default_factory=frozenset)
    memo: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def lower(self) -> str:
        """All lines in one lower-case string, for looking up words; lines of source code are empty in it."""
        return "\n".join("" if i in self.source else _lower(line) for i, line in enumerate(self.lines))

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """Where each line starts in `lower`."""
        found, at = [], 0
        for i, line in enumerate(self.lines):
            found.append(at)
            at += 1 + (0 if i in self.source else len(line))
        return tuple(found)

    def having(self, word: str, most: int = 60) -> Iterator[int]:
        """The indices of the lines that contain `word` (lower case): the first and the last `most`."""
        at, count = self.lower.find(word), 0
        while at >= 0 and count < most:
            index = bisect_right(self.starts, at) - 1
            yield index
            count += 1
            end = self.starts[index + 1] if index + 1 < len(self.starts) else len(self.lower)
            at = self.lower.find(word, end)
        last, back = len(self.lower), 0
        while at >= 0 and back < most:
            last = self.lower.rfind(word, at, last)
            if last < 0:
                return
            index = bisect_right(self.starts, last) - 1
            yield index
            back += 1
            last = self.starts[index]


def _lower(line: str) -> str:
    lowered = line.lower()
    # Some letters (İ) get longer in lower case, and positions must stay true.
    return lowered if len(lowered) == len(line) else line.encode("ascii", "replace").decode().lower()


def telling(block: bytes) -> list[int]:
    """Where the lines of a block that contain an error word start, in order."""
    lowered, starts = block.lower(), set()
    for word in ERROR_WORDS:
        at, count = lowered.find(word), 0
        while at >= 0 and count < PER_WORD:
            starts.add(lowered.rfind(b"\n", 0, at) + 1)
            end = lowered.find(b"\n", at)
            if end < 0:
                break
            at = lowered.find(word, end)
            count += 1
    return sorted(starts)


class Selection:
    """The raw lines kept so far, each with its number."""

    def __init__(self) -> None:
        self.head: list[tuple[int, bytes]] = []
        self.first: list[tuple[int, bytes]] = []
        self.last: deque[tuple[int, bytes]] = deque(maxlen=LAST)
        self.tail: deque[tuple[int, bytes]] = deque(maxlen=TAIL)
        self.new: list[tuple[int, bytes]] = []
        self.seen: set[int] = set()
        self.forms: set[int] = set()
        self.total = self.size = 0

    def add(self, block: bytes) -> None:
        """Take what matters of the next block."""
        rows = block.split(b"\n")
        if not rows[-1]:
            rows.pop()
        before = self.total
        self.total += len(rows)
        self.size += len(block)
        room = HEAD - len(self.head)
        if room > 0:
            self.head += [(before + i + 1, row) for i, row in enumerate(rows[:room])]
        skip = max(0, len(rows) - TAIL)
        self.tail.extend((before + i + 1, row) for i, row in enumerate(rows[skip:], skip))
        if room < len(rows) and not self.unheard(block, rows, before):
            self.troubled(block, rows, before)

    def unheard(self, block: bytes, rows: list[bytes], before: int) -> bool:
        """Keep lines of a new form and those beside them: a failure seldom looks like the rest of a log.

        False when there are too many of them to keep, so that words have to decide.
        """
        if len(self.new) >= NEW or len(self.forms) >= TEMPLATES:
            return False
        forms = block.translate(None, DIGITS).split(b"\n")
        fresh = {form for form in set(forms) if hash(form) not in self.forms}
        for i, form in enumerate(forms[: len(rows)] if fresh else ()):
            if form not in fresh:
                continue
            fresh.discard(form)
            self.forms.add(hash(form))
            beside = range(max(0, i - 1), min(len(rows), i + 2))
            self.new += ((before + j + 1, rows[j][: 16 * PIECE]) for j in beside)
            if len(self.new) >= NEW or len(self.forms) >= TEMPLATES:
                return False
        return True

    def troubled(self, block: bytes, rows: list[bytes], before: int) -> None:
        """Keep lines with an error word, of each form one, and the lines around."""
        starts = telling(block)
        if not starts:
            return
        offsets, at = [], 0
        for row in rows:
            offsets.append(at)
            at += len(row) + 1
        for start in starts:
            index = bisect_right(offsets, start) - 1
            template = hash(rows[index][:400].translate(None, DIGITS))
            if template in self.seen:
                continue
            if len(self.seen) < TEMPLATES:
                self.seen.add(template)
            # The lines around it tell look-alikes apart.
            for i in range(max(0, index - 1), min(len(rows), index + 3)):
                kept = (before + i + 1, rows[i][: 16 * PIECE])
                if len(self.first) < FIRST:
                    self.first.append(kept)
                else:
                    self.last.append(kept)


def read(stream: BinaryIO) -> Digest:
    """The digest of a stream of bytes, read to its end."""
    kept = Selection()
    for block in blocks(stream):
        kept.add(block)
    rows = dict([*kept.head, *kept.new, *kept.first, *kept.last, *kept.tail])
    found, numbers = [], []
    room = most(rows.values())
    for number in sorted(rows):
        row = rows[number]
        for piece in pieces(row if len(row) <= room else row[: room * 3 // 4] + b" " + row[-room // 4 :]):
            for line in clean.lines(piece):
                found.append(line)
                numbers.append(number)
    return Digest(tuple(found), tuple(numbers), kept.total, kept.size, frozenset(source_lines(found)))


def most(rows: Collection[bytes]) -> int:
    """How many bytes of each row can be kept within BUDGET: all of it unless many rows are very long."""
    if sum(map(len, rows)) <= BUDGET:
        return BUDGET
    small = [len(row) for row in rows if len(row) <= PIECE // 8]
    return max(PIECE // 8, (BUDGET - sum(small)) // max(1, len(rows) - len(small)))


def of(text: str) -> Digest:
    """The digest of a text that is already in memory."""
    return read(io.BytesIO(text.encode(errors="replace")))
