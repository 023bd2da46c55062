#!/bin/sh
# Inside the build: install the packages named in list files and leave no trace of how.   apt.sh LIST…
# /run/secrets/network may set APT_MIRROR; /run/secrets/ca is the CA bundle for an HTTPS mirror. Neither stays in the image.
set -eu

# shellcheck disable=SC1091
[ -r /run/secrets/network ] && . /run/secrets/network
touch /tmp/.start # dates.sh gives everything newer one old date
set_options() {
  options="-o Dpkg::Use-Pty=0 -o Acquire::Retries=3"
  [ -s /run/secrets/ca ] && options="$options -o Acquire::https::CAInfo=/run/secrets/ca"
  [ -n "${APT_MIRROR:-}" ] || return 0
  # The same suites and components from another place, for this run only.
  mkdir /tmp/sources
  for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.sources /etc/apt/sources.list.d/*.list; do
    [ -s "$file" ] || continue
    sed -E "s#https?://[^ ]+/(debian|ubuntu)/?( |\$)#${APT_MIRROR%/}\\2#" "$file" >"/tmp/sources/$(basename "$file")"
  done
  options="$options -o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts=/tmp/sources"
}

set_options
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086 # options are words
apt-get $options update -qq ||
  { echo "error: apt-get update failed: the Debian/Ubuntu mirror does not answer from inside the build; set APT_MIRROR, or HTTP_PROXY." >&2; exit 1; }

packages=
# shellcheck disable=SC2013 # words are what is wanted: one package a line, comments gone
for entry in $(sed 's/#.*//' "$@"); do
  case "$entry" in
    python3 | python3-*) [ -z "${PYTHON_VERSION:-}" ] || entry="python$PYTHON_VERSION${entry#python3}" ;;
  esac
  chosen=
  for candidate in $(echo "$entry" | tr '|' ' '); do
    # The name itself: where there is no g++-13, apt takes the word for a pattern that fits clang-13.
    if apt-cache show "$candidate" 2>/dev/null | grep -qFx "Package: $candidate"; then chosen=$candidate; break; fi
  done
  [ -n "$chosen" ] || { echo "error: this base offers none of: $entry; choose a base that does (for Python: set PYTHON_VERSION to one of the base's)." >&2; exit 1; }
  packages="$packages $chosen"
done
if [ -n "${SIMULATE:-}" ]; then
  # shellcheck disable=SC2086
  apt-get $options -s install --no-install-recommends $packages | sed -nE 's/^Inst ([^ ]+) (\[[^]]*\] )?\(([^ ]+) .*/install \1 \3/p' | sort >"$SIMULATE"
  # shellcheck disable=SC2086
  apt-get $options -s upgrade --with-new-pkgs | sed -nE 's/^Inst ([^ ]+) (\[[^]]*\] )?\(([^ ]+) .*/upgrade \1 \3/p' | sort >>"$SIMULATE"
  exit
fi
# Updates of what the layers below brought.
# shellcheck disable=SC2086
[ -z "${UPGRADE:-}" ] || apt-get $options upgrade -y -qq --with-new-pkgs >/tmp/apt.log 2>&1 ||
  { tail -n 20 /tmp/apt.log >&2; echo "error: apt-get could not bring the base up to date; the lines above say why." >&2; exit 1; }
# shellcheck disable=SC2086
apt-get $options install -y -qq --no-install-recommends $packages >/tmp/apt.log 2>&1 ||
  { tail -n 20 /tmp/apt.log >&2; echo "error: apt-get could not install:$packages; the lines above say why (a full disk, a broken mirror)." >&2; exit 1; }

# What names this build's moment or mirror, or is made again on demand.
rm -rf /tmp/sources /tmp/apt.log /var/lib/apt/lists/* /var/cache/apt/* /var/cache/ldconfig/* /var/cache/debconf/*-old /var/lib/dpkg/*-old /var/log/*
