#!/bin/bash
# Inside the build: the locked Python stack as a virtual environment, split into trees that become layers of 0.3–1.5 GB.
#   python.sh REQUIREMENTS DEST
# The environment is made at /opt/venv and then moved: DEST/<layer>/opt/venv/… for each layer. Layers of one NVIDIA library
# each change only when that library does; layers of this size download in parallel.
set -euo pipefail

requirements=$1 dest=$2
fail() { echo "error: $*" >&2; exit 1; }
# shellcheck disable=SC1091
[ -r /run/secrets/network ] && . /run/secrets/network
if [ -s /run/secrets/ca ]; then export SSL_CERT_FILE=/run/secrets/ca PIP_CERT=/run/secrets/ca; fi
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore UV_LINK_MODE=copy UV_HTTP_TIMEOUT=300
if [ -n "${PIP_INDEX_URL:-}" ]; then export PIP_INDEX_URL UV_DEFAULT_INDEX=$PIP_INDEX_URL; fi

python=python${PYTHON_VERSION:-3}
"$python" -m venv /tmp/uv
/tmp/uv/bin/pip install -q --require-hashes -r "$(dirname "$requirements")/requirements-build.txt" ||
  fail "pip could not install the build tools: the Python index does not answer from inside the build, or a hash differs; set PIP_INDEX_URL, or run 'make lock'."

"$python" -m venv --without-pip /opt/venv
/tmp/uv/bin/uv pip install -q --python /opt/venv/bin/python --require-hashes -r "$requirements" ||
  fail "uv could not install the locked Python stack: the lines above name the package (a hash that differs: 'make lock'; no answer: PIP_INDEX_URL)."
/tmp/uv/bin/uv pip check -q --python /opt/venv/bin/python || fail "the installed Python packages contradict each other: the lines above name them; change requirements.in and run 'make lock'."

# Files that name the moment or the cache of this build.
find /opt/venv -name uv_cache.json -delete
rm -f /opt/venv/.lock
# One old date on every source, then byte code that records it: the layer is the same bytes in every build, and editing a
# package's source still takes effect (a hash-based .pyc would cost a read of every source at import).
find /opt/venv -exec touch -h -d @315532800 {} +
/opt/venv/bin/python -m compileall -q -j 0 --invalidation-mode timestamp /opt/venv/lib >/dev/null || true # a few packages ship templates that are no Python
find /opt/venv -newermt '1980-01-02' -exec touch -h -d @315532800 {} +

site=$(/opt/venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
# Where `python -m verify` finds the package from any directory, without a variable that other programs would inherit.
echo /opt/verify >"$site/verify.pth" && touch -d @315532800 "$site/verify.pth"
move() { # layer, then paths below site-packages
  local layer=$1 path
  shift
  for path in "$@"; do
    [ -e "$site/$path" ] || fail "the Python stack has no $path any more: adapt the layers in python.sh."
    mkdir -p "$dest/$layer$(dirname "$site/$path")"
    mv "$site/$path" "$dest/$layer$site/$path"
  done
}
move cudnn nvidia/cudnn
move cublas nvidia/cublas
move cuda-sparse nvidia/cusparse nvidia/cusparselt nvidia/cusolver
move cuda-rest nvidia/nccl nvidia/cufft nvidia/cuda_nvrtc nvidia/curand nvidia/nvjitlink nvidia/cuda_cupti nvidia/cufile nvidia/cuda_runtime
move torch-cuda torch/lib/libtorch_cuda.so torch/lib/libtorch_cuda_linalg.so
move torch torch
move triton-xformers triton xformers
mkdir -p "$dest/packages/opt"
mv /opt/venv "$dest/packages/opt/venv"
# Directories made by mkdir above carry this moment.
find "$dest" -type d -newermt '1980-01-02' -exec touch -h -d @315532800 {} +
du -sm "$dest"/* >&2
