"""pip, apt and the image build: hashes, keys, wheels for another system, small tools that are missing."""

from __future__ import annotations

from verify.doctor.entry import Entry

ENTRIES = (
    Entry(
        id="pip-hash-mismatch",
        title="A downloaded package is not what the lock expects",
        layer="build",
        rank=11,
        cause="The file that pip received has another hash than the lock: the download was cut short or altered by "
        "a proxy or mirror, seldom the index changed.",
        fix="Try again without the cache and by another mirror, and check the room on the disk; the same `Got` "
        "twice means that the lock or the index is wrong, a different one the transport.",
        command="pip install --no-cache-dir --require-hashes -r requirements.txt",
        text=(
            r"DO NOT MATCH THE HASHES",
            r"expected sha\d{3} [0-9a-f]{8,64}",
            r"hash mismatch for `?\S{1,100}",
            r"hash of the file does not match",
            r"failed to verify the checksum",
            r"received unexpected digest",
            r"in --require-hashes mode, all requirements must",
        ),
        source=("pytorch/pytorch#104598", "pytorch/pytorch#110847"),
    ),
    Entry(
        id="cuda-apt-key",
        title="The signing key of NVIDIA's package repository is not known",
        layer="build",
        rank=12,
        cause="NVIDIA changed the key of its CUDA repository (April 2022), and this old base knows only the one "
        "before.",
        fix="Install the package cuda-keyring, take a newer base, or remove the CUDA list when nothing is installed "
        "from it.",
        command="rm -f /etc/apt/sources.list.d/cuda*.list /etc/apt/sources.list.d/nvidia-ml*.list && apt-get update",
        text=(
            r"NO_PUBKEY (?:A4B469963BF863CC|F60F4B3D7FA2AF80)",
            r"developer\.download\.nvidia\.\S{1,80}.{0,200}(?:not signed|NO_PUBKEY|couldn't be verified)",
        ),
        weak=(r"NO_PUBKEY [0-9A-F]{8,40}", r"public key is not available"),
        beside=(r"developer\.download\.nvidia", r"nvidia\.com/compute/cuda/repos"),
        source=("NVIDIA/nvidia-docker#1631",),
        hides=("apt-failed",),
    ),
    Entry(
        id="apt-failed",
        title="apt cannot read a package source",
        layer="build",
        rank=14,
        cause="A package source of apt does not answer, is not signed by a known key, or changed while it was read.",
        fix="Run `apt-get update` again in the same build step as the install; name a mirror with APT_MIRROR; for "
        "an old release use its archive.",
        command="apt-get clean && apt-get update",
        text=(
            r"NO_PUBKEY [0-9A-F]{8,40}",
            r"release file for \S{1,200} is (?:not valid yet|expired)",
            r"repository '[^']{1,200}' (?:is not signed|does not have a release file|no longer has a release file)",
            r"hash sum mismatch",
            r"unable to locate package",
            r"has no installation candidate",
            r"E: Failed to fetch",
            r"unable to fetch some archives",
            r"could not get lock /var/lib/(?:dpkg|apt)",
            r"could not open lock file /var/lib/(?:dpkg|apt)",
            r"dpkg was interrupted, you must manually run",
            r"you have held broken packages",
        ),
    ),
    Entry(
        id="no-matching-wheel",
        title="There is no such package for this Python or system",
        layer="build",
        rank=15,
        cause="No release of {name|the package} fits this Python, system or index: the version does not exist "
        "there, or has no wheel for this Python.",
        fix="Check the version and the index (PyTorch's cu12x builds are on its own index), and use a Python it has "
        "wheels for (torch 2.8: 3.9 to 3.13).",
        command="python --version; pip index versions {name|PACKAGE}",
        text=(
            r"no matching distribution found for (?P<name>[\w.-]{1,60})",
            r"could not find a version that satisfies the requirement (?P<name>[\w.-]{1,60})",
            r"(?P<name>[\w.+-]{1,120}\.whl) is not a supported wheel on this platform",
            r"no solution found when resolving",
            r"requires a different python:",
            r"ResolutionImpossible",
            r"package requires a different python",
            r"has no wheels with a matching (?:python|platform|abi)",
        ),
        unless=(
            r"NewConnectionError",
            r"ConnectTimeoutError",
            r"Max retries exceeded",
            r"Temporary failure in name resolution",
            r"name or service not known",
        ),
    ),
    Entry(
        id="pip-outside-venv",
        title="pip refuses to touch the system's Python",
        layer="build",
        rank=16,
        cause="The system's Python belongs to the distribution, and pip may not install into it.",
        fix="Use the image's environment (/opt/venv/bin/pip) or a virtual environment of your own.",
        command="/opt/venv/bin/pip install PACKAGE",
        text=(r"externally-managed-environment", r"this environment is externally managed"),
    ),
    Entry(
        id="ninja-missing",
        title="ninja is not installed",
        layer="build",
        rank=17,
        cause="PyTorch builds extensions with ninja, which is not found.",
        fix="Install it into the environment that builds (`pip install ninja`) and have its folder on PATH.",
        command="pip install ninja",
        text=(
            r"ninja is required to load C\+\+ extensions",
            r"no such file or directory: 'ninja'",
            r"CMAKE_MAKE_PROGRAM is not set",
            r"could not find ninja",
        ),
    ),
    Entry(
        id="build-context",
        title="The image build does not find a file",
        layer="build",
        rank=18,
        cause="A file that the Dockerfile copies or reads is not in the build context: it is absent, ignored by "
        ".dockerignore, or the build was started in another folder.",
        fix="Start the build in the repository's root and check .dockerignore.",
        text=(
            r"failed to (?:compute cache key|calculate checksum of ref).{0,200}not found",
            r"COPY failed: ",
            r"unable to prepare context",
            r"failed to read dockerfile",
            r"forbidden path outside the build context",
        ),
    ),
    Entry(
        id="buildkit-missing",
        title="The image build needs BuildKit",
        layer="build",
        rank=19,
        cause="The Dockerfile uses what only BuildKit knows, and this engine builds without it or has no buildx.",
        fix="Install docker-buildx (Docker's package docker-buildx-plugin), or set DOCKER_BUILDKIT=1.",
        command="docker buildx version",
        text=(
            r"the --(?:mount|chmod|link|secret) (?:option|flag) requires BuildKit",
            r"unknown flag: --(?:link|mount|chmod|secret|build-context)",
            r"buildx component is missing",
            r"'buildx' is not a docker command",
            r"dockerfile parse error.{0,60}unknown (?:flag|instruction)",
        ),
    ),
)
