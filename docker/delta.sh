#!/usr/bin/env bash
# Push nights to a registry on loopback and count what a host with the night before has to pull.   delta.sh PYTHON IMAGE
# Nights: the image as it is, no change, a change in verify only, an OS update that leaves the compiler alone, one with the
# compiler. Each is a build of this project with one thing changed, from the build cache; about 15 GB of disk for a while.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=docker/lib.sh
. docker/lib.sh
python=${1:?usage: delta.sh PYTHON IMAGE} image=${2:?usage: delta.sh PYTHON IMAGE}
docker image inspect "$image" >/dev/null 2>&1 || die "there is no image $image: make image."
mkdir -p "${DELTA_DIR:-.build}"
work=$(mktemp -d -p "${DELTA_DIR:-.build}" delta.XXXXXX)
work=$(cd "$work" && pwd)
copy=$work/source names=()
finish() {
  [ ${#names[@]} = 0 ] || docker image rm "${names[@]}" >/dev/null 2>&1 || true
  bash docker/registry.sh stop "$work/registry" || true
  rm -rf "$work"
}
trap finish EXIT
address=$(bash docker/registry.sh start "$work/registry")
repository=$address/delta

send() { # local name, tag
  docker tag "$1" "$repository:$2"
  names+=("$repository:$2")
  docker push -q "$repository:$2" >/dev/null || die "the push of $2 failed."
}

night() { # tag, line of shell that changes the copy of the sources
  rm -rf "$copy" && mkdir "$copy"
  git ls-files -z | xargs -0 cp --parents -t "$copy"
  (cd "$copy" && eval "$2")
  mkdir -p "$copy/wheelhouse"
  for wheel in "${WHEELHOUSE:-wheelhouse}"/*.whl ../shared/wheels/*.whl; do
    [ ! -e "$wheel" ] || cp -n "$wheel" "$copy/wheelhouse/"
  done
  names+=("tmp-delta:$1")
  (cd "$copy" && IMAGE=tmp-delta:$1 MIN_FREE_GB=5 SOURCE_DATE_EPOCH=$epoch WHEELHOUSE=wheelhouse bash docker/image.sh >"$work/$1.log" 2>&1) ||
    die "the night $1 did not build: $(tail -n 3 "$work/$1.log")"
  send "tmp-delta:$1" "$1"
}

epoch=$(git log -1 --format=%ct -- Dockerfile docker verify workspace-skeleton)
night before ''
night same ''
night verify 'echo "# one more line" >>verify/core.py'
# A package more, and a program of the base replaced: what an update of a few packages looks like to the layers.
night os 'echo "bc" >>docker/apt-runtime.txt'
night compiler 'echo "gfortran-13" >>docker/apt-compiler.txt'
for pair in "same 0" "verify 2" "os 60" "compiler 200"; do
  read -r tag limit <<<"$pair"
  line=$("$python" -m verify nightly delta --repository "$repository" before "$tag" | tail -n 1)
  bytes=$(sed -n 's/.*(\([0-9]*\) bytes).*/\1/p' <<<"$line")
  verdict=ok
  [ "$bytes" -le $((limit * 1000000)) ] || { verdict="MORE than $limit MB" failed=1; }
  printf '%-10s %12s bytes  limit %3s MB  %s\n' "$tag" "$bytes" "$limit" "$verdict"
done
[ -z "${failed:-}" ]
