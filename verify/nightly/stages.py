"""The stages before anything is public: resolve, build, static, image tests, SBOM, provenance, push of a candidate."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from verify import history, report
from verify.core import UsageError
from verify.engine import describe, sdk
from verify.nightly import contents, promotions, provenance, registry, sbom, state
from verify.nightly.settings import CANDIDATE
from verify.nightly.state import Step
from verify.nightly.work import Refused, Unchanged, Work, call, done, last_line, shell, skipped, verify


def resolve(work: Work) -> Step:
    """See that the registry answers, what `latest` is, and which packages a build of today would take."""
    found = registry.manifest(work.place, "latest")
    present = found.digest if found else ""
    past = promotions.records(work.settings.promotions)
    held = promotions.stack(past)
    text = f"latest is {present or 'not there yet'}"
    if past and held[-1]["digest"] != present:
        text += f"; the last promotion was {held[-1]['digest']}: somebody else moved the tag"
    environment = dict[str, str]()
    if work.settings.resolve:
        answer = work.folder / "resolved"
        answer.unlink(missing_ok=True)
        shell(work, work.settings.resolve, {"OUT": str(answer)})
        for line in answer.read_text().splitlines() if answer.exists() else ():
            name, sign, value = line.partition("=")
            if sign and name.isidentifier():
                environment[name] = value
    if news := environment.pop("NEWS", ""):
        text += f"; {news}"
    return done(text, latest=present, environment=environment)


def identity(client: Any, image: str) -> str:
    """The image's id: its manifest's digest in a containerd store, its configuration's in the classic one."""
    docker = sdk()
    try:
        return str(client.images.get(image).id)
    except docker.errors.ImageNotFound as error:
        raise UsageError(f"The build left no image {image}: does --build make the image that --image names?") from error
    except (docker.errors.DockerException, OSError) as error:
        raise UsageError(f"The Docker engine does not answer ({describe(error).splitlines()[0]}).") from error


def build(work: Work) -> Step:
    """Build, and compare with `latest`: an equal image ends the night here."""
    before = work.night.data("resolve")
    shell(work, work.settings.build, before.get("environment") or {})
    made = identity(work.client(), work.settings.image)
    found = registry.manifest(work.place, "latest")
    promoted = {r["digest"] for r in promotions.records(work.settings.promotions)}
    if found and found.digest in promoted:
        config = found.document.get("config") or {}
        if made in (found.digest, config.get("digest")):
            raise Unchanged(f"The image is {found.digest}, which latest names already; nothing was pushed.")
    return done(f"{work.settings.image} is {made}", id=made)


def judge(work: Work, path: Path, code: int, what: str) -> None:
    """Refused when verify says no, UsageError when it gave no verdict."""
    if code == 1 and path.exists():
        raise Refused(f"{what}: {last_line(work.log)}")
    if code or not path.exists():
        raise UsageError(f"{what} gave no verdict (exit code {code}): {last_line(work.log)}")


def static(work: Work) -> Step:
    """The checks that need no GPU, in the built image."""
    path = work.folder / "static.json"
    path.unlink(missing_ok=True)
    limit = f"{work.settings.timeout:g}"
    code = verify(
        work, "image", "--image", work.settings.image, "--gpus", "none", "--timeout", limit, "--json", str(path)
    )
    judge(work, path, code, "verify in the built image")
    return done("the static tier passed", report=str(path))


def image_tests(work: Work) -> Step:
    """The tests of the image; a failing one is a verdict."""
    if not work.settings.test:
        return skipped("no image tests were asked for")
    try:
        shell(work, work.settings.test)
    except UsageError as error:
        raise Refused(f"The image tests failed: {error}") from error
    return done("the image tests passed")


def bill(work: Work) -> Step:
    """What is in the image, and CycloneDX for Debian and Python."""
    found = contents.read(work.client(), work.settings.image)
    made = str(work.night.data("build")["id"])
    report.write(str(work.folder / "contents.json"), contents.dump(found))
    for kind, render in (("debian", sbom.debian), ("python", sbom.python)):
        report.write(str(work.folder / f"sbom-{kind}.cdx.json"), render(found, work.settings.image, made))
    return done(f"{len(found.debian)} Debian and {len(found.python)} Python packages", base=found.base)


def origin(work: Work) -> Step:
    """The provenance, beside the image."""
    image = work.client().images.get(work.settings.image)
    text = provenance.statement(
        image=work.settings.repository,
        digest=str(work.night.data("build")["id"]),
        base=str(work.night.data("sbom").get("base") or ""),
        labels=image.labels,
        root=Path(__file__).parents[2],
        build=work.settings.build,
        started=work.night.started,
    )
    report.write(str(work.folder / "provenance.json"), text)
    return done("provenance.json names commit, base and locks")


def push(work: Work) -> Step:
    """Send the image as a candidate: a tag nobody pulls, and the digest that everything after it speaks of.

    A push that was cut goes on: layers that are in the registry are not sent again.
    """
    settings, client = work.settings, work.client()
    made = identity(client, settings.image)
    if made != work.night.data("build")["id"]:
        raise UsageError(f"{settings.image} is not the image that was built any more: begin a new night (--new).")
    docker, name = sdk(), f"{settings.repository}:{CANDIDATE}"
    try:
        client.images.get(settings.image).tag(settings.repository, CANDIDATE)
    except (docker.errors.DockerException, OSError) as error:
        raise UsageError(f"The Docker engine does not answer ({describe(error).splitlines()[0]}).") from error
    whole = "containerd.snapshotter" in str(client.info().get("DriverStatus"))
    if whole:  # the digest is known before a byte is sent, so no candidate is ever forgotten
        history.append(settings.candidates, {"kind": "pushed", "digest": made, "when": str(state.now())})
    for attempt in range(1, settings.attempts + 1):
        if call(work, ["docker", "push", "--quiet", name]) == 0:
            break
        if attempt == settings.attempts:
            raise UsageError(f"docker push failed {attempt} times: {last_line(work.log)}")
        time.sleep(settings.wait)
    found = registry.manifest(work.place, CANDIDATE)
    if found is None or (whole and found.digest != made):
        raise UsageError(f"The registry does not have what was pushed ({found.digest if found else 'nothing'}).")
    if not whole:
        history.append(settings.candidates, {"kind": "pushed", "digest": found.digest, "when": str(state.now())})
    return done(f"candidate {found.digest}", digest=found.digest)
