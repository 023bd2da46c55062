"""Whether an image in a registry is signed (cosign), and by whom: "not signed" is said, never left out."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verify.core import UsageError
from verify.engine import describe, sdk
from verify.reference import Reference, kind_of, reason

# cosign's documented exit codes of `verify`; its text may change between versions.
NO_SIGNATURE, NO_TAG, NO_MATCH = 10, 11, 12


@dataclass(frozen=True)
class Signature:
    """`state` is good, bad, none, or unchecked (there may be one, and nobody looked at it); `text` is one sentence."""

    state: str
    text: str


def check(client: Any, reference: Reference, digest: str, key: str | None) -> Signature:
    """With a public key: what cosign says. Without one: whether there is a signature. UsageError: it cannot be told."""
    return by_key(reference, digest, key) if key else by_tag(client, reference, digest)


def by_tag(client: Any, reference: Reference, digest: str) -> Signature:
    """Whether the registry has cosign's tag for the digest."""
    docker = sdk()
    tag = f"{digest.replace(':', '-')}.sig"
    try:
        client.images.get_registry_data(f"{reference.name}:{tag}")
    except (docker.errors.DockerException, OSError) as error:
        said = describe(error)
        if kind_of(said) == "missing":
            return Signature("none", "Signature: not signed.")
        return Signature("unchecked", f"Signature: not checked, the registry does not say ({reason(said)}).")
    return Signature("unchecked", "Signature: there is one, not checked; give its public key with --key.")


def by_key(reference: Reference, digest: str, key: str) -> Signature:
    """What `cosign verify --key` says of name@digest. The key is the trust: no transparency log is asked."""
    if "://" not in key and not Path(key).is_file():
        raise UsageError(
            f"The public key {key} does not exist, so no signature can be checked: give cosign's public key."
        )
    program = shutil.which("cosign")
    if not program:
        raise UsageError(
            "cosign is not installed, so no signature can be checked: install it (Debian 13: apt-get install cosign), "
            "or leave --key out to go without."
        )
    words = [program, "verify", "--key", key, "--insecure-ignore-tlog=true", "--output", "text", reference.at(digest)]
    try:
        done = subprocess.run(words, capture_output=True, text=True, errors="replace", timeout=180, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"cosign did not answer ({error}), so the signature is not checked: try again.") from error
    if done.returncode == 0:
        return Signature("good", f"Signature: good, by the key {key}.")
    if done.returncode == NO_SIGNATURE:
        return Signature("none", f"Signature: not signed, and {key} is asked for.")
    if done.returncode == NO_MATCH:
        return Signature("bad", f"Signature: bad, none of its signatures was made with the key {key}.")
    lines = [line for line in done.stderr.splitlines() if line.strip() and not line.startswith("WARNING")]
    said = lines[0].removeprefix("Error: ") if lines else f"exit code {done.returncode}"
    raise UsageError(f"cosign cannot check {reference.at(digest)} ({said}): the signature is not checked.")
