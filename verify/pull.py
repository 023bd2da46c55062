"""`verify pull`: bring an image to this host by its digest, check its signature, run it, and say whether it is good."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import suppress
from typing import Any

from verify import fetch, host, signature
from verify.core import UsageError
from verify.engine import connect, sdk
from verify.probe import IMAGE
from verify.reference import Reference, parse, sentence

DESCRIPTION = """\
Resolve REF to a digest, check cosign's signature (with --key it is required), pull by that digest, run verify in the
image with the GPUs of this host, and give its verdict. A pull that was cut goes on where it stood. On an instance that
is itself a container of the image there is nothing to pull: the checks run in place.

Exit codes: verify's own; 1 also when the signature is not good, 2 when there is no verdict, for the reason printed.
"""


def say(text: str) -> None:
    """One line for the person, beside the report on stdout."""
    print(text, file=sys.stderr, flush=True)


def local(client: Any, reference: Reference, digest: str) -> Any:
    """The image as this engine has it, None when it has not."""
    docker = sdk()
    try:
        return client.images.get(reference.at(digest))
    except (docker.errors.ImageNotFound, docker.errors.NotFound):
        return None


def bring(client: Any, reference: Reference, digest: str, attempts: int) -> None:
    """Make name@digest an image of this host; UsageError in one sentence."""
    if local(client, reference, digest) is None:
        fetch.fetch(client, reference, digest, attempts=attempts)
    else:
        say("It is on this host already.")
    image, here = local(client, reference, digest), fetch.host_of(client.info())
    made_for = str(image.attrs.get("Architecture") or here) if image is not None else "another machine"
    if made_for != here:  # an image without a list of platforms is pulled whatever it is made for
        raise UsageError(sentence("no match for platform", reference, machine=f"{here}; it is for {made_for}"))


def in_place(options: argparse.Namespace) -> int:
    """Inside the image: the checks, here."""
    from verify.cli import main

    if options.key:
        raise UsageError(
            "A container cannot see its own digest, so no signature can be checked in here: check it on a "
            "host with Docker, or with cosign before the instance is rented."
        )
    try:
        said = json.loads(IMAGE.read_text())
        name = f"{said.get('name', 'image')} {said.get('version', '')} of revision {str(said.get('revision'))[:12]}"
    except (OSError, ValueError, AttributeError) as error:
        raise UsageError(f"{IMAGE} is there and cannot be read ({error}): is this image whole?") from error
    say(f"This instance is a container of {name}: nothing is pulled, the checks run here.")
    if options.reference:
        say(f"Whether it is {options.reference} cannot be seen from inside: a container does not know its digest.")
    return main(["run", *(["--json", options.json] if options.json else [])])


def run(options: argparse.Namespace) -> int:
    """The exit code of verify; 1 when the signature is not good. UsageError: no verdict."""
    if IMAGE.exists():
        return in_place(options)
    if not options.reference:
        raise UsageError("Which image? Give its name: verify pull registry/name:tag.")
    reference = parse(options.reference)
    host.reportable(options.json)
    client = connect(timeout=600)
    digest = fetch.resolve(client, reference)
    say(f"{reference.text} is {digest}")
    signed = signature.check(client, reference, digest, options.key)
    say(signed.text)
    if options.key and signed.state != "good":
        say("error: It is not pulled, because a good signature is required with --key.")
        return 1
    bring(client, reference, digest, options.attempts)
    code = host.run(argparse.Namespace(**{**vars(options), "image": reference.at(digest), "arguments": []}))
    if code == 0 and reference.tag:
        # The name moves to what has been seen to work, not to what was merely downloaded.
        with suppress(sdk().errors.DockerException):
            client.images.get(reference.at(digest)).tag(reference.name, reference.tag)
    word = "good" if code == 0 else "not good" if code == 1 else "not judged"
    say(f"{reference.at(digest)} is {word} on this host.")
    return code


def count(text: str) -> int:
    """An argparse type: a whole number from 1 on."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a number of attempts above 0")
    return value


def add_parser(commands: Any) -> None:
    """Add `pull`."""
    made = commands.add_parser(
        "pull",
        help="on the host: pull an image by digest, check its signature and verify it; in the image: verify in place",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("reference", nargs="?", metavar="REF", help="registry/name:tag or registry/name@sha256:…")
    made.add_argument("--key", metavar="F", help="cosign's public key: without a good signature by it nothing is run")
    made.add_argument(
        "--attempts", type=count, default=fetch.ATTEMPTS, metavar="N", help="failures in a row; default: %(default)s"
    )
    host.add_options(made)
    made.set_defaults(run=run)
