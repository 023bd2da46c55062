"""JUnit XML, as CI systems read it: one suite per check file."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

from verify.core import Result, Run, Status
from verify.report.group import by_file

# What XML 1.0 cannot hold; library output has it (colour codes, NUL).
FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def clean(text: str) -> str:
    """`text` without the characters XML forbids."""
    return FORBIDDEN.sub("�", text)


def case(suite: ET.Element, result: Result) -> None:
    """Add one test case; what has no JUnit word (warn, unrated, inconclusive) goes to system-out."""
    file, _, name = result.id.partition(".")
    made = ET.SubElement(suite, "testcase", classname=f"verify.{file}", name=name, time=f"{result.seconds:.3f}")
    text = clean(f"{result.message}\n{result.hint}".strip())
    if result.status is Status.FAIL:
        ET.SubElement(made, "failure", message=clean(result.message), type="fail").text = text
    elif result.status is Status.ERROR:
        output = str(result.data.get("trace") or result.data.get("output") or "")
        ET.SubElement(made, "error", message=clean(result.message), type="error").text = clean(
            f"{text}\n{output}".strip()
        )
    elif result.status is Status.SKIP:
        ET.SubElement(made, "skipped", message=clean(result.message))
    else:
        ET.SubElement(made, "system-out").text = f"{result.status}: {text}"


def render(run: Run) -> str:
    """The run as a <testsuites> document. A run cut short gets one more test case, which is an error."""

    def count(results: tuple[Result, ...]) -> dict[str, str]:
        number = {s: sum(r.status is s for r in results) for s in (Status.FAIL, Status.ERROR, Status.SKIP)}
        return {
            "tests": str(len(results)),
            "failures": str(number[Status.FAIL]),
            "errors": str(number[Status.ERROR]),
            "skipped": str(number[Status.SKIP]),
            "time": f"{sum(r.seconds for r in results):.3f}",
        }

    root = ET.Element("testsuites", {"name": "verify", **count(run.results)})
    for file, results in by_file(run.results).items():
        suite = ET.SubElement(root, "testsuite", {"name": file, "timestamp": run.started, **count(results)})
        for result in results:
            case(suite, result)
    if not run.complete:
        tally = {"tests": "1", "failures": "0", "errors": "1", "skipped": "0", "time": "0"}
        suite = ET.SubElement(root, "testsuite", {"name": "run", **tally})
        made = ET.SubElement(suite, "testcase", classname="verify.run", name="complete")
        ET.SubElement(made, "error", message="The run was cut short.", type="incomplete")
        root.set("tests", str(int(root.get("tests", "0")) + 1))
        root.set("errors", str(int(root.get("errors", "0")) + 1))
    ET.indent(root, " ")
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"
