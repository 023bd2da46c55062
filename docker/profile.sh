# Installed as /etc/profile.d/workspace.sh: login shells (bash -l, sh -l, su -, SSH) get what every other process gets.
# /etc/profile resets PATH, and su - and SSH start from an empty environment. Never LD_LIBRARY_PATH: torch finds its
# libraries by RPATH, while cuDNN's sub-libraries and libstdc++ would follow the variable.
# shellcheck shell=sh

case ":$PATH:" in
  *:/opt/venv/bin:*) ;;
  *) PATH=/opt/venv/bin:$PATH ;;
esac
if [ -d /usr/local/cuda ]; then
  export CUDA_HOME="${CUDA_HOME:-/usr/local/cuda}"
  case ":$PATH:" in
    *":$CUDA_HOME/bin:"*) ;;
    *) PATH=$CUDA_HOME/bin:$PATH ;;
  esac
fi
export PATH VIRTUAL_ENV=/opt/venv LANG="${LANG:-C.UTF-8}"

# docker exec skips the entrypoint: a user without an entry in /etc/passwd needs a name for torch.compile and a home, and
# caches that the entrypoint has moved are found again.
if [ -z "${USER:-}" ]; then USER=$(getent passwd "$(id -u)" | cut -d: -f1); fi
export USER="${USER:-workspace}"
export LOGNAME="${LOGNAME:-$USER}"
workspace_scratch=${TMPDIR:-/tmp}/workspace-$(id -u)
if [ ! -w "${HOME:-/}" ] && [ -d "$workspace_scratch/home" ]; then export HOME="$workspace_scratch/home"; fi
workspace_caches=/workspace/.cache
if [ ! -w "$workspace_caches" ]; then workspace_caches=$workspace_scratch/cache; fi
for workspace_cache in HF_HOME=/huggingface PIP_CACHE_DIR=/pip TORCHINDUCTOR_CACHE_DIR=/inductor TRITON_CACHE_DIR=/triton XDG_CACHE_HOME=; do
  case "$(printenv "${workspace_cache%%=*}")" in
    '' | /workspace/.cache | /workspace/.cache/*) export "${workspace_cache%%=*}=$workspace_caches${workspace_cache#*=}" ;;
  esac
done
unset workspace_scratch workspace_caches workspace_cache

# Six lines for a person at a terminal, once for each login: never for a command (-c), a script, scp, or a pipe.
case $- in
  *c*) ;;
  *i*)
    if [ -t 1 ] && [ "${WORKSPACE_MOTD:-}" != off ] && [ ! -e "${HOME:-/}/.hushlogin" ]; then
      export WORKSPACE_MOTD=off # tmux opens a login shell for each of its windows
      /opt/venv/bin/python -I -m verify.glance motd 2>/dev/null || :
    fi
    ;;
esac
