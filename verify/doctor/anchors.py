"""Plain words that every match of a regular expression contains: looking for them first makes most rules free.

The signatures of the catalogue use a small part of the language (groups, alternatives, classes, bounded repetition);
this reads that part and gives nothing for what it does not know.
"""

from __future__ import annotations

from functools import cache

Words = tuple[str, ...]


@cache
def anchors(text: str) -> Words:
    """Words in lower case of which each match of `text` contains at least one; () when there are none to be had."""
    found, _ = _alternatives(text, 0)
    return tuple(word.lower() for word in found)


def _better(one: Words, two: Words) -> Words:
    """The set whose shortest word is longer."""
    return max(one, two, key=lambda words: min(map(len, words), default=0))


def _alternatives(text: str, i: int) -> tuple[Words, int]:
    """The words of `a|b|c` from `i` to the closing bracket or the end: one set for all, () if one branch has none."""
    branches = []
    while True:
        words, i = _sequence(text, i)
        branches.append(words)
        if i >= len(text) or text[i] == ")":
            break
        i += 1  # "|"
    return (sum(branches, ()) if all(branches) else ()), i


def _sequence(text: str, i: int) -> tuple[Words, int]:
    """The best words of one branch from `i`."""
    best: Words = ()
    run = ""
    while i < len(text) and text[i] not in "|)":
        literal, words, i = _atom(text, i)
        optional, repeated, i = _quantifier(text, i)
        if literal and not optional:
            run += literal
            if not repeated:
                continue
        elif words and not optional:
            best = _better(best, words)
        best = _better(best, (run,) if run else ())
        run = ""
    return _better(best, (run,) if run else ()), i


def _atom(text: str, i: int) -> tuple[str, Words, int]:
    """(a plain character or "", the words of a group, where the next atom starts)."""
    char = text[i]
    if char == "\\":
        following = text[i + 1]
        return ("" if following.isalnum() else following), (), i + 2
    if char == "[":
        return "", (), text.index("]", i + 2) + 1
    if char == "(":
        return _group(text, i)
    return ("" if char in ".^$" else char), (), i + 1


def _group(text: str, i: int) -> tuple[str, Words, int]:
    """A group; what a lookaround asks for is not part of the match."""
    start, looks = i + 1, False
    if text.startswith("(?:", i):
        start = i + 3
    elif text.startswith("(?P<", i):
        start = text.index(">", i) + 1
    elif text.startswith("(?", i):
        looks = True
        start = i + 2
    words, end = _alternatives(text, start)
    return "", (() if looks else words), end + 1


def _quantifier(text: str, i: int) -> tuple[bool, bool, int]:
    """(whether the atom before may be absent, whether it may come twice, where the next atom starts)."""
    if i >= len(text) or text[i] not in "?*+{":
        return False, False, i
    if text[i] == "{":
        end = text.index("}", i)
        least = text[i + 1 : end].partition(",")[0]
        i, absent = end, least in ("", "0")
    else:
        absent = text[i] in "?*"
    i += 1
    if i < len(text) and text[i] == "?":  # lazy
        i += 1
    return absent, True, i
