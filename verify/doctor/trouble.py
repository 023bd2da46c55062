"""Whether a text tells of a failure at all, and what its last error is: for what the catalogue does not know."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from verify.doctor.digest import Digest

# The last line of a traceback. OSError's and the like; warnings are no failure.
EXCEPTION = re.compile(
    r"^\s{0,8}(?:[A-Za-z_]\w{0,60}\.){0,8}(?P<kind>[A-Z]\w{0,60}(?:Error|Exception|Interrupt|Exit|Failure|Exceeded|NotFound|Timeout)"
    r"|StopIteration|AssertionError)(?::\s?(?P<said>.{0,400}))?$"
)
INLINE = re.compile(r"(?:^|[\s:>])(?:[A-Za-z_]\w{0,60}\.){0,8}(?P<kind>[A-Z]\w{0,60}(?:Error|Exception)): \S")
FRAME = re.compile(r'^\s*File "(?P<file>[^"]{1,300})", line (?P<line>\d{1,7})(?:, in (?P<function>.{1,80}))?')
CELL = re.compile(r"^\s*(?:File (?P<file>\S{1,300}):(?P<line>\d{1,7})|Cell In ?\[(?P<cell>\d{1,5})\])")
SIGNS = re.compile(
    r"^\s*Traceback \(most recent call last\)"
    r"|^\s*(?:npm ERR!|make(?:\[\d{1,3}\])?: \*\*\*|error\[\w{1,12}\]|E: |gyp ERR!|[Ee]rror response from daemon)"
    r"|^\s*(?:Error! |[A-Za-z]{2,12}: error: |FAILED(?: |$)|Exception in )"
    r"|(?:^|[\s\]:|])(?:fatal(?: error)?|error|ERROR|FATAL|CRITICAL|panic|[a-z-]{2,20}: error)\s?[:!](?!\s*[-+]?\d)"
    r"|^\s*(?:ERROR|FATAL|CRITICAL|panic)\b(?!\s*[:=]?\s*[-+]?\d)"
    r"|^\s*(?:[\w./-]{1,80}: )?(?:line \d{1,6}: )?(?:\d{1,8} )?"
    r"(?:Killed|Aborted|Segmentation fault|Bus error|Illegal instruction)\b"
    r"|\bcore dumped\b|(?:^|\s)(?:command|process|job|build|step)\b.{0,60}\bfailed\b(?! ?[:=] ?0)"
    r"|\bexit(?:ed with)? (?:code|status):? [1-9]"
    r"|returned non-zero|command not found"
    r"|: (?:No such file or directory|Permission denied|Operation not permitted|Read-only file system)\s*$"
    r"|错误[:：]|失败[:：]|^\s*(?:错误|失败|异常)"
)
OURS = re.compile(r"/(?:site|dist)-packages/|/lib/python3|<frozen|<string>|/opt/venv/|\\lib\\site-packages")


@dataclass(frozen=True)
class Trouble:
    """The last error of a text: what it says, its exception's name ("" when it is none) and where it was raised."""

    text: str
    kind: str
    where: str
    number: int


def last(log: Digest, ignored: Collection[int] = ()) -> Trouble | None:
    """The last error of the text, None when it tells of none; lines at `ignored` are known to be harmless."""
    for i in range(len(log.lines) - 1, -1, -1):
        if i in ignored or i in log.source:
            continue
        if found := EXCEPTION.match(log.lines[i]) or INLINE.search(log.lines[i]):
            if found["kind"].endswith("Warning"):
                continue
            return Trouble(log.lines[i].strip()[:300], found["kind"], place(log, i), log.numbers[i])
    for i, line in enumerate(log.lines):
        if i not in ignored and i not in log.source and SIGNS.search(line):
            return Trouble(line.strip()[:300], "", "", log.numbers[i])
    return None


def place(log: Digest, index: int) -> str:
    """The frame of the program (else the last one) above an exception, as "train.py line 12"."""
    nearest = ""
    for i in range(index - 1, max(-1, index - 200), -1):
        line = log.lines[i]
        if line.lstrip().startswith("Traceback (most recent"):
            break
        found = FRAME.match(line) or CELL.match(line)
        if not found:
            continue
        file, number = found["file"], found["line"]
        said = f"{file} line {number}" if file else f"cell {found['cell']}"
        nearest = nearest or said
        if file is None or not OURS.search(file):
            return said
    return nearest
