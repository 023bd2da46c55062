# Sourced by the host's scripts in this folder: how they speak, and which Debian mirror they use.
# shellcheck shell=bash

say() { printf '%s\n' "$*" >&2; }
die() { say "error: $*"; exit 1; }

# The mirror this machine's own apt uses for Debian packages; APT_MIRROR overrides it. No host name is kept in the project.
debian_mirror() {
  if [ -n "${APT_MIRROR:-}" ]; then printf '%s\n' "$APT_MIRROR"; return; fi
  # shellcheck disable=SC2016 # $(SITE) is apt's own placeholder
  apt-get indextargets --format '$(ORIGIN)|$(RELEASE)|$(SITE)' 'Created-By: Packages' 2>/dev/null |
    awk -F'|' '$1 == "Debian" && $2 !~ /security/ { print $3; exit }'
}

# True on Debian and Ubuntu, where apt can bring what is missing.
has_apt() { command -v apt-get >/dev/null && [ -r /etc/os-release ] && grep -qE '^ID(_LIKE)?=.*(debian|ubuntu)' /etc/os-release; }

apt_update_once() {
  [ -n "${apt_updated:-}" ] && return
  apt-get update -qq || die "apt-get update failed: the package mirror of this machine does not answer; check /etc/apt/sources.list* and the proxy."
  apt_updated=1
}
