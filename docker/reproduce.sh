#!/usr/bin/env bash
# Build the image twice without a cache, and compare the two manifests' digests.   reproduce.sh PYTHON
# Only the two archives are kept, below .build/reproduce, and they go when they are equal. Needs about 30 GB for a while.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=docker/lib.sh
. docker/lib.sh
python=${1:?usage: reproduce.sh PYTHON}
command -v zstd >/dev/null || die "the program zstd is needed to name what differs: apt-get install zstd."
rm -rf .build/reproduce && mkdir -p .build/reproduce
for round in first second; do
  started=$SECONDS
  NO_CACHE=1 ARCHIVE=.build/reproduce/$round.tar bash docker/image.sh || die "the $round build failed: the lines above say why."
  say "$round build: $((SECONDS - started)) s"
done
"$python" -m verify nightly diff .build/reproduce/first.tar .build/reproduce/second.tar
rm -rf .build/reproduce
