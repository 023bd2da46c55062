#!/usr/bin/env bash
# A Slurm Prolog that verifies the node before a job. UNTESTED: written from Slurm's documentation, no cluster was at hand.
#   slurm.conf:  Prolog=/etc/slurm/verify-prolog.sh     PrologFlags=Alloc     (Docker on every node, IMAGE pulled there)
# It writes REPORTS/<node>.json for `verify report REPORTS/*.json`. A prolog that ends with another code than 0 drains the
# node and requeues the job; so a node that fails is taken out, and one that could not be asked is not.
set -u
export PATH=/usr/local/bin:/usr/bin:/bin # Slurm sets none for a prolog
image=${IMAGE:-pytorch-workspace:2.8.0}     # better: registry/name@sha256:…
reports=${REPORTS:-/var/spool/slurm/verify} # better: a folder all nodes share
age=${MAX_AGE_MIN:-1440}                    # minutes; a younger report that passed is good enough

node=${SLURMD_NODENAME:-$(hostname -s)}
mkdir -p "$reports" || exit 0
if [ -n "$(find "$reports/$node.ok" -mmin "-$age" 2>/dev/null)" ]; then exit 0; fi
rm -f "$reports/$node.ok"
timeout 300 docker run --rm --gpus all --shm-size 8g --network none "$image" \
  timeout 240 verify run --quiet --json - >"$reports/.$node.part" 2>"$reports/$node.log" </dev/null
code=$?
mv "$reports/.$node.part" "$reports/$node.json"
case $code in
  0) touch "$reports/$node.ok" ;;
  1) exit 1 ;;
esac
exit 0
