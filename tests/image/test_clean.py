"""What must not be in the image: leftovers of the build, of its network, and files that make a user root."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest


@pytest.fixture(scope="module")
def untouched(client: Any, image: Any) -> Iterator[Any]:
    """A container without the entrypoint, so that what is found was in the image."""
    made = client.containers.run(image.attrs["asked"], ["3600"], entrypoint=["sleep"], detach=True)

    def execute(script: str) -> str:
        code, (out, err) = made.exec_run(["sh", "-c", script], demux=True)
        assert code in (0, 1), (err or b"").decode()
        return (out or b"").decode(errors="replace")

    yield execute
    made.remove(force=True)


@pytest.mark.parametrize(
    "where",
    [
        "/var/lib/apt/lists /var/cache/apt -type f",
        "/root /home -mindepth 2 -not -name '.bash*' -not -name .profile",
        "/root -name '.cache' -o -name '__pycache__' -o -name '.python_history' -o -name '.bash_history'",
        "/tmp /var/tmp /run/secrets /docker /wheelhouse /layer /layers /proof /wheel -mindepth 1",
        "/workspace -mindepth 1",
        "/var/log -type f -size +0",
        "/ -xdev -name '*.whl' -not -path '/opt/venv/*' -not -path '/usr/share/python*'",
        "/ -xdev -name uv_cache.json -o -xdev -name '.netrc' -o -xdev -name '.git-credentials'",
        "/etc -name '*.dpkg-*' -o -path '/etc/ssh/ssh_host_*'",
        "/opt/venv -name '*.o' -o -name '.ninja_log'",
    ],
)
def test_no_leftovers(untouched: Any, where: str) -> None:
    assert untouched(f"find {where} 2>/dev/null").splitlines() == []


def test_verify_leaves_no_byte_code_of_the_build(untouched: Any) -> None:
    assert untouched("find /opt/verify /root /home -name '__pycache__'") == ""


def test_deleted_files_are_not_kept_in_lower_layers(image: Any, untouched: Any) -> None:
    """The layers together are hardly larger than what is visible: nothing big was deleted or written twice."""
    visible = int(untouched("du -sxB1 --exclude=/proc --exclude=/sys / | cut -f1"))
    layers = sum(entry["Size"] for entry in image.history())
    assert layers < visible * 1.05 + 50e6


def test_setuid_files_are_the_distributions(untouched: Any) -> None:
    files = untouched(r"find / -xdev -type f -perm /6000 -not -path '/proc/*'").split()
    assert files != []
    orphans = [f for f in files if not untouched(f"dpkg -S {f} {f.removeprefix('/usr')} 2>/dev/null")]
    assert orphans == []
    assert [f for f in files if not f.startswith(("/usr/bin/", "/bin/", "/usr/sbin/", "/sbin/", "/usr/lib/"))] == []


def test_nothing_is_writable_for_everybody(untouched: Any) -> None:
    found = untouched(
        r"find / -xdev \( -type f -o -type d \) -perm -2 -not -path '/proc/*' -not -path '/dev/*'"
    ).split()
    assert set(found) <= {"/tmp", "/var/tmp", "/run/lock", "/workspace"}


def test_no_account_has_a_password(untouched: Any) -> None:
    fields = [line.split(":")[1] for line in untouched("cat /etc/shadow").splitlines()]
    assert set(fields) <= {"*", "!", "!!", "!*"}


def test_history_tells_nothing_of_the_network(image: Any) -> None:
    lines = [str(entry.get("CreatedBy") or "") for entry in image.history()]
    assert lines != []
    assert [
        line for line in lines if re.search(r"https?://|proxy|index.url|BEGIN CERT|token|password", line, re.I)
    ] == []


def test_certificates_are_the_distributions(untouched: Any) -> None:
    """The bundle is what ca-certificates makes of its own files, so that a private CA of the build did not stay."""
    made = "mkdir -p /tmp/certs && update-ca-certificates --fresh --etccertsdir /tmp/certs >/dev/null 2>&1;"
    sums = untouched(f"{made} sha256sum </tmp/certs/ca-certificates.crt; sha256sum </etc/ssl/certs/ca-certificates.crt")
    first, second = (line.split()[0] for line in sums.splitlines())
    assert first == second
    assert untouched("ls -A /usr/local/share/ca-certificates; rm -r /tmp/certs") == ""
    assert untouched("find /etc/ssl/certs -type f -not -name ca-certificates.crt; find /etc/ssl/private -type f") == ""
    assert untouched("find /etc/ssl/certs -type l -lname '/usr/local/*'") == ""


def test_pythons_certificates_are_those_of_the_package(untouched: Any) -> None:
    script = """
import base64, hashlib, pathlib, importlib.metadata as m
f = next(f for f in m.files("certifi") if f.name == "cacert.pem")
data = hashlib.sha256(pathlib.Path(f.locate()).read_bytes()).digest()
print(base64.urlsafe_b64encode(data).decode().rstrip("=") == f.hash.value)
"""
    assert untouched(f"/opt/venv/bin/python - <<'E'\n{script}\nE").strip() == "True"


def test_package_sources_are_the_distributions(untouched: Any, facts: dict[str, Any]) -> None:
    """Every host of apt's sources is of the domain that the system itself names as its home, or of NVIDIA's base."""
    release = dict(
        line.split("=", 1) for line in untouched("cat /etc/os-release").replace('"', "").splitlines() if "=" in line
    )
    home = ".".join((urlsplit(release["HOME_URL"]).hostname or "").split(".")[-2:])
    allowed = {home, "nvidia.com"} if facts["base"]["name"].startswith("nvidia/") else {home}
    text = untouched("cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null | grep -v '^ *#'")
    hosts = {urlsplit(url).hostname or "" for url in re.findall(r"https?://[^\s\]]+", text)}
    assert hosts != set()
    assert [host for host in hosts if ".".join(host.split(".")[-2:]) not in allowed] == []


@pytest.mark.parametrize(
    "where",
    [
        "ls -d /etc/pip.conf /opt/venv/pip.conf /etc/uv /root/.pip /root/.config /home/*/.config 2>/dev/null || true",
        "grep -rIlisE '^[^#]*(https?|ftp|all)_proxy *=' /etc /root /home",
        "grep -rIlsE '^[^#/]*Acquire::[a-z:]*(Proxy|CAInfo|Verify-Peer)' /etc/apt",
        "grep -rIlsE 'BEGIN [A-Z ]*PRIVATE KEY' /etc /root /home /opt/verify",
        "find /opt/venv -name direct_url.json -path '*dist-info*'",
    ],
)
def test_no_trace_of_the_network(untouched: Any, where: str) -> None:
    assert untouched(where).splitlines() == []


def hosts_here() -> set[str]:
    """The hosts this machine reaches packages through: what a build on it must not have left behind."""
    texts = [value for name, value in os.environ.items() if re.search("mirror|index|proxy", name, re.I)]
    for path in (
        "/etc/pip.conf",
        "~/.config/pip/pip.conf",
        "~/.pip/pip.conf",
        "~/.config/uv/uv.toml",
        "/etc/uv/uv.toml",
    ):
        file = Path(path).expanduser()
        texts.append(file.read_text() if file.is_file() else "")
    if shutil.which("apt-get"):
        command = ["apt-get", "indextargets", "--format", "$(SITE)"]
        texts.append(subprocess.run(command, capture_output=True, text=True, check=False).stdout)
    found = {urlsplit(url).hostname or "" for url in re.findall(r"https?://[^\s\"']+", "\n".join(texts))}
    return {host for host in found if "." in host and not host.startswith("127.")}


def test_hosts_of_this_machines_mirrors_are_not_in_the_image(untouched: Any) -> None:
    """Where this machine uses public defaults they are in the distribution's own sources, and are left out here."""
    sources = untouched("cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null")
    hosts = sorted(host for host in hosts_here() if host not in sources)
    found = [
        h for h in hosts if untouched(f"grep -rIlsF -e '{h}' /etc /root /home /opt/verify /usr/local/bin /var/lib/dpkg")
    ]
    assert found == []
