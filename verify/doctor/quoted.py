"""Lines of a traceback that quote source code: they hold the texts of errors that were not raised."""

from __future__ import annotations

import re
from collections.abc import Iterator

FRAME = re.compile(r'\s*File "[^"]{1,500}", line \d{1,7}')
RAISED = re.compile(r"\s*(?:\w{1,60}\.){0,6}[A-Z]\w{1,60}(?:Error|Exception|Interrupt)\b(?!\()")
ARROW = re.compile(r"\s*[-❱]{1,6}>? ?\d{1,6}(?:\s|$)")
NUMBERED = re.compile(r"\s*\d{1,6}(?:\s|$)")
# pytest prints the whole function of a failed test: from its name to the output that was captured.
PYTEST = re.compile(r"_{3,40} [\w\[\]./:, <>='()|-]{1,300} _{3,80}\s*$")
PYTEST_END = re.compile(r"[-=]{4,60} ")
MARKS = re.compile(r"\s*[\^~]+\s*$")


def source_lines(found: list[str]) -> Iterator[int]:
    """The indices of the lines that are quoted source code.

    A traceback quotes the code around the failure, with the messages of errors that were not raised.
    """
    tested = False
    for i, line in enumerate(found):
        tested = bool(PYTEST.match(line)) or (tested and not PYTEST_END.match(line))
        if tested and line.startswith(("    ", ">   ")) and not RAISED.match(line):
            yield i
        elif FRAME.match(line):
            for j in (i + 1, i + 2):
                if (
                    j < len(found)
                    and found[j].startswith("    ")
                    and not (FRAME.match(found[j]) or RAISED.match(found[j]))
                ):
                    yield j
                else:
                    break
        elif ARROW.match(line) and re.search(r"--+> ?\d|❱ ?\d", line):
            yield i
            for step in (-1, 1):
                j = i + step
                while 0 <= j < len(found) and abs(j - i) < 12 and NUMBERED.match(found[j]):
                    yield j
                    j += step
        elif MARKS.match(line) and line.strip():
            yield i
