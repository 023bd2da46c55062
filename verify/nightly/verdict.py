"""The stages from the candidate to the tags: GPU verdict, history, signature, change report, promotion, retention."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime
from typing import Any

from verify import history, host, report
from verify.commands.history import load
from verify.core import Run, UsageError
from verify.engine import connect, sdk
from verify.nightly import changes, promotions, registry, state
from verify.nightly.changes import Image
from verify.nightly.contents import Contents
from verify.nightly.settings import CANDIDATE
from verify.nightly.stages import judge
from verify.nightly.state import Step
from verify.nightly.work import Halted, Refused, Work, call, done, last_line, skipped, verify
from verify.plain import decode
from verify.regression import Verdict


def endpoint(name: str) -> str:
    """The engine's address for --gpu-host: an address as it is, the name of a context by what Docker knows of it."""
    if not name or "://" in name:
        return name
    words = ["docker", "context", "inspect", name, "--format", "{{.Endpoints.docker.Host}}"]
    try:
        found = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"Docker does not say what the context {name} is ({error}).") from error
    if found.returncode:
        raise UsageError(f"There is no Docker context {name}: `docker context ls`, or give ssh://user@host.")
    return found.stdout.strip()


def gpu(work: Work) -> Step:
    """Pull the candidate by its digest on the GPU host, and verify it there."""
    settings, where = work.settings, endpoint(work.settings.gpu_host)
    client = connect(timeout=60, host=where)
    info = client.info()
    found = host.choose_gpus("auto", info, local=host.is_local(client, info), driver=host.has_driver())
    if not found.kind and not settings.without_gpu:
        raise Halted(
            f"{found.why} The candidate {work.digest} is not promoted without a GPU's verdict: name a host with "
            "--gpu-host (GPU_HOST=ssh://…), or say --without-gpu."
        )
    path = work.folder / "verify.json"
    path.unlink(missing_ok=True)
    mode = "required" if found.kind else "none"
    target, limit = f"{settings.repository}@{work.digest}", f"{settings.timeout:g}"
    code = verify(work, "pull", target, "--gpus", mode, "--timeout", limit, "--json", str(path), host=where)
    judge(work, path, code, "verify of the candidate")
    run = load(str(path))
    if not run.ok():
        raise UsageError("verify's report of the candidate is not complete, so there is no verdict.")
    text = ", ".join(f"{count} {status}" for status, count in run.counts().items())
    without = "" if found.kind else "; WITHOUT a GPU, as asked"
    return done(f"{text}{without}", report=str(path), gpu=bool(found.kind), verdict=text)


def speed(work: Work) -> Step:
    """The speed tier on the GPU host; without a GPU there is none to measure."""
    if not work.night.data("gpu")["gpu"]:
        return skipped("not measured: there was no GPU")
    path = work.folder / "speed.json"
    path.unlink(missing_ok=True)
    target, limit = f"{work.settings.repository}@{work.digest}", f"{work.settings.timeout:g}"
    words = ["image", "--image", target, "--gpus", "required", "--timeout", limit, "--json", str(path), "--", "bench"]
    judge(work, path, verify(work, *words, host=endpoint(work.settings.gpu_host)), "the speed of the candidate")
    return done("measured", report=str(path))


def compare(work: Work) -> Step:
    """Add the run to the measurements, once, and hold it against the baseline: an alarm ends the night."""
    path = work.night.data("speed").get("report")
    run: Run | None = load(str(path)) if path else None
    if run is None or not run.samples:
        return skipped("no speed was measured, so there is nothing to compare", speed="not measured")
    try:
        known = {entry.run.started for entry in history.read(work.settings.history).entries}
    except UsageError:
        known = set()
    if run.started not in known:
        history.append(work.settings.history, run)
    entry = history.judged(history.read(work.settings.history)).entries[-1]
    if entry.alarms:
        raise Refused(f"Slower than the baseline in two nights on end: {', '.join(entry.alarms)}.")
    if entry.comparisons is None:
        return done("no baseline is accepted yet", speed="no baseline is accepted yet")
    counts = {v: sum(c.verdict is v for c in entry.comparisons.values()) for v in Verdict}
    text = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
    return done(text, speed=text)


def sign(work: Work) -> Step:
    """cosign's signature where there is a key and cosign; "not signed" is said."""
    key = work.settings.key
    if not key:
        return skipped("not signed: no key was given (--sign-key)", signature="not signed: no key was given")
    if not shutil.which("cosign"):
        return skipped("not signed: cosign is not installed", signature="not signed: cosign is not installed")
    words = ["cosign", "sign", "--yes", "--key", key, "--tlog-upload=false"]
    if call(work, [*words, f"{work.settings.repository}@{work.digest}"]):
        raise UsageError(f"cosign could not sign {work.digest}: {last_line(work.log)}")
    return done(f"signed with {key}", signature=f"signed with {key}")


def described(work: Work, digest: str, contents: Contents | None) -> Image | None:
    """An image for the change report: its layers from the registry, its contents as given or as kept; None if gone."""
    found = registry.manifest(work.place, digest) if digest else None
    if found is None:
        return None
    kept = work.settings.state / "images" / f"{digest.removeprefix('sha256:')}.json"
    if contents is None:
        try:
            contents = decode(Contents, json.loads(kept.read_text()))
        except (OSError, ValueError, TypeError):
            contents = None
    else:
        kept.parent.mkdir(exist_ok=True)
        report.write(str(kept), json.dumps(asdict(contents), sort_keys=True))
    return Image(digest, tuple(registry.sizes(work.place, found)), contents or Contents())


def change_report(work: Work) -> Step:
    """report.md and report.html: what a host with the image before gets."""
    contents: Contents = decode(Contents, json.loads((work.folder / "contents.json").read_text()))
    after = described(work, work.digest, contents)
    before = described(work, str(work.night.data("resolve").get("latest") or ""), None)
    if after is None:
        raise UsageError(f"The candidate {work.digest} is not in the registry any more.")
    facts = {
        "verify": str(work.night.data("gpu").get("verdict"))
        + ("" if work.night.data("gpu")["gpu"] else ", WITHOUT a GPU"),
        "speed": str(work.night.data("compare").get("speed")),
        "signature": str(work.night.data("sign").get("signature")),
    }
    if before and before.contents == Contents():
        facts["packages before"] = "not recorded here, so all are listed as new"
    report.write(str(work.folder / "report.md"), changes.markdown(before, after, facts))
    report.write(str(work.folder / "report.html"), changes.page(before, after, facts))
    size = changes.pulled(before.layers, after.layers) if before else sum(s for _, s in after.layers)
    return done(f"{changes.megabytes(size)} to pull; {work.folder / 'report.md'}", pulled=size)


def promote(work: Work) -> Step:
    """Move the tags, `latest` last, inside the registry; then write down why."""
    settings, past = work.settings, promotions.records(work.settings.promotions)
    if (when := promotions.rejected(past).get(work.digest)) and not settings.again:
        raise Refused(f"{work.digest} was promoted before and taken back at {when}: --again promotes it all the same.")
    target = registry.manifest(work.place, work.digest)
    if target is None:
        raise UsageError(f"The candidate {work.digest} is not in the registry any more: begin a new night (--new).")
    latest = registry.manifest(work.place, "latest")
    present, expected = latest.digest if latest else "", str(work.night.data("resolve").get("latest") or "")
    if present not in (expected, work.digest):
        raise Refused(f"latest is {present} and was {expected or 'not there'} when this night began: another one ran.")
    time, dated = state.now(), work.night.started[:10]
    tags, remark = [dated, *settings.tags], ""
    if past and time < datetime.fromisoformat(str(past[-1]["when"])):
        remark = f"; the clock stands before the last promotion ({past[-1]['when']}), so there is no tag {dated}"
        tags = list(settings.tags)
    for tag in (*tags, "latest"):
        registry.point(work.place, tag, target)
    verdict = work.night.data("gpu")
    with open(verdict["report"], "rb") as stream:
        checksum = hashlib.sha256(stream.read()).hexdigest()
    record: dict[str, Any] = {
        "kind": "promote", "digest": work.digest, "when": time.isoformat(timespec="seconds"), "before": present,
        "why": f"verify: {verdict['verdict']}; speed: {work.night.data('compare').get('speed')}",
        "gpu": verdict["gpu"], "signature": work.night.data("sign").get("signature"), "tags": [*tags, "latest"],
        "verified_by": verdict["report"], "report_sha256": checksum,
    }  # fmt: skip
    held = promotions.stack(past)
    if not held or held[-1]["digest"] != work.digest:
        history.append(settings.promotions, record)
    return done(f"{', '.join((*tags, 'latest'))} → {work.digest}{remark}")


def prune(work: Work) -> Step:
    """Keep the newest verified nights; other candidates go, here and in the registry."""
    text = promotions.prune(work.settings, work.place, work.digest)
    where = endpoint(work.settings.gpu_host)
    for client in [work.client(), *([connect(host=where)] if where else [])]:
        sweep(work, client)
    return done(text)


def sweep(work: Work, client: Any) -> None:
    """Take the candidates' names from an engine; what no other name holds is freed."""
    docker, name = sdk(), work.settings.repository
    with suppress(docker.errors.DockerException, OSError):
        for image in client.images.list():
            tags, digests = (image.attrs.get(key) or () for key in ("RepoTags", "RepoDigests"))
            ours = [tag for tag in tags if tag.startswith(f"{name}:")]
            gone = [tag for tag in ours if tag == f"{name}:{CANDIDATE}"]
            if not ours:  # a name that a person gave is not touched
                gone = [d for d in digests if d.startswith(f"{name}@") and d != f"{name}@{work.digest}"]
            for one in gone:
                with suppress(docker.errors.DockerException):
                    client.images.remove(one)
