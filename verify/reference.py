"""The name of an image in a registry, and one sentence for every way in which it cannot be had."""

from __future__ import annotations

import re
from dataclasses import dataclass

from verify.core import UsageError
from verify.engine import explain


@dataclass(frozen=True)
class Reference:
    """An image's name as a person writes it: `name` with the registry, tag ("" for none), digest ("" for none)."""

    name: str
    tag: str
    digest: str

    @property
    def registry(self) -> str:
        """The host that serves it, "" where the name has none, which is Docker Hub."""
        first, slash, _ = self.name.partition("/")
        return first if slash and (set(first) & {".", ":"} or first == "localhost") else ""

    @property
    def text(self) -> str:
        """The reference as it was given, with the tag that Docker adds."""
        return self.name + (f":{self.tag}" if self.tag else "") + (f"@{self.digest}" if self.digest else "")

    def at(self, digest: str) -> str:
        """name@digest."""
        return f"{self.name}@{digest}"


PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"  # one part of a repository's path, by the distribution specification


def parse(text: str) -> Reference:
    """A Reference; UsageError when it is none. A tag stays beside a digest: it is what the image is called here."""
    rest, _, digest = text.strip().partition("@")
    head, slash, last = rest.rpartition("/")
    last, colon, tag = last.partition(":")
    name = f"{head}{slash}{last}"
    whole = re.fullmatch(rf"([a-zA-Z0-9]+([.-][a-zA-Z0-9]+)*(:\d+)?/)?{PART}(/{PART})*", name)
    good = whole and (re.fullmatch(r"\w[\w.-]{0,127}", tag) if colon else True)
    if not good or (digest and not re.fullmatch(r"sha256:[0-9a-f]{64}", digest)) or ("@" in text and not digest):
        raise UsageError(
            f"{text!r} is no name of an image: write registry/name:tag or registry/name@sha256:…, 64 digits."
        )
    return Reference(name, tag or ("" if digest else "latest"), digest)


# Kind → what Docker, containerd and registries say. The first that fits counts; "away" is worth another attempt.
KINDS: tuple[tuple[str, str], ...] = (
    ("full", r"no space left on device|disk quota exceeded"),
    ("limit", r"toomanyrequests|too many requests|pull rate limit"),
    ("tls", r"x509|certificate|server gave HTTP response to HTTPS client"),
    ("denied", r"unauthorized|authentication required|no basic auth|access denied|denied:|forbidden|\b40[13]\b"),
    ("arch", r"no match(?:ing manifest)? for (?:platform|.*in the manifest list)|no match for platform"),
    ("missing", r"manifest unknown|name unknown|not found|manifest for .* unknown|no such manifest"),
    (
        "damaged",
        r"unexpected (?:digest|commit digest)|failed precondition|failed size validation|filesystem layer verif",
    ),
    (
        "away",
        r"connection (?:refused|reset|aborted)|no such host|server misbehaving|timeout|timed out|unexpected EOF|\bEOF\b"
        r"|unreachable|no route to host|broken pipe|network is|failed to read expected number|failed to do request"
        r"|status[^\n]{0,300}: 50[0-4]\b|bad gateway|service unavailable|request canceled|read: |IncompleteRead"
        r"|closed|proxyconnect",
    ),
)


def kind_of(text: str) -> str:
    """Which of KINDS a message is, "" for none."""
    return next((kind for kind, signature in KINDS if re.search(signature, text, re.IGNORECASE)), "")


def reason(text: str) -> str:
    """The engine's own reason, from the first line: what stands behind the last address it quotes."""
    line = next((part.strip() for part in text.splitlines() if part.strip()), "no reason given")
    line = re.sub(r"^\w+Error: ", "", line).rpartition('": ')[2]
    return line if len(line) <= 200 else f"…{line[-199:]}"


def sentence(text: str, reference: Reference, *, machine: str = "", room: str = "") -> str:
    """What failed, why and what to do, in one sentence, for the engine's words about a pull."""
    line, name, host = reason(text), reference.text, reference.registry or "Docker Hub"
    login = f"docker login {reference.registry}".strip()
    known = {
        "full": f"There is no room for {name} on the disk below Docker's folder{room}: make some (`docker system df` "
        "shows where it went), or move Docker's data-root to a larger disk.",
        "limit": f"The registry {host} gives no more images to this address for now: `{login}`, use a "
        "mirror (REF with the mirror's host), or wait.",
        "tls": f"The registry {host} does not show a certificate this engine trusts ({line}): put its CA into "
        f"/etc/docker/certs.d/{host}/ca.crt, or list it in insecure-registries if it speaks plain HTTP.",
        "denied": f"The registry {host} does not let this user read {name}: `{login}`, and check the "
        "spelling, because a private name and a wrong one get the same answer.",
        "arch": f"{name} is not made for this host ({machine or 'its architecture'}): take one that is, or "
        "a host that fits.",
        "missing": f"The registry {host} has no {name}: check the spelling and the tag.",
        "damaged": f"What the registry {host} sends for {name} is not what its digest promises ({line}): a proxy or a "
        "mirror on the way changes or cuts it; go round it.",
        "away": f"The registry {host} cannot be reached, or hangs up ({line}): check the network and the engine's "
        "proxy, or name a mirror as the registry of REF.",
    }
    return known.get(kind_of(text)) or explain(text, image=name)
