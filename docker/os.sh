#!/bin/sh
# Inside the build, after the packages: what every target needs of the operating system. Idempotent.
set -eu

# The compiler that apt chose, under the names everybody calls. Debian's g++ would be 14, which nvcc 12.4 refuses.
for tool in gcc g++; do
  newest=$(find /usr/bin -name "$tool-1[0-9]" | sort -V | tail -n 1)
  ln -sf "$newest" "/usr/local/bin/$tool"
  # Under this name Python's own build configuration calls it: every `pip install` from sources does.
  ln -sf "$newest" "/usr/local/bin/$(uname -m)-linux-gnu-$tool"
done
ln -sf /usr/local/bin/gcc /usr/local/bin/cc
ln -sf /usr/local/bin/g++ /usr/local/bin/c++

# A person with uid 1000 to map to; uid 1000 may be taken in other bases (ubuntu 24.04 ships one).
if old=$(getent passwd 1000 | cut -d: -f1) && [ -n "$old" ]; then userdel -r "$old" 2>/dev/null || userdel "$old"; fi
getent group workspace >/dev/null || groupadd --gid 1000 workspace
useradd --uid 1000 --gid 1000 --create-home --shell /bin/bash --no-log-init workspace

# SSH host keys must be made at start, on the machine, never shipped to everybody.
rm -f /etc/ssh/ssh_host_*

printf '#!/bin/sh\nexec /opt/venv/bin/python -m verify "$@"\n' >/usr/local/bin/verify
chmod 755 /usr/local/bin/verify

mkdir -p /opt/verify/hooks.d /workspace
# Like /tmp: an arbitrary --user works without a volume, and a new volume takes this mode over.
chmod 1777 /workspace
rm -rf /var/log/* /var/cache/ldconfig/* /etc/passwd- /etc/group- /etc/shadow- /etc/gshadow- /etc/subuid- /etc/subgid-
