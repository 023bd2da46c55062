#!/usr/bin/env bash
# Resolve docker/requirements*.in to locks with hashes that hold for Python 3.10 to 3.13; no index address is written.   lock.sh VENV
set -euo pipefail
cd "$(dirname "$0")"
# shellcheck source=docker/lib.sh
. ./lib.sh
for name in requirements requirements-build requirements-dev; do
  "../$1/bin/uv" pip compile -q --upgrade --universal --python-version 3.10 --generate-hashes --no-header \
    --no-emit-index-url --no-emit-find-links "$name.in" -o "$name.txt" || die "$name.in does not resolve: the lines above name the packages that contradict each other."
done
say "locked: review the difference with 'git diff --stat docker/', then 'make image verify'."
