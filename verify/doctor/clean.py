"""One raw line of any log → plain text: no colours, no prefixes of launchers and loggers, English error words."""

from __future__ import annotations

import json
import re
from functools import lru_cache

from verify.doctor.languages import english

LONGEST = 4096  # characters of a line that are looked at
ESCAPE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)|\x1b[@-_]"
    r"|(?:\\u001b|\\x1b|\\033|\^\[)\[[\d;]{0,12}m"
    r"|\[\d{1,3}(?:;\d{1,3}){0,4}m",
    re.IGNORECASE,
)
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\u200b\ufeff]")
PREFIXES = re.compile(
    r"(?:"
    r"\[?\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d[.,\d]{0,12}(?:Z|[+-]\d\d:?\d\d)?\]?(?: UTC)?[ \t]{1,2}(?:- )?"
    r"|\[?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?\]?\s{1,2}"
    r"|[A-Z][a-z]{2} {1,2}\d{1,2} \d\d:\d\d:\d\d \S{1,64} [\w./@-]{1,64}(?:\[\d{1,8}\])?: "
    r"|\[ *\d{1,9}\.\d{3,9}\] "
    r"|<\d{1,3}>"
    r"|#\d{1,4} (?:\d{1,6}\.\d{1,4} ?)?"
    r"|\d{1,6}\.\d{1,3} (?=\S| {2,})"
    r"|[A-Za-z][\w.-]{0,63}\s{0,40} \| "
    r"|(?:stdout|stderr) [FP] "
    r"|\[(?:rank|default|local_rank|global_rank|gpu|node|worker|host)?[ -]?\d{1,5}\]:\s?"
    r"|\[(?:stderr|stdout|out|err)\]:?\s?"
    r"|\[\d{1,4},\d{1,4}\]<std(?:err|out)>:\s?"
    r"|\d{1,4}: (?=\S)"
    r"|\([A-Za-z][\w:.-]{0,60}(?:[ ,](?:pid|rank|ip|TP)\S{0,60}){1,3}\) ?"
    r"|\((?:pid|rank)[= ]\S{1,60}(?:, ip=\S{1,40})?\) ?"
    r"|\[?[EWIF]\d{4} \d\d:\d\d:\d\d\.\d{1,9}\s{1,8}\d{1,9}\s[^\s\]]{1,80}\]\s?(?:\[[^\]]{0,40}\] ?){0,3}"
    r"|(?:ERROR|WARNING|INFO|CRITICAL|DEBUG)\s{1,4}\d\d-\d\d \d\d:\d\d:\d\d \[\S{1,60}\]\s?"
    r"|##\[\w{1,12}\]"
    r"|[│┃] ?"
    r"|E {3}(?=\S)"
    r"|> (?=\S)"
    r")"
)
# A docker log driver's, a tool's or a SDK's JSON around the text.
CARRIERS = ("log", "message", "msg", "error", "errorDetail", "stderr", "textPayload", "MESSAGE")


def decode(raw: bytes) -> str:
    """UTF-8, else GB 18030 (Chinese systems), and never an error."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        pass
    try:
        return raw.decode("gb18030")
    except UnicodeDecodeError:
        return raw.decode(errors="replace")


def unwrap(text: str) -> str:
    """The text inside a JSON record of a log; `text` itself when it is none."""
    if not text.startswith("{") or not text.rstrip().endswith("}"):
        return text
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return text
    found = [str(record[k]) for k in CARRIERS if isinstance(record, dict) and record.get(k)]
    return "\n".join(found) or text


def plain(text: str) -> str:
    """One line without colours, control characters and prefixes; the indentation after them stays."""
    text = CONTROL.sub("", ESCAPE.sub("", text.expandtabs(4)))
    for _ in range(6):
        found = PREFIXES.match(text)
        if not found or not found.end():
            break
        text = text[found.end() :]
    text = text.rstrip().removesuffix("│").rstrip()
    return text if text.isascii() else english(text)


def overwritten(row: str) -> list[str]:
    """The texts a progress bar wrote over each other on one line: the first ones, and the last with what came after."""
    parts = row.split("\r")
    return parts if len(parts) <= 12 else [*parts[:4], *parts[-8:]]


@lru_cache(maxsize=2048)
def lines(raw: bytes) -> tuple[str, ...]:
    """The plain lines of one raw line: more than one when it carries escaped line ends, as quoted errors do."""
    text = decode(raw)
    text = unwrap(text) if text.startswith("{") else text
    if r"\n" in text and (text.count(r"\n") > 1 or r"\"" in text):
        text = re.sub(r"\\{1,8}n", "\n", text)
    text = re.sub(r"\\{1,8}(?=[\"'])", "", text) if "\\" in text else text
    return tuple(plain(part[:LONGEST]) for row in text.split("\n") for part in overwritten(row))
