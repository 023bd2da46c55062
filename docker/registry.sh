#!/usr/bin/env bash
# A registry of one's own on 127.0.0.1, for tests and measurements: Debian's docker-registry, unpacked and not installed.
#   registry.sh start FOLDER     prints 127.0.0.1:PORT; the same port when it is started again in FOLDER
#   registry.sh stop FOLDER      ends it; what was pushed stays in FOLDER/data
# FOLDER/log is its log. A FOLDER/config.yml that is there already is used as it is (a password, for example), and every
# REGISTRY_* variable reaches it. Docker takes 127.0.0.0/8 without TLS.
set -euo pipefail
# shellcheck source=docker/lib.sh
. "$(dirname "$0")/lib.sh"
usage="usage: registry.sh start|stop FOLDER"
action=${1:?$usage} folder=${2:?$usage}
tools=$(cd "$(dirname "$0")/.." && pwd)/.build/docker-registry

running() { [ -r "$folder/pid" ] && [ "$(cat "/proc/$(cat "$folder/pid")/comm" 2>/dev/null)" = docker-registry ]; }

program() {
  command -v docker-registry && return
  if [ ! -x "$tools/usr/bin/docker-registry" ]; then
    has_apt || die "docker-registry is not installed, and only Debian and Ubuntu carry it: put it on PATH."
    rm -rf "$tools" && mkdir -p "$tools"
    (cd "$tools" && apt-get download -qq docker-registry >/dev/null 2>"$tools/apt.log" && dpkg -x docker-registry_*.deb . && rm -f ./*.deb) ||
      die "docker-registry could not be fetched from this machine's mirror ($(tail -n 1 "$tools/apt.log" 2>/dev/null)): apt-get update, or put it on PATH."
  fi
  printf '%s\n' "$tools/usr/bin/docker-registry"
}

start() {
  local binary address=
  if running; then cat "$folder/address"; return; fi
  binary=$(program)
  mkdir -p "$folder/data"
  folder=$(cd "$folder" && pwd)
  address=$(cat "$folder/address" 2>/dev/null || echo 127.0.0.1:0)
  [ -e "$folder/config.yml" ] || cat >"$folder/config.yml" <<YAML
version: 0.1
log: {level: info, formatter: text}
storage: {filesystem: {rootdirectory: "$folder/data"}, delete: {enabled: true}, cache: {blobdescriptor: inmemory}}
YAML
  : >"$folder/log" # the loop below may look before the program begins
  REGISTRY_HTTP_ADDR=$address setsid "$binary" serve "$folder/config.yml" >"$folder/log" 2>&1 </dev/null &
  echo $! >"$folder/pid"
  for _ in $(seq 100); do
    # The kernel chose the port; the log names it.
    address=$(sed -n 's/.*listening on \(127\.0\.0\.1:[0-9]*\).*/\1/p' "$folder/log" | head -n 1)
    if [ -n "$address" ]; then
      printf '%s\n' "$address" | tee "$folder/address"
      return
    fi
    sleep 0.1
    running || break
  done
  die "the registry did not start: $(tail -n 1 "$folder/log")"
}

stop() {
  running || { rm -f "$folder/pid"; return 0; }
  local pid
  pid=$(cat "$folder/pid")
  kill "$pid"
  for _ in $(seq 100); do
    running || { rm -f "$folder/pid"; return 0; }
    sleep 0.1
  done
  kill -9 "$pid"
  rm -f "$folder/pid"
}

case "$action" in start | stop) "$action" ;; *) die "$usage" ;; esac
