#!/usr/bin/env bash
# Starts every container: maps the user, seeds /workspace, finds a place for the caches, then becomes the command.
#   PUID, PGID   run as this user and group instead of root (docker run --user N[:M] needs neither)
#   PUBLIC_KEY   start an SSH server that lets this key in
#   APT_MIRROR   the mirror apt-get uses instead of the distribution's; HTTP_PROXY … in either case of the letters
# Silent when all is well. A mount that cannot be written costs a warning and never the container; a wrong PUID stops it,
# because the alternative is to go on as root. No "set -e": what fails here has its own sentence.
set -u

workspace=/workspace
skeleton=/opt/verify/skeleton
hooks=/opt/verify/hooks.d
account=workspace
scratch='' problem='' fix=''

warn() { printf 'warning: %s\n' "$*" >&2; }
die() { printf 'error: %s\n' "$*" >&2; exit 2; }

check_id() { # variable, value
  if ! [[ $2 =~ ^[0-9]{1,10}$ ]] || ((10#$2 > 4294967294)); then
    die "$1=$2 is not a number from 0 to 4294967294: set it to your own on the host, which 'id -u' and 'id -g' print."
  fi
}

# Programs disagree on the case of these names (curl and apt read http_proxy only), and none should send a container's
# own services through a proxy.
complete_proxies() {
  local name lower own=localhost,127.0.0.1,::1
  for name in HTTP_PROXY HTTPS_PROXY ALL_PROXY NO_PROXY; do
    lower=${name,,}
    if [ -n "${!name:-}" ] && [ -z "${!lower:-}" ]; then export "$lower=${!name}"; fi
    if [ -n "${!lower:-}" ] && [ -z "${!name:-}" ]; then export "$name=${!lower}"; fi
  done
  [ -n "${http_proxy:-}${https_proxy:-}${all_proxy:-}" ] || return 0
  for name in NO_PROXY no_proxy; do
    [[ ,${!name:-}, == *,localhost,* || ,${!name:-}, == *,\*,* ]] || export "$name=${!name:+${!name},}$own"
  done
}

use_apt_mirror() { # the same suites from another place, as in the build
  [ -n "${APT_MIRROR:-}" ] || return 0
  local file
  [[ $APT_MIRROR =~ ^https?://[^][:space:]#\&\\]+$ ]] ||
    { warn "APT_MIRROR=$APT_MIRROR is not the address of a mirror: write it as http://HOST/debian."; return 0; }
  for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.{sources,list}; do
    [ ! -s "$file" ] || sed -Ei "s#https?://[^ ]+/(debian|ubuntu)/?( |\$)#${APT_MIRROR%/}\2#" "$file" 2>/dev/null ||
      warn "APT_MIRROR has no effect on $file, which cannot be written: leave out --read-only, or APT_MIRROR."
  done
}

# The environment as the arguments of sshd's SetEnv: a session over SSH gets what docker run -e gave.
session_environment() {
  local name value
  for name in $(compgen -e); do
    value=${!name}
    case $name in PUBLIC_KEY | PUID | PGID | HOME | USER | LOGNAME | SHELL | PWD | OLDPWD | SHLVL | TERM | _) continue ;; esac
    [[ $name != BASH_FUNC_* && $value != *$'\n'* ]] || continue
    value=${value//\\/\\\\}
    printf ' "%s=%s"' "$name" "${value//\"/\\\"}"
  done
}

start_ssh() { # the only user let in
  [ -n "${PUBLIC_KEY:-}" ] || return 0
  local run=/run/sshd
  # The host key is made here, on the machine: one that came with the image would be everybody's. sshd keeps the first
  # value it reads, so the distribution's settings (PAM, sftp) come last. The file may hold secrets of the environment.
  if ! { mkdir -p $run && printf '%s\n' "$PUBLIC_KEY" >$run/authorized_keys; } 2>/dev/null; then
    warn "the SSH server did not start: with --read-only add --tmpfs /run."
  elif ! ssh-keygen -lf $run/authorized_keys >/dev/null 2>&1; then
    warn "the SSH server did not start, because PUBLIC_KEY holds no public key: give the line of a file like ~/.ssh/id_ed25519.pub."
  elif ! { { [ -s $run/host_key ] || ssh-keygen -q -t ed25519 -N '' -f $run/host_key; } &&
    (umask 077 && printf '%s\n' "HostKey $run/host_key" "AllowUsers $1" "PermitRootLogin prohibit-password" \
      "PasswordAuthentication no" "KbdInteractiveAuthentication no" \
      "AuthorizedKeysFile $run/authorized_keys .ssh/authorized_keys" "SetEnv$(session_environment)" \
      "Include /etc/ssh/sshd_config" >$run/config) && /usr/sbin/sshd -f $run/config; } 2>/dev/null; then
    warn "the SSH server did not start: see that nothing else listens on port 22 ('sshd -D -e -f $run/config' says more)."
  fi
}

become_user() { # command; does not come back
  local uid gid before file groups drop
  check_id PUID "$PUID"
  check_id PGID "${PGID:=$PUID}"
  uid=$((10#$PUID)) gid=$((10#$PGID)) before=$(id -u "$account")
  ((uid > 0)) || die "PUID=$PUID is root: leave PUID unset to run as root, or set it to your own number ('id -u' on the host)."
  # usermod would chown all that lies below the home, mounted folders too. Two edits do; with --read-only they fail, and
  # the exported names below stand in for the entry.
  if [ "$before:$(id -g "$account")" != "$uid:$gid" ]; then
    getent group "$gid" >/dev/null || sed -i "s/^\($account:[^:]*\):[0-9]*:/\1:$gid:/" /etc/group
    sed -i "s/^\($account:[^:]*\):[0-9]*:[0-9]*:/\1:$uid:$gid:/" /etc/passwd
    # The image's own home and its dot files; what was mounted there is somebody's.
    for file in "/home/$account"{,/.bash_logout,/.bashrc,/.profile}; do
      [ "$(stat -c %d "$file")" != "$(stat -c %d /home)" ] || chown -h "$uid:$gid" "$file"
    done
  fi 2>/dev/null
  # A volume that Docker has just made is empty and root's; anything else belongs to somebody and stays as it is.
  if [ "$(stat -c %u "$workspace")" = 0 ] && [ -z "$(ls -A -I lost+found "$workspace")" ]; then
    chown "$uid:$gid" "$workspace" 2>/dev/null
  fi
  # What docker run --group-add gave, but not root's own group.
  groups=$({ id -G; [ "$(id -u "$account")" != "$uid" ] || id -G "$account"; } | tr ' ' '\n' | grep -vx 0 | sort -u | paste -sd,)
  drop=(setpriv --reuid "$uid" --regid "$gid" --groups "${groups:-$gid}")
  "${drop[@]}" true 2>/dev/null ||
    die "this container may not become user $uid (no SETUID capability, or a user namespace without that number): use docker run --user instead of PUID."
  start_ssh "$account"
  export HOME=/home/$account USER=$account LOGNAME=$account PUID=$uid
  exec "${drop[@]}" "$BASH" "$0" "$@"
}

# True when a folder can be written. Only writing tells. Otherwise the first problem met is kept, with its fix.
writable() {
  local probe error owner
  if probe=$(LC_ALL=C mktemp "$1/.probe-XXXXXX" 2>&1); then
    error=$({ LC_ALL=C printf '%4096s' '' >"$probe"; } 2>&1)
    rm -f "$probe"
    [ -n "$error" ] || return 0
  else
    error=$probe
  fi
  [ -z "$problem" ] || return 1
  owner=$(stat -c %u:%g "$1" 2>/dev/null)
  case "$error" in
    *'Read-only file system'*) problem="$1 is read-only" fix="mount a volume there, without ':ro'" ;;
    *'No space left'* | *quota*) problem="$1 is full" fix="free some space on it" ;;
    *)
      problem="$1 belongs to user ${owner%:*} and this is user $EUID" fix="start the container with PUID=${owner%:*} PGID=${owner#*:}"
      [ "${owner%:*}" != 0 ] || fix="start the container as root"
      fix+=", or give that folder to user $EUID on the host (chown -R)"
      ;;
  esac
  return 1
}

runs_code() { # folder
  local probe status
  probe=$(mktemp "$1/.probe-XXXXXX" 2>/dev/null) || return 1
  printf '#!/bin/sh\n' >"$probe" && chmod 700 "$probe" && "$probe" 2>/dev/null
  status=$?
  rm -f "$probe"
  return $status
}

# Copies what is missing, never over or through what is there: a link in place of a folder is somebody's decision.
seed() { # folder of the skeleton, folder to fill
  local source target part
  for source in "$1"/*; do # dot files only keep git's empty folders
    target=$2/${source##*/}
    if [ -L "$target" ] || [ ! -e "$source" ]; then continue; fi
    if [ -d "$source" ]; then
      [ -e "$target" ] || mkdir "$target" || { writable "$2"; return 1; }
      [ ! -d "$target" ] || seed "$source" "$target" || return 1
    elif [ ! -e "$target" ]; then
      part=$(mktemp "$2/.seed-XXXXXX") || { writable "$2"; return 1; }
      if cp --preserve=mode "$source" "$part"; then mv -nT "$part" "$target"; fi
      rm -f "$part"
      [ -e "$target" ] || return 1
    fi
  done
} 2>/dev/null

make_scratch() { # a folder of this user's own below /tmp; scratch stays empty when there is none to have
  local folder=${TMPDIR:-/tmp}/$account-$EUID
  [ -z "$scratch" ] || return 0
  mkdir -m 700 "$folder" || { [ -O "$folder" ] && [ ! -L "$folder" ]; } || folder=$(mktemp -d) || return 1
  mkdir -p "$folder"/{home,cache} && scratch=$folder
} 2>/dev/null

move_caches() { # variables; only those that still have the image's value
  local variable
  for variable; do export "$variable=${!variable/#$workspace\/.cache/$scratch/cache}"; done
}

complete_proxies
if ((EUID == 0)); then
  use_apt_mirror
  [ -z "${PUID:-}" ] || become_user "$@"
  [ -z "${PGID:-}" ] || die "PGID=$PGID is set and PUID is not: set PUID too, or leave both unset to run as root."
  start_ssh root
elif [ -n "${PUID:-}" ] && [ "$PUID" != "$EUID" ]; then
  warn "PUID=$PUID has no effect, because the container was started as user $EUID: leave out either PUID or --user."
elif [ -n "${PUBLIC_KEY:-}" ] && [ -z "${PUID:-}" ]; then
  warn "PUBLIC_KEY has no effect, because only root may start the SSH server: use PUID instead of --user."
fi

# Without USER and LOGNAME torch.compile ends in getpwuid for a user who has no entry in /etc/passwd.
: "${USER:=$(getent passwd "$EUID" | cut -d: -f1)}"
export USER="${USER:-$account}" HOME="${HOME:-/}"
export LOGNAME="${LOGNAME:-$USER}"
[[ ${SHELL@a} == *x* ]] || export SHELL=/bin/bash # bash itself sets /bin/sh for that user, unexported
if [ ! -w "$HOME" ] && make_scratch; then export HOME=$scratch/home; fi

effect='' moved=''
if ! writable "$workspace" || ! seed "$skeleton" "$workspace"; then
  problem=${problem:-$workspace is full} fix=${fix:-free some space on it}
  effect="its folders and examples are not all there"
fi
mkdir -p "$workspace"/.cache/{inductor,triton,huggingface,pip} 2>/dev/null
for folder in "$workspace"/.cache{,/inductor,/triton,/huggingface,/pip}; do writable "$folder" || moved=all; done
if [ -n "$moved" ] && make_scratch; then
  move_caches TORCHINDUCTOR_CACHE_DIR TRITON_CACHE_DIR HF_HOME PIP_CACHE_DIR XDG_CACHE_HOME
  effect+="${effect:+ and }the caches are in $scratch/cache until the container is removed"
elif [ -n "$moved" ]; then
  effect+="${effect:+ and }there is no place for caches, which torch.compile needs"
  fix+=", and with --read-only add --tmpfs /tmp:exec"
elif ! runs_code "$workspace/.cache" && make_scratch; then # on a noexec volume data may stay
  moved=code
  move_caches TORCHINDUCTOR_CACHE_DIR TRITON_CACHE_DIR
  export TORCH_EXTENSIONS_DIR="${TORCH_EXTENSIONS_DIR:-$scratch/cache/torch_extensions}"
fi
[ -z "$effect" ] || warn "$problem, so $effect: $fix."
if [ -n "$moved" ] && [ -n "$scratch" ] && ! runs_code "$scratch"; then
  warn "torch.compile cannot load what it compiles, because ${scratch%/*} is mounted noexec (Docker's default for --tmpfs): use --tmpfs /tmp:exec."
fi

set +u # hooks are other people's scripts
for hook in "$hooks"/*.sh; do
  # shellcheck disable=SC1090
  [ ! -r "$hook" ] || . "$hook" || warn "the hook $hook failed with exit code $?; the container starts without its effect."
done

[ $# -gt 0 ] || set -- bash -l
if ! type -P -- "$1" >/dev/null; then
  [ ! -e "$1" ] || { printf 'error: %s is not executable: give its interpreter first, or chmod +x it.\n' "$1" >&2; exit 126; }
  printf 'error: %s is no command in this image.\n' "$1" >&2
  exit 127
fi
exec "$@"
