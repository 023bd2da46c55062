"""`python -m verify.doctor.score [FOLDER]`: how many recorded failures are named right, and what is alarmed falsely.

A case file holds texts, each under a line `@@@ EXPECTED`: the id of an entry (more, separated by commas, when the text
cannot tell them apart), `harmless:ID`, `fine` (nothing is wrong), `none` (wrong, but no failure of the stack) or
`program` (the person's own program is named). Every text is tried in several forms.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from verify.doctor import diagnosis, digest

CASES = Path(__file__).resolve().parents[2] / "tests" / "doctor" / "cases"
MARK = "@@@ "
RED, OFF = "\x1b[1;31m", "\x1b[0m"
FORMS: dict[str, Callable[[str], bytes]] = {
    "plain": lambda t: t.encode(),
    "torchrun": lambda t: each(t, "[rank3]: {}"),
    "compose": lambda t: each(t, "workspace-1  | {}"),
    "ci": lambda t: each(t, "2026-12-01T08:54:01.1234567Z {}"),
    "buildkit": lambda t: each(t, "#12 341.7 {}"),
    "colours": lambda t: each(t, f"{RED}{{}}{OFF}"),
    "windows": lambda t: t.replace("\n", "\r\n").encode("utf-16"),
    "in a log": lambda t: (("step 12\n" * 3100) + t + ("\n." * 5100)).encode(),
}


def each(text: str, form: str) -> bytes:
    """`text` with every line put into `form`."""
    return "\n".join(form.format(line) for line in text.split("\n")).encode()


@dataclass(frozen=True)
class Case:
    """A recorded text and what should be said of it."""

    file: str
    number: int
    expected: str
    text: str


def cases(folder: Path) -> Iterator[Case]:
    """All cases of a folder, in the order of the files."""
    for path in sorted(folder.glob("*.txt")):
        parts = ("\n" + path.read_text(encoding="utf-8")).split(f"\n{MARK}")
        for number, part in enumerate(parts[1:], 1):
            expected, _, text = part.partition("\n")
            yield Case(path.stem, number, expected.strip(), text.rstrip("\n"))


def judge(case: Case, form: str = "plain") -> tuple[str, str]:
    """("right" | "wrong" | "unknown" | "alarm", what was said instead)."""
    import io

    found = diagnosis.of_text(digest.read(io.BytesIO(FORMS[form](case.text))))
    first = found.findings[0] if found.findings else None
    said = first.id if first else found.unknown or "nothing wrong"
    if case.expected == "none":
        return ("right" if not first and found.unknown else "unknown" if not first else "alarm"), said
    if case.expected == "program":
        return ("right" if first and first.fault == "program" else "alarm" if first else "unknown"), said
    if case.expected == "fine" or case.expected.startswith("harmless:"):
        known = {f.id for f in found.harmless}
        named = case.expected == "fine" or case.expected.partition(":")[2] in known
        return ("right" if found.code == 0 and named else "alarm" if found.code else "unknown"), said
    if first is None:
        return "unknown", said
    return ("right" if first.id in {w.strip() for w in case.expected.split(",")} else "wrong"), said


def main(folder: Path = CASES) -> int:
    """Print the table; 0 when 95 % are right and nothing is alarmed falsely."""
    listed = list(cases(folder))
    if not listed:
        print(f"error: There is no case in {folder}.", file=sys.stderr)
        return 2
    kinds = ("right", "wrong", "unknown", "alarm")
    table: dict[str, dict[str, int]] = {}
    entries: dict[str, set[str]] = {}
    for form in FORMS:
        for case in listed:
            kind, said = judge(case, form)
            row = table.setdefault(case.file, dict.fromkeys(kinds, 0))
            row[kind] += 1
            entries.setdefault(case.expected.partition(",")[0].strip(), set()).add(kind)
            if kind != "right":
                print(f"{kind:8} {case.file} {case.number} ({form}): expected {case.expected}, said {said}")
    print(f"\n{'cases':14}{'texts':>7}" + "".join(f"{k:>9}" for k in kinds))
    for name, row in table.items():
        print(f"{name:14}{sum(row.values()):>7}" + "".join(f"{row[k]:>9}" for k in kinds))
    total = {k: sum(row[k] for row in table.values()) for k in kinds}
    whole = {n: k for n, k in entries.items() if n not in ("none", "fine", "program")}
    ill = {kind: sum(kind in kinds for kinds in whole.values()) for kind in ("wrong", "unknown")}
    right = sum(kinds == {"right"} for kinds in whole.values())
    print(
        f"\nentries: {right} of {len(whole)} named right in every text and form; {ill['wrong']} wrong and "
        f"{ill['unknown']} unknown at least once"
    )
    share = total["right"] / sum(total.values())
    print(f"{'all':14}{sum(total.values()):>7}" + "".join(f"{total[k]:>9}" for k in kinds))
    print(f"\n{share:.1%} right of {len(listed)} texts in {len(FORMS)} forms, {total['alarm']} false alarms")
    return 0 if share >= 0.95 and not total["alarm"] else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else CASES))
