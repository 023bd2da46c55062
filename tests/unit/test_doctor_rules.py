"""The regular expressions: none can run away on a hostile line, and each is skipped where its plain word is absent."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest

from verify.doctor import clean, languages, quoted, trouble
from verify.doctor.anchors import anchors
from verify.doctor.catalogue import ENTRIES
from verify.doctor.entry import pattern

try:
    sre: Any = import_module("re._parser")
except ModuleNotFoundError:  # Python 3.10
    sre = import_module("sre_parse")

SIGNATURES = {e.id: (*e.text, *e.weak, *e.engine, *e.beside, *e.unless) for e in ENTRIES}
HELPERS = [
    v.pattern for m in (clean, quoted, trouble, languages) for v in vars(m).values() if isinstance(v, re.Pattern)
]
WIDE = 20  # a repetition that may take this many characters or more


def repeats(
    tree: Any, inside: tuple[tuple[int, Any], ...] = ()
) -> Iterator[tuple[int, Any, tuple[tuple[int, Any], ...]]]:
    """(least, most, the variable repetitions around) of every repetition in a parsed expression."""
    for op, value in tree:
        name = str(op)
        if name.endswith("REPEAT"):
            least, most, inner = value
            yield least, most, inside
            yield from repeats(inner, (*inside, (least, most)) if most != least and most > 1 else inside)
        elif name == "SUBPATTERN":
            yield from repeats(value[-1], inside)
        elif name == "BRANCH":
            for branch in value[1]:
                yield from repeats(branch, inside)
        elif name in ("ASSERT", "ASSERT_NOT"):
            yield from repeats(value[1], inside)


@pytest.mark.parametrize("ident", SIGNATURES)
def test_signatures_are_bounded(ident: str) -> None:
    for text in SIGNATURES[ident]:
        found = list(repeats(sre.parse(text)))
        # Optional spaces at an end, and one lookahead, are all that may be without a bound.
        unbounded = [r for r in found if r[1] == sre.MAXREPEAT]
        assert len(unbounded) <= 2, text
        assert not unbounded or re.search(r"\\s[*+]|\(\?!\.\*", text), text
        assert not [r for r in found if r[2] and r[0] != r[1] and r[1] > 1], f"a repetition within a repetition: {text}"
        assert sum(r[1] >= WIDE for r in found) <= 5, f"too many wide gaps: {text}"


@pytest.mark.parametrize("text", HELPERS)
def test_helper_nests_nothing_without_bound(text: str) -> None:
    for least, most, inside in repeats(sre.parse(text)):
        outer = max((m for _, m in inside), default=1)
        assert least == most or outer <= 8 or most <= 1, "a repetition within a repetition"


@pytest.mark.parametrize("ident", SIGNATURES)
def test_signatures_have_a_plain_word(ident: str) -> None:
    short = [text for text in SIGNATURES[ident] if min(map(len, anchors(text)), default=0) < 3]
    assert not short


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("abc def", ("abc def",)),
        (r"ab?cde\.f", ("cde.f",)),
        (r"x(?:one|three)y", ("one", "three")),
        (r"(?:a|longer)?rest", ("rest",)),
        (r"(?P<n>\d+) of (?:them)", ("them",)),
        (r"a{3}bcd[xyz]ef", ("bcd",)),
        ("a|b", ("a", "b")),
        (r"(?=look)go(?!not)", ("go",)),
        (r"\d+", ()),
        (r"(?:|x)", ()),
    ],
)
def test_plain_words(text: str, words: tuple[str, ...]) -> None:
    assert anchors(text) == words


HOSTILE = (
    "a" * 4096,
    " " * 4096,
    "(" * 4096,
    "/usr/lib/" * 450,
    "_ZN3c10" * 580,
    "Error: " * 580,
    "1.2.3.4 " * 512,
    "torch.cuda." * 370,
    "\x1b[" * 2000,
    "a.b.c." * 680,
    "'\"" * 2000,
    "[rank0]: " * 450,
)


def longest_match(text: str, whole: bool) -> int:
    """The length of the longest match in the hostile lines, each also with the signature's own word."""
    fits = pattern(text).match if whole else pattern(text).search
    lines = [f"{line} {word} {line}" for line in HOSTILE for word in ("", *anchors(text)[:1])]
    return max((m.end() - m.start() for line in lines if (m := fits(line))), default=0)


@pytest.mark.parametrize("ident", SIGNATURES)
def test_signatures_come_to_an_end_on_hostile_lines(ident: str) -> None:
    # Twice what a line may be; a match stays local, as every gap has a bound.
    assert max(longest_match(text, whole=False) for text in SIGNATURES[ident]) <= 4096


@pytest.mark.parametrize("text", HELPERS)
def test_helpers_come_to_an_end_on_hostile_lines(text: str) -> None:
    assert longest_match(text, whole=True) <= 2 * 4096 + 80


def test_joined_alternatives_each_count() -> None:
    entry = next(e for e in ENTRIES if e.id == "stub-libcuda")
    for signature, line in (
        (r"CUDA driver is a stub library", "Error 34: CUDA driver is a stub library"),
        (r"CUDA_ERROR_STUB_LIBRARY", "cuda_error_stub_library"),
    ):
        assert signature in entry.text
        assert pattern(signature).search(line)
