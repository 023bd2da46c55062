#!/usr/bin/env bash
# Find or make the base image, and print on one line: reference digest origin     (origin: local, registry or bootstrapped)
#   base.sh [IMAGE]                default debian:trixie-slim
# Order: the local store, a registry (REGISTRY_MIRROR=host[:port] is tried first), and for debian:<suite>[-slim] a base
# bootstrapped from a Debian mirror alone, tagged bootstrapped/debian:<suite>-slim so that nobody takes it for the official one.
set -euo pipefail
# shellcheck source=docker/lib.sh
. "$(dirname "$0")/lib.sh"

image=${1:-debian:trixie-slim}
epoch=1754438400 # one date for every base, so that the same packages are the same bytes

have() { docker image inspect "$1" >/dev/null 2>&1; }

answer() { # reference origin
  local digest
  digest=$(docker image inspect --format '{{if .RepoDigests}}{{index .RepoDigests 0}}{{else}}{{.Id}}{{end}}' "$1")
  printf '%s %s %s\n' "$1" "${digest##*@}" "$2"
}

pull() {
  local source=$1
  # Without a route to a registry the client can hang on look-ups for minutes; 300 s with no byte more is no slow line.
  timeout "${PULL_TIMEOUT:-300}" docker pull -q "$source" >/dev/null 2>"$errors"
}

bootstrap() { # suite tag
  local suite=$1 tag=$2 mirror work
  has_apt || die "no registry has answered for $image, and bootstrapping a base needs Debian or Ubuntu with apt: pull $image by hand, or set REGISTRY_MIRROR."
  [ "$(id -u)" = 0 ] || die "no registry has answered for $image, and bootstrapping a base needs root: run as root, or set REGISTRY_MIRROR."
  mirror=$(debian_mirror)
  [ -n "$mirror" ] || die "no registry has answered for $image, and apt here knows no Debian mirror: set APT_MIRROR=<address of a Debian mirror>."
  say "No registry answers for $image: bootstrapping it from this machine's Debian mirror."
  if ! command -v mmdebstrap >/dev/null; then
    apt_update_once
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends mmdebstrap >/dev/null || die "apt-get could not install mmdebstrap."
  fi
  work=$(mktemp -d)
  # shellcheck disable=SC2064
  trap "rm -rf '$work' '$errors'" EXIT
  # apt's own example is the distribution's public sources list: the image keeps that, not this machine's mirror.
  # Caches and logs name the moment and the mirror of the build, so they go.
  # shellcheck disable=SC2016
  SOURCE_DATE_EPOCH=$epoch mmdebstrap --quiet --variant=minbase --mode=root --include=ca-certificates \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
    --dpkgopt='path-include=/usr/share/doc/apt/examples/*' \
    --customize-hook='cd "$1" && if [ -e usr/share/doc/apt/examples/debian.sources ]; then
        grep -v "^##" usr/share/doc/apt/examples/debian.sources >etc/apt/sources.list.d/debian.sources && rm etc/apt/sources.list
      else cp usr/share/doc/apt/examples/sources.list etc/apt/sources.list; fi' \
    --customize-hook='cd "$1" && rm -rf usr/share/doc/apt/examples var/lib/apt/lists/* var/cache/ldconfig/* var/cache/debconf/*-old var/lib/dpkg/*-old var/log/*' \
    "$suite" "$work/rootfs.tar" "$mirror" >&2 ||
    die "mmdebstrap could not bootstrap Debian $suite from $mirror: the lines above say why (a wrong suite name, or a mirror that does not carry it)."
  printf 'FROM scratch\nADD rootfs.tar /\nCMD ["bash"]\n' >"$work/Dockerfile"
  docker buildx build --quiet --load --provenance=false --build-arg SOURCE_DATE_EPOCH="$epoch" --tag "$tag" "$work" >/dev/null ||
    die "Docker could not import the bootstrapped base: the lines above say why (a full disk?)."
}

errors=$(mktemp)
trap 'rm -f "$errors"' EXIT

if have "$image"; then answer "$image" local; exit; fi

suite=
[[ $image =~ ^debian:([a-z]+)(-slim)?$ ]] && suite=${BASH_REMATCH[1]}
if [ -n "$suite" ] && have "bootstrapped/debian:$suite-slim"; then answer "bootstrapped/debian:$suite-slim" bootstrapped; exit; fi

for source in ${REGISTRY_MIRROR:+"$REGISTRY_MIRROR/$([[ ${image%%:*} == */* ]] || printf library/)$image"} "$image"; do
  if pull "$source"; then
    [ "$source" = "$image" ] || docker tag "$source" "$image"
    answer "$image" registry
    exit
  fi
done

[ -n "$suite" ] || die "the base image $image is neither on this machine nor to be pulled ($(tail -n 1 "$errors")): check the name, or set REGISTRY_MIRROR=<host of a mirror>."
bootstrap "$suite" "bootstrapped/debian:$suite-slim"
answer "bootstrapped/debian:$suite-slim" bootstrapped
