"""`verify nightly`: the pipeline's command on the host."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

from verify.core import UsageError
from verify.nightly.settings import Settings, checked

DESCRIPTION = """\
run       build, prove and promote an image; goes on where the last run of today stood (--stage repeats one stage)
rollback  point latest and the version tags at the last verified digest before
status    what the night at hand has done, and what was promoted
diff      compare two OCI layouts (tar files): the first layer and the first files that differ
delta     bytes a host with image A pulls for image B; both are in the registry

Exit codes: 0 promoted, or nothing changed; 1 the image was refused; 2 no verdict, for the reason printed.
"""
# tests/image/test_nightly.py is about this pipeline, not about the image.
TEST = "python3 -m pytest tests/image --ignore=tests/image/test_nightly.py --image {image}"


def settings(options: argparse.Namespace) -> Settings:
    """The command line as Settings; UsageError when the repository is missing."""
    if not options.repository:
        raise UsageError("Which repository? Give --repository=registry/name (REPOSITORY=… with make).")
    return Settings(
        image=options.image,
        repository=options.repository,
        state=Path(options.state).absolute(),
        build=options.build,
        test=options.test,
        resolve=options.resolve,
        gpu_host=options.gpu_host,
        without_gpu=options.without_gpu,
        again=options.again,
        tags=tuple(options.tag or ("2.8.0-toolkit12.4",)),
        keep=options.keep,
        key=options.sign_key,
    )


def run(options: argparse.Namespace) -> int:
    """Do what the action names."""
    from verify.nightly import delta, differ, promotions, runner, state

    if options.action == "diff":
        return differ.main(options.names)
    if options.names and options.action != "delta":
        raise UsageError(
            f"{options.action} takes no {options.names[0]!r}; `verify nightly --help` lists what there is."
        )
    given = settings(options)
    if options.action == "run":
        if options.stage and options.stage not in runner.STAGES:
            raise UsageError(f"There is no stage {options.stage!r}; there are {', '.join(runner.STAGES)}.")
        return runner.run(given, only=options.stage, new=options.new)
    checked(given)
    if options.action == "delta":
        return delta.main(given, options.names)
    if options.action == "rollback":
        with state.locked(given.state):
            print(promotions.rollback(given, options.why))
        return 0
    night = state.load(given.state)
    for stage, step in (night.steps if night else {}).items():
        print(f"{stage:<12}{step.status:<9}{step.seconds:>8.1f} s  {step.text}")
    print(f"night: {(night.ended or 'not ended') if night else 'none yet'}")
    for record in promotions.records(given.promotions):
        print(json.dumps(record))
    return 0


def add_parser(commands: Any) -> None:
    """Add `nightly`."""
    made = commands.add_parser(
        "nightly",
        help="on the host: build, prove and promote an image every night, or take a promotion back",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    env = os.environ.get
    made.add_argument("action", choices=("run", "rollback", "status", "diff", "delta"))
    made.add_argument("names", nargs="*", metavar="NAME", help="diff: two tar files; delta: two tags or digests")
    made.add_argument("--repository", default=env("REPOSITORY", ""), help="registry/name; default $REPOSITORY")
    made.add_argument("--image", default="pytorch-workspace:nightly", help="the local name; default %(default)s")
    made.add_argument("--state", default=env("NIGHTLY_STATE") or "results/nightly", help="default %(default)s")
    made.add_argument(
        "--build", default="bash docker/image.sh", metavar="CMD", help="makes $IMAGE; default %(default)s"
    )
    made.add_argument("--test", default=TEST, metavar="CMD", help="default %(default)s")
    made.add_argument("--resolve", default="bash docker/resolve.sh", metavar="CMD", help="default %(default)s")
    made.add_argument("--gpu-host", default=env("GPU_HOST", ""), metavar="H", help="ssh://… or a Docker context")
    made.add_argument("--without-gpu", action="store_true", help="promote without a GPU's verdict, and say so")
    made.add_argument("--again", action="store_true", help="promote a digest that was taken back")
    made.add_argument("--tag", action="append", metavar="T", help="besides the date and latest")
    made.add_argument("--keep", type=int, default=7, metavar="N", help="verified nights; default %(default)s")
    made.add_argument("--sign-key", default=env("SIGN_KEY", ""), metavar="F", help="cosign's private key")
    made.add_argument("--stage", default="", metavar="S", help="this stage alone, of the night at hand")
    made.add_argument("--new", action="store_true", help="begin a new night whatever the last one left")
    made.add_argument("--why", default="", help="rollback: the reason, for the promotions file")
    made.set_defaults(run=run)
