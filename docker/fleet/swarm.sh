#!/usr/bin/env bash
# Verify every node of a Docker Swarm: one job per node, one JSON report per node.   Run it on a manager.
#   swarm.sh IMAGE [FOLDER] [-- VERIFY ARGUMENTS]      default: nodes -- run
# Writes FOLDER/<node>.json (empty for a node that gave none) and FOLDER/<node>.log; `verify report FOLDER/*.json` is the
# table. Ends with 0 when every node passed, with 1 when one did not or gave no report, with 2 when nothing could be asked.
# Name IMAGE by digest (registry/name@sha256:…), so that every node runs the same. Swarm has no --gpus: nodes with GPUs need
# "default-runtime": "nvidia" in /etc/docker/daemon.json. TIMEOUT (seconds, 3600) bounds the wait.
set -euo pipefail
say() { printf '%s\n' "$*" >&2; }
die() { say "error: $*"; exit 2; }

image=${1:?usage: swarm.sh IMAGE [FOLDER] [-- VERIFY ARGUMENTS]}
shift
folder=nodes
if [ $# -gt 0 ] && [ "$1" != -- ]; then folder=$1; shift; fi
[ "${1:-}" != -- ] || shift
[ $# -gt 0 ] || set -- run
timeout=${TIMEOUT:-3600}

manager=$(docker info --format '{{.Swarm.ControlAvailable}}' 2>/dev/null) || die "no Docker engine answers: start it, or set DOCKER_HOST."
[ "$manager" = true ] || die "this Docker engine is no manager of a Swarm: run this on one, or make one (docker swarm init)."
mkdir -p "$folder" || die "the folder $folder cannot be made."
left=("$folder"/*.json)
[ ! -e "${left[0]}" ] || die "$folder holds reports already: name an empty folder, so that no node shows an old one."

service=verify-$$-$(date +%s)
# shellcheck disable=SC2064
trap "docker service rm '$service' >/dev/null 2>&1 || true" EXIT
trap 'exit 2' INT TERM
# The limit holds inside as well. /dev/shm: Swarm has no --shm-size.
docker service create --quiet --detach --name "$service" --mode global-job --restart-condition none --with-registry-auth \
  --mount type=tmpfs,target=/dev/shm,tmpfs-size=8589934592 --limit-pids 0 \
  "$image" timeout --kill-after=10 "$timeout" verify "$@" --quiet --json - >/dev/null ||
  die "the job was refused: the line above says why."

tasks() { docker service ps --no-trunc --format '{{.ID}}|{{.Node}}|{{.CurrentState}}|{{.Error}}' "$service"; }
end=$((SECONDS + timeout + 60)) shown=-1
while [ "$SECONDS" -lt "$end" ]; do
  all=$(tasks)
  done=$(grep -cE '\|(Complete|Failed|Rejected|Shutdown|Orphaned|Remove)' <<<"$all" || true)
  wanted=$(docker node ls --format '{{.Status}} {{.Availability}}' | grep -c '^Ready Active' || true)
  if [ "$done" != "$shown" ]; then say "$done of $wanted nodes are done"; shown=$done; fi
  [ -z "$all" ] || [ "$done" -lt "$wanted" ] || break
  sleep 1
done

bad=0 found=$(tasks)
declare -A task_of line_of
while IFS='|' read -r task rest; do
  [ -n "$task" ] || continue
  node=$(docker inspect --type task --format '{{.NodeID}}' "$task")
  task_of[$node]=$task line_of[$node]=${rest#*|}
done <<<"$found"
while IFS='|' read -r node name availability; do
  [ ! -e "$folder/$name.json" ] || name=$name-$node # two nodes may share a host name
  if [ -n "${task_of[$node]:-}" ]; then
    docker service logs --raw "${task_of[$node]}" >"$folder/$name.json" 2>"$folder/$name.log" || true
  elif [ "$availability" = Active ]; then
    : >"$folder/$name.json"
  else
    say "$name is left out, because it is set to $availability"
    continue
  fi
  IFS='|' read -r state error <<<"${line_of[$node]:-no task|the node took none: docker node ls}"
  printf '%s: %s\n' "$state" "$error" >>"$folder/$name.log"
  case "$state" in Complete*) ;; *) bad=1; say "$name: $state${error:+: $error}" ;; esac
done < <(docker node ls --format '{{.ID}}|{{.Hostname}}|{{.Availability}}')
say "The reports are in $folder: verify report $folder/*.json"
exit $bad
