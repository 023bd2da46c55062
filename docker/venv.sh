#!/usr/bin/env bash
# The host's virtual environment, from the hashed lock.   venv.sh FOLDER PYTHON
set -euo pipefail
# shellcheck source=docker/lib.sh
. "$(dirname "$0")/lib.sh"
venv=$1 python=$2

if ! "$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
  has_apt && [ "$(id -u)" = 0 ] || die "Python 3.10 or newer with the venv module is needed ($python does not do): install python3 and python3-venv."
  apt_update_once
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3 python3-venv >/dev/null || die "apt-get could not install python3-venv."
fi
# The unit tests compile small fake drivers.
if ! command -v gcc >/dev/null && has_apt && [ "$(id -u)" = 0 ]; then
  apt_update_once
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends gcc libc6-dev >/dev/null || die "apt-get could not install gcc."
fi
rm -rf "$venv"
"$python" -m venv "$venv"
"$venv/bin/pip" install -qq --disable-pip-version-check --require-hashes -r "$(dirname "$0")/requirements-dev.txt" ||
  { rm -rf "$venv"; die "pip could not install the development tools: the Python index does not answer (PIP_INDEX_URL), or a hash differs ('make lock')."; }
touch "$venv/ready"
