#!/usr/bin/env bash
# What would a build of today take? Writes NAME=VALUE lines for docker/image.sh to $OUT, and NEWS=… for the person.
#   resolve.sh
# OS_STATE and COMPILER_STATE are hashes of the packages and versions that apt would install now: the image's OS layers are
# built anew exactly when one of them changes. The Python lock changes by `make lock` and a commit alone; NEWER_LOCK=1 says
# whether newer packages are there.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=docker/lib.sh
. docker/lib.sh
OUT=${OUT:?the file for the answer}
news=()

ONLY=os-state IMAGE="${IMAGE:-pytorch-workspace:nightly}" OS_DAY=$(date +%s) bash docker/image.sh
grep -q . .build/os-state || die "the package list of this base is empty: its mirror gave no answer."
count=$(grep -c '^upgrade ' .build/os-state || true)
[ "$count" = 0 ] || news+=("$count package(s) of the base are updated in the image")
state() { sha256sum | cut -c1-16; }
{
  printf 'OS_STATE=%s\n' "$(state <.build/os-state)"
  # Kernel headers and libc change far more often than GCC, and the OS layer brings their updates.
  printf 'COMPILER_STATE=%s\n' "$(grep -E '^install (g\+\+|gcc|cpp|binutils)' .build/os-state | state)"
} >"$OUT.part"
if [ -n "${NEWER_LOCK:-}" ]; then
  uv=${VENV:-.venv}/bin/uv
  fresh=$(mktemp)
  trap 'rm -f "$fresh"' EXIT
  (cd docker && "../$uv" pip compile -q --upgrade --universal --python-version 3.10 --no-header --no-annotate \
    --no-emit-index-url --no-emit-find-links requirements.in) | grep -oE '^[A-Za-z0-9._-]+==[^ ;]+' | sort -u >"$fresh"
  count=$(comm -23 "$fresh" <(grep -oE '^[A-Za-z0-9._-]+==[^ ;\\]+' docker/requirements.txt | sort -u) | wc -l)
  news+=("$count newer Python package(s) than the lock (make lock)")
fi
[ ${#news[@]} = 0 ] || printf 'NEWS=%s\n' "$(IFS=,; echo "${news[*]}")" >>"$OUT.part"
mv "$OUT.part" "$OUT"
