#!/usr/bin/env bash
# docker compose with the GPU override where this host can give containers a GPU.   compose.sh ARGUMENTS…
set -euo pipefail
cd "$(dirname "$0")/.."
bash docker/engine.sh
# What the container writes should belong to who started it.
[ "$(id -u)" = 0 ] || export PUID=${PUID:-$(id -u)} PGID=${PGID:-$(id -g)}
files=(-f compose.yaml)
if [ -e /proc/driver/nvidia/version ] && docker info --format '{{json .Runtimes}} {{json .CDISpecDirs}}' | grep -q nvidia; then files+=(-f docker/compose.gpu.yaml); fi
exec docker compose "${files[@]}" "$@"
