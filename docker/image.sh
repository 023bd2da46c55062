#!/usr/bin/env bash
# Build the image: engine → base → FlashAttention wheel → bake. Called by `make image`; all settings are environment variables.
# Nothing is tagged unless everything, including the image's own checks, went through.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=docker/lib.sh
. docker/lib.sh

IMAGE=${IMAGE:-pytorch-workspace:2.8.0}
BASE=${BASE:-debian:trixie-slim}
TARGET=${TARGET:-devel}
PYTHON_VERSION=${PYTHON_VERSION:-}
FLASH_ATTN_ARCHS=${FLASH_ATTN_ARCHS:-sm_80}
TARGETS=${TARGETS:-sm_89}
SLIM=${SLIM:-off}
DRIVER=${DRIVER:-550.90.07}
ZSTD_LEVEL=${ZSTD_LEVEL:-3}
case "$SLIM" in on | off) ;; *) die "SLIM=$SLIM is neither on nor off." ;; esac
[[ $TARGETS =~ ^sm_[0-9]{2,3}(,sm_[0-9]{2,3})*$ ]] || die "TARGETS=$TARGETS is not written like sm_89 or sm_80,sm_89."
case "$TARGET" in devel | runtime) ;; *) die "TARGET=$TARGET is neither devel nor runtime." ;; esac

# FlashAttention is compiled for FLASH_ATTN_ARCHS; code for sm_80 runs on sm_86 and sm_89, and not on sm_90.
[ "${FLASH_ATTN:-auto}" = none ] || for card in ${TARGETS//,/ }; do
  runs=
  for arch in ${FLASH_ATTN_ARCHS//,/ }; do
    arch=${arch//[!0-9]/}
    if [ $((arch / 10)) = $((${card#sm_} / 10)) ] && [ "$arch" -le "${card#sm_}" ]; then runs=yes; fi
  done
  [ -n "$runs" ] || die "TARGETS=$TARGETS names $card and FLASH_ATTN_ARCHS=$FLASH_ATTN_ARCHS has no code for it: add $card there, or an older card of its series (FlashAttention-2 needs sm_80 or later), or set FLASH_ATTN=none."
done

started=$SECONDS
bash docker/engine.sh

# The layers' date: the last change of what they are made from, not of this moment; a new README changes no layer.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct -- Dockerfile docker verify workspace-skeleton 2>/dev/null || true)}
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-1754438400}
revision=$(git rev-parse HEAD 2>/dev/null || echo unknown)
[ -z "$(git status --porcelain 2>/dev/null)" ] || revision=$revision-modified

free=$(df --output=avail -B1G "$(docker info --format '{{.DockerRootDir}}')" 2>/dev/null | tail -n 1 | tr -d ' ')
if [ -z "${ONLY:-}" ] && ! docker image inspect "$IMAGE" >/dev/null 2>&1 && [ -n "$free" ] && [ "$free" -lt "${MIN_FREE_GB:-40}" ]; then
  die "a first build needs about 40 GB below $(docker info --format '{{.DockerRootDir}}') and $free GB are free: make room (docker system df), or set MIN_FREE_GB to try anyway."
fi

# shellcheck disable=SC2034
read -r base base_digest origin < <(bash docker/base.sh "$BASE") || die "there is no base image $BASE: see the line above."
[ "$SLIM" = off ] || say "SLIM=on: an image for $TARGETS alone; \`make size\` shows what that saves."
say "base: $base ($origin, $base_digest)"

mkdir -p .build/wheel
# Mirrors and the CA travel as secrets: they are in no layer, no history line and no environment.
umask 077
{
  for name in APT_MIRROR PIP_INDEX_URL; do [ -z "${!name:-}" ] || printf "%s='%s'\n" "$name" "${!name}"; done
} >.build/network
umask 022
secrets=(--secret "id=network,src=.build/network")
ca=${CA_BUNDLE:-${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}}
[ ! -r "$ca" ] || secrets+=(--secret "id=ca,src=$ca")
common=(--progress "${PROGRESS:-auto}" --provenance=false --build-arg "BASE=$base" --build-arg "PYTHON_VERSION=$PYTHON_VERSION"
  --build-arg "SLIM=$SLIM" --build-arg "COMPILER_STATE=${COMPILER_STATE:-}" --build-arg "OS_STATE=${OS_STATE:-}" --build-arg "TARGETS=$TARGETS" "${secrets[@]}")
for name in HTTP_PROXY HTTPS_PROXY NO_PROXY http_proxy https_proxy no_proxy; do [ -z "${!name:-}" ] || common+=(--build-arg "$name"); done
build() { docker buildx build "${common[@]}" "$@" .; }
if [ -n "${ONLY:-}" ]; then # one small stage whose files are wanted, for docker/resolve.sh
  build --target "$ONLY" --build-arg "OS_DAY=${OS_DAY:-}" --output type=local,dest=.build >".build/$ONLY.log" 2>&1 ||
    { grep -E 'error|ERROR' ".build/$ONLY.log" >&2; die "the stage $ONLY did not build: the lines above say why."; }
  exit
fi

build --target python-tag --output type=local,dest=.build >.build/base.log 2>&1 ||
  { grep -E 'error|ERROR' .build/base.log >&2; false; } || die "the base $base could not be prepared: the lines above name the step and the reason."
tag=$(cat .build/python-tag)

read -r variant wheel < <(bash docker/flash-attn.sh resolve "$tag") || die "FlashAttention could not be resolved: see the line above."
if [ "$wheel" = build ]; then
  say "FlashAttention-2: $variant, compiled here (on 2 cores lean takes some 25 min, an estimate, and full about 110; the wheel is kept in ${WHEELHOUSE:-wheelhouse}/)."
  build --target wheel --build-arg "FLASH_ATTN_VARIANT=$variant" --build-arg "FLASH_ATTN_ARCHS=$FLASH_ATTN_ARCHS" \
    --build-arg "MAX_JOBS=${MAX_JOBS:-}" --output "type=local,dest=${WHEELHOUSE:-wheelhouse}" ||
    die "FlashAttention-2 did not build: the lines above say why; FLASH_ATTN=none builds the image without it."
  read -r variant wheel < <(FLASH_ATTN=$variant bash docker/flash-attn.sh resolve "$tag")
fi
rm -f .build/wheel/*.whl
if [ "$wheel" != none ]; then
  cp -l "$wheel" .build/wheel/ 2>/dev/null || cp "$wheel" .build/wheel/
fi
say "FlashAttention-2: $variant${wheel:+ ($wheel)}"
[ "$variant" != lean ] || say "  lean leaves out dropout, ALiBi, softcap and sliding windows: calling one raises an error that says so."

created=$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
facts=$(printf '{"created": "%s", "revision": "%s", "base": {"name": "%s", "digest": "%s", "origin": "%s"}, "targets": ["%s"], "driver": "%s"}' \
  "$created" "$revision" "$base" "$base_digest" "$origin" "${TARGETS//,/\", \"}" "$DRIVER")
labels=()
label() { labels+=(--label "$1=$2"); }
label org.opencontainers.image.title pytorch-workspace
label org.opencontainers.image.description "CUDA 12.4 toolkit, PyTorch 2.8, xFormers, FlashAttention-2, and verify"
label org.opencontainers.image.version 2.8.0
label org.opencontainers.image.revision "$revision"
label org.opencontainers.image.created "$created"
label org.opencontainers.image.base.name "$base"
label org.opencontainers.image.base.digest "$base_digest"
label org.opencontainers.image.licenses "Apache-2.0 AND LicenseRef-NVIDIA-CUDA-EULA"
label pytorch-workspace.target "$TARGET"
label pytorch-workspace.targets "$TARGETS"
label pytorch-workspace.slim "$SLIM"
label pytorch-workspace.torch "$(sed -n 's/^torch==\([^ ;]*\).*/\1/p' docker/requirements.txt)"
label pytorch-workspace.xformers "$(sed -n 's/^xformers==\([^ ;]*\).*/\1/p' docker/requirements.txt)"
label pytorch-workspace.flash-attn "$variant"
[ "$TARGET" = runtime ] || label pytorch-workspace.toolkit 12.4.131

if docker info --format '{{json .DriverStatus}}' | grep -q containerd.snapshotter; then
  output=type=image,name=$IMAGE,compression=zstd,compression-level=$ZSTD_LEVEL,force-compression=true,oci-mediatypes=true
else
  say "This engine keeps images in its classic store: layers are stored uncompressed there, and compressed anew at a push."
  output=type=docker,name=$IMAGE
fi
# For `make reproduce`: an archive instead of an image in the store.
[ -z "${ARCHIVE:-}" ] || output=type=oci,dest=$ARCHIVE,compression=zstd,compression-level=$ZSTD_LEVEL,force-compression=true
[ -z "${NO_CACHE:-}" ] || common+=(--no-cache)
build --target "$TARGET" --build-context wheelhouse=.build/wheel --build-arg "FACTS=$facts" --build-arg SOURCE_DATE_EPOCH \
  "${labels[@]}" --output "$output" ||
  die "the image did not build, and $IMAGE is what it was before: the lines above name the step and the reason (no space left: docker system df)."
say "$IMAGE is ready ($TARGET, $((SECONDS - started)) s)."
