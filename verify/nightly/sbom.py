"""CycloneDX 1.5 in JSON for the Debian packages and the Python environment, from what a container of the image said.

The same image gives the same bytes: the serial number follows from the digest and the time is left out.
"""

from __future__ import annotations

import json
import urllib.parse
import uuid
from collections.abc import Iterable
from typing import Any

from verify.manifest import normalise
from verify.nightly.contents import Contents


def component(name: str, version: str, purl: str, license_id: str = "") -> dict[str, Any]:
    """One library; `license_id` is an SPDX expression, "" when the package does not give one."""
    made: dict[str, Any] = {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}
    return made | ({"licenses": [{"expression": license_id}]} if license_id else {})


def document(kind: str, image: str, digest: str, components: Iterable[dict[str, Any]]) -> str:
    """The bill of materials as text. `digest` is the image's."""
    subject = {"type": "container", "bom-ref": f"image@{digest}", "name": image, "version": digest}
    made = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, f'{digest}/{kind}')}",
        "version": 1,
        "metadata": {
            "component": subject,
            "tools": {"components": [{"type": "application", "name": "verify nightly"}]},
        },
        "components": sorted(components, key=lambda item: str(item["bom-ref"])),
    }
    return json.dumps(made, indent=1, ensure_ascii=False) + "\n"


def debian(found: Contents, image: str, digest: str) -> str:
    """The Debian packages."""
    rows = []
    for name, version in found.debian.items():
        package, _, architecture = name.partition(":")
        quoted = urllib.parse.quote(version, safe=".~-")
        rows.append(component(package, version, f"pkg:deb/debian/{package}@{quoted}?arch={architecture}"))
    return document("debian", image, digest, rows)


def python(found: Contents, image: str, digest: str) -> str:
    """The Python packages."""
    rows = []
    for name, version in found.python.items():
        purl = f"pkg:pypi/{normalise(name)}@{urllib.parse.quote(version, safe='.')}"
        rows.append(component(name, version, purl, found.licenses.get(name, "")))
    return document("python", image, digest, rows)
