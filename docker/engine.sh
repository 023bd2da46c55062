#!/usr/bin/env bash
# Make sure a Docker engine with BuildKit >= 0.13 and buildx answers. One that answers is used as it is, quietly;
# on Debian and Ubuntu, as root, a missing one is installed and started. Never starts a second daemon beside a running one:
# two daemons on one host delete each other's docker0 bridge.
set -euo pipefail
# shellcheck source=docker/lib.sh
. "$(dirname "$0")/lib.sh"

need_buildkit=0.13
log=/var/log/dockerd.log

version_at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }

engine_answers() { docker version --format '{{.Server.Version}}' >/dev/null 2>&1; }

# Prints the BuildKit version behind the current builder, or nothing. Distribution builds do not know their own
# ("0.0.0+unknown"): there the engine decides, which carries BuildKit 0.13 since Docker 26.
buildkit_version() {
  local version engine
  version=$(docker buildx inspect 2>/dev/null | sed -n 's/^BuildKit version:[[:space:]]*v\{0,1\}//p' | head -n 1)
  if [[ $version == 0.0.0* ]]; then
    engine=$(docker version --format '{{.Server.Version}}')
    version_at_least "$engine" 26 && version=$need_buildkit || version="0.12 or older (of Docker $engine)"
  fi
  printf '%s\n' "$version"
}

check_buildkit() {
  docker buildx version >/dev/null 2>&1 ||
    die "a Docker engine answers, but the docker buildx plugin is missing: install docker-buildx (Debian, Ubuntu) or docker-buildx-plugin (Docker's own packages)."
  local version
  version=$(buildkit_version)
  [ -n "$version" ] || die "docker buildx cannot reach a builder: 'docker buildx inspect' shows the reason."
  version_at_least "$version" "$need_buildkit" ||
    die "BuildKit $version is too old, $need_buildkit is needed (reproducible timestamps, zstd layers): update Docker to 26 or newer."
}

daemon_pid() { grep -lx dockerd /proc/[0-9]*/comm 2>/dev/null | head -n 1 | tr -dc 0-9; }

wait_for_engine() {
  for _ in $(seq 60); do
    engine_answers && return
    sleep 1
  done
  die "the Docker engine did not answer within 60 s; its log: $log (or: journalctl -u docker)."
}

configure_engine() {
  mkdir -p /etc/docker
  # The containerd image store is what keeps zstd layers as they were built; the build cache of every rebuild is some 20 GB and
  # is kept within bounds. An administrator's own file is left alone.
  [ -e /etc/docker/daemon.json ] || cat >/etc/docker/daemon.json <<'JSON'
{
  "features": { "containerd-snapshotter": true },
  "builder": { "gc": { "enabled": true, "defaultKeepStorage": "25GB" } }
}
JSON
}

install_engine() {
  say "No Docker engine on this machine: installing docker.io from the Debian/Ubuntu mirror."
  apt_update_once
  local packages=(docker.io docker-buildx iptables ca-certificates) pins=/etc/apt/preferences.d/zz-docker-from-trixie
  local source=/etc/apt/sources.list.d/zz-docker-from-trixie.sources candidate
  candidate=$(apt-cache policy docker.io | sed -n 's/^ *Candidate: //p')
  # shellcheck disable=SC1091
  if version_at_least "${candidate:-0}" 26; then
    apt-cache show docker-compose-v2 >/dev/null 2>&1 && packages+=(docker-compose-v2) || packages+=(docker-compose)
    apt-cache show docker-cli >/dev/null 2>&1 && packages+=(docker-cli)
  elif (. /etc/os-release && [ "$ID" = debian ]); then
    # Debian 12's docker.io is 20.10. Exactly five packages come from Debian 13, everything they need from Debian 12.
    local mirror
    mirror=$(debian_mirror)
    [ -n "$mirror" ] || die "apt has no Debian mirror configured: add one to /etc/apt/sources.list, or set APT_MIRROR."
    trap 'rm -f "$pins" "$source"; apt-get update -qq || true' RETURN
    printf 'Types: deb\nURIs: %s\nSuites: trixie\nComponents: main\nSigned-By: /usr/share/keyrings/debian-archive-keyring.gpg\n' "$mirror" >"$source"
    printf 'Package: *\nPin: release n=trixie\nPin-Priority: 100\n\nPackage: docker.io docker-cli docker-buildx docker-compose containerd\nPin: release n=trixie\nPin-Priority: 990\n' >"$pins"
    unset apt_updated
    apt_update_once
    packages+=(docker-cli docker-compose containerd)
  else
    die "this release offers docker.io ${candidate:-none}, 26 or newer is needed: install Docker Engine from Docker's own packages."
  fi
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null ||
    die "apt-get could not install ${packages[*]}: the lines above say why."
}

start_engine() {
  if [ -d /run/systemd/system ]; then
    systemctl restart docker || die "systemd could not start docker: journalctl -u docker says why."
  else
    say "Starting dockerd (log: $log)."
    setsid dockerd >"$log" 2>&1 </dev/null &
  fi
  wait_for_engine
}

if command -v docker >/dev/null && engine_answers; then
  check_buildkit
  exit 0
fi

if pid=$(daemon_pid) && [ -n "$pid" ]; then
  # Perhaps it is just starting.
  for _ in $(seq 20); do engine_answers && { check_buildkit; exit 0; }; sleep 1; done
  die "a dockerd runs here (pid $pid) but does not answer $(id -un) at ${DOCKER_HOST:-the default socket}: join the group docker, use sudo, or unset DOCKER_HOST. A second daemon is never started."
fi
[ -z "${DOCKER_HOST:-}" ] || die "the engine at DOCKER_HOST=$DOCKER_HOST does not answer: start it, or unset DOCKER_HOST to use this machine."
has_apt || die "no Docker engine answers: install Docker Engine 26 or newer with the buildx plugin and start it."
[ "$(id -u)" = 0 ] || die "no Docker engine answers, and only root can install one: run this as root once, or install and start Docker yourself."

configure_engine # before the package, which may start the daemon by itself
if ! command -v dockerd >/dev/null || ! docker buildx version >/dev/null 2>&1; then install_engine; fi
engine_answers || start_engine
check_buildkit
say "Docker engine $(docker version --format '{{.Server.Version}}') is up."
