"""What is in an image, asked of a container of it: Debian and Python packages, environment, files no package owns."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from verify.core import UsageError
from verify.engine import describe, sdk

# Trees of their own layers are left out: their packages are listed already, and reading them would take minutes.
SCRIPT = r"""
export LC_ALL=C
dpkg-query -W -f 'deb\t${Package}\t${Version}\t${Architecture}\n' 2>/dev/null || true
for python in /opt/venv/bin/python /usr/bin/python3; do
  [ -x "$python" ] || continue
  "$python" -c '
import importlib.metadata as m
for d in m.distributions():
    lic = d.metadata.get("License-Expression") or ""
    print("py", d.metadata["Name"], d.version, lic.replace("\t", " ").splitlines()[0] if lic else "", sep="\t")
' && break
done
cat /var/lib/dpkg/info/*.list 2>/dev/null | sed -E 's#^/(bin|sbin|lib|lib64)/#/usr/\1/#' | sort -u >/tmp/.owned
find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /tmp -o -path /opt/venv \
  -o -path '/usr/local/cuda-*' -o -path /var/lib/dpkg \
  -o -path /workspace \
  -o -path /etc/hostname -o -path /etc/hosts -o -path /etc/resolv.conf \
  -o -name __pycache__ -o -path /.dockerenv \) -prune \
  -o -type f -print | sort | comm -23 - /tmp/.owned |
  tr '\n' '\0' | xargs -0 -r sha256sum 2>/dev/null | sed 's/^/file\t/'
echo end
"""


@dataclass(frozen=True)
class Contents:
    """Debian packages "name:architecture" → version, Python packages → version, variable → value, file → SHA-256."""

    debian: Mapping[str, str] = field(default_factory=dict)
    python: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    licenses: Mapping[str, str] = field(default_factory=dict)
    base: str = ""


def parse(text: str, environment: Mapping[str, str], base: str) -> Contents:
    """The script's output as Contents; UsageError when it was cut off."""
    debian, python, files, licenses = dict[str, str](), dict[str, str](), dict[str, str](), dict[str, str]()
    lines = text.splitlines()
    if not lines or lines[-1] != "end":
        raise UsageError("The list of what is in the image was cut off: is /bin/sh in it, and was there memory enough?")
    for line in lines[:-1]:
        kind, _, rest = line.partition("\t")
        parts = rest.split("\t")
        if kind == "deb" and len(parts) == 3:
            debian[f"{parts[0]}:{parts[2]}"] = parts[1]
        elif kind == "py" and len(parts) >= 2:
            python[parts[0]] = parts[1]
            if len(parts) > 2 and parts[2]:
                licenses[parts[0]] = parts[2]
        elif kind == "file":
            digest, _, path = rest.partition("  ")
            files[path] = digest
    return Contents(debian, python, dict(environment), files, licenses, base)


def read(client: Any, image: str) -> Contents:
    """The Contents of a local image, by one container without a network, which is removed."""
    docker = sdk()
    container = None
    try:
        config = client.images.get(image).attrs["Config"]
        container = client.containers.create(
            image, ["-c", SCRIPT], entrypoint=["/bin/sh"], user="0", network_mode="none",
            labels={"pytorch-workspace.launcher": "verify nightly"},
        )  # fmt: skip
        container.start()
        code = container.wait(timeout=900)["StatusCode"]
        text = container.logs(stdout=True, stderr=False).decode(errors="replace")
    except (docker.errors.DockerException, OSError) as error:
        raise UsageError(f"What is in {image} cannot be read ({describe(error).splitlines()[0]}).") from error
    finally:
        if container is not None:
            with suppress(docker.errors.DockerException, OSError):
                container.remove(force=True, v=True)
    if code:
        raise UsageError(f"What is in {image} cannot be read: its shell ended with {code}.")
    variables = dict(entry.partition("=")[::2] for entry in config.get("Env") or ())
    labels = config.get("Labels") or {}
    return parse(text, variables, str(labels.get("org.opencontainers.image.base.digest", "")))


def dump(found: Contents) -> str:
    """As JSON."""
    return json.dumps(found.__dict__, indent=1, sort_keys=True) + "\n"
