#!/bin/bash
# The FlashAttention-2 wheel: taken from a wheelhouse, or built with nvcc 12.4.
#   flash-attn.sh resolve TAG          on the host: decide, and print "variant wheel" (wheel: a path, or "build")
#   flash-attn.sh build VARIANT ARCHS DEST    inside the build: compile it
#   flash-attn.sh prepare VARIANT      in the unpacked sources: what is compiled, and in how many pieces (part of build)
#   flash-attn.sh unpack WHEEL DEST    inside the build: lay a wheel out as a layer
# FLASH_ATTN=auto|full|lean|none. auto takes a wheel of the wheelhouse, else builds FLASH_ATTN_BUILD (default: full with 8 or
# more cores, else lean). A wheel's build tag tells what it is: 1fullsm80, 1leansm80.
#
# full  everything the sources offer: 72 kernel units of ~3 core-minutes, ~40 s of each being header parsing.
# lean  for small machines: no dropout, ALiBi, softcap or sliding window (calling one raises an error that says so);
#       forward, backward, causal, varlen, GQA and KV-cache decoding for all head dimensions stay. Of the tile shapes only
#       those that a card with 100 KB of shared memory (sm_86, sm_89) takes: an A100 runs them too, at less than its best.
#       Decoding with a KV cache checks bounds that full need not check.
set -euo pipefail

version=2.8.2
sdist_sha256=740a5370f406cbe16155cc6d078ec543a97a137501f32cba89198295e6b80e54
lean_off="DROPOUT ALIBI SOFTCAP LOCAL"
fail() { echo "error: $*" >&2; exit 1; }
say() { echo "$*" >&2; }

resolve() {
  local tag=$1 want=${FLASH_ATTN:-auto} archs=${FLASH_ATTN_ARCHS:-sm_80} house variant wheel found=()
  local label=${archs//[_,]/}
  case "$want" in auto | full | lean) ;; none) echo "none none"; return ;; *) fail "FLASH_ATTN=$want is none of auto, full, lean, none." ;; esac
  if [ -n "${WHEELHOUSE_GIVEN:-}" ] && [ ! -d "$WHEELHOUSE" ]; then
    fail "WHEELHOUSE=$WHEELHOUSE is no folder: create it, or leave WHEELHOUSE out to build the wheel here."
  fi
  for variant in full lean; do
    [ "$want" = auto ] || [ "$want" = "$variant" ] || continue
    for house in "${WHEELHOUSE:-wheelhouse}" ../shared/wheels; do
      found=("$house/flash_attn-$version-1$variant$label-$tag"-*.whl)
      wheel=${found[0]}
      if [ -f "$wheel" ]; then
        python3 -m zipfile -t "$wheel" >/dev/null 2>&1 || fail "$wheel is damaged: delete it, and the next build makes a new one."
        echo "$variant $wheel"
        return
      fi
    done
  done
  if [ "$want" = auto ]; then
    if [ "$(nproc)" -ge 8 ]; then want=full; else want=lean; fi
    want=${FLASH_ATTN_BUILD:-$want}
  fi
  echo "$want build"
}

# Concatenate kernel units: the C++ headers, 40 s of every unit, are then parsed once a group. What a merged-away unit had
# is compiled and linked with its leader; setup.py's list loses its name, because even an empty unit takes 1.6 s.
merge_units() { # group size, glob…
  local size=$1 n=0 leader='' file
  shift
  for file in "$@"; do
    if [ $((n % size)) = 0 ]; then leader=$file; else
      cat "$file" >>"$leader"
      rm "$file"
      sed -i "/$(basename "$file")/d" setup.py
    fi
    n=$((n + 1))
  done
}

# What lean does without in the templates. Tile shapes are chosen while compiling instead of at run time, so that the larger
# ones are not compiled at all. The KV-cache kernels are those that hold for any length and head dimension, without their
# variants for sizes that fill the tiles: cicc takes some 5 s for each kernel, and these were half of all.
fewer_kernels() {
  local src=csrc/flash_attn/src
  sed -i 's/if (max_smem_per_block >= .*) {/if constexpr (false) {/; s/if (is_sm8x) {/if constexpr (true) {/' "$src"/flash_{fwd,bwd}_launch_template.h
  sed -i '/^void run_flash_splitkv_fwd/,/^}/ s/\(BOOL\|EVENK\)_SWITCH(\(is_even_[MNK]*\), /NO_SWITCH(\2, /' "$src/flash_fwd_launch_template.h"
  echo '#define NO_SWITCH(COND, CONST_NAME, ...) [&] { constexpr static bool CONST_NAME = false; return __VA_ARGS__(); }()' >>"$src/static_switch.h"
}

prepare() {
  local size=2 splits=2
  if [ "$1" = lean ]; then
    size=8 splits=4 # not more: ptxas took over 90 minutes for six split-KV units in one file, and 37 s for four
    fewer_kernels
  fi
  merge_units $size csrc/flash_attn/src/flash_bwd_hdim*.cu
  merge_units $size csrc/flash_attn/src/flash_fwd_hdim*.cu
  merge_units $splits csrc/flash_attn/src/flash_fwd_split*.cu
}

build() {
  local variant=$1 archs=$2 dest=$3 source numbers flag flags='' cores memory jobs
  # shellcheck disable=SC1091
  [ -r /run/secrets/network ] && . /run/secrets/network
  if [ -s /run/secrets/ca ]; then export PIP_CERT=/run/secrets/ca; fi
  if [ -n "${PIP_INDEX_URL:-}" ]; then export PIP_INDEX_URL; fi
  mkdir -p /tmp/build "$dest"
  printf 'flash-attn==%s --hash=sha256:%s\n' "$version" "$sdist_sha256" >/tmp/build/requirements.txt
  # pip checks the hash; --no-build-isolation since the metadata step imports torch.
  FLASH_ATTENTION_SKIP_CUDA_BUILD=TRUE /opt/venv/bin/python -m pip download -q --no-deps --no-build-isolation --no-binary :all: \
    --require-hashes -r /tmp/build/requirements.txt -d /tmp/build ||
    fail "the sources of flash-attn $version could not be had: the Python index does not answer (PIP_INDEX_URL), or the hash differs."
  source=/tmp/build/flash_attn-$version
  tar -xzf /tmp/build/flash_attn-$version.tar.gz -C /tmp/build
  cd "$source"

  prepare "$variant"
  if [ "$variant" = lean ]; then for flag in $lean_off; do flags="$flags -DFLASHATTENTION_DISABLE_$flag"; done; fi

  cores=$(nproc)
  memory=$(($(awk '/MemAvailable/ {print $2}' /proc/meminfo) / 1048576))
  jobs=${MAX_JOBS:-$((memory / 5 < cores ? memory / 5 : cores))} # a unit's compiler passes peak at about 5 GB
  numbers=${archs//sm_/}
  say "flash-attn $version ($variant, $archs): $((jobs > 0 ? jobs : 1)) job(s), $(nvcc --version | sed -n 's/.*, V/nvcc /p')"
  export MAX_JOBS=$((jobs > 0 ? jobs : 1)) NVCC_THREADS=1 FLASH_ATTN_CUDA_ARCHS=${numbers//,/;} FLASH_ATTENTION_FORCE_BUILD=TRUE
  # -O1 for the host's half of a kernel unit, which only launches kernels; the GPU's half keeps -O3.
  export NVCC_APPEND_FLAGS="$flags -Xcompiler -O1" CFLAGS="${flags# }" CXXFLAGS="${flags# }" SOURCE_DATE_EPOCH=315532800
  local started=$SECONDS
  # ninja's lines name whole commands: one short line a unit is enough, and errors stay whole.
  /opt/venv/bin/python setup.py -q bdist_wheel --dist-dir /tmp/build/dist 2>&1 |
    sed -u -nE 's#^(\[[0-9]+/[0-9]+\]).*/(flash_[a-z0-9_]+)\.o.*#\1 \2#p; /error|FAILED|Killed|No space/p' || true
  compgen -G "/tmp/build/dist/flash_attn-$version-*.whl" >/dev/null || fail "flash-attn $version did not compile: the lines above name the unit ('Killed' means out of memory: set MAX_JOBS=1)."
  /opt/venv/bin/python -m wheel tags --remove --build "1$variant${archs//[_,]/}" /tmp/build/dist/*.whl >/dev/null
  mv /tmp/build/dist/*.whl "$dest/"
  say "built in $(((SECONDS - started) / 60)) min, $(times | awk 'NR == 2 { split($1, t, "m"); print t[1] }') core-minutes"
}

unpack() {
  local wheel=$1 dest=$2 site
  site=$(/opt/venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  mkdir -p "$dest$site"
  # A wheel of this kind (no scripts, no data folder) is installed by being unpacked; RECORD comes with it.
  /opt/venv/bin/python -m zipfile -e "$wheel" "$dest$site"
  echo docker >"$(echo "$dest$site"/flash_attn-*.dist-info)/INSTALLER"
  find "$dest" -exec touch -h -d @315532800 {} +
  /opt/venv/bin/python -m compileall -q -s "$dest" -p / --invalidation-mode timestamp "$dest" >/dev/null || true
  find "$dest" -exec touch -h -d @315532800 {} +
}

command=${1:?usage: flash-attn.sh resolve|build|prepare|unpack …}
shift
case "$command" in resolve | build | prepare | unpack) "$command" "$@" ;; *) fail "flash-attn.sh knows no '$command'." ;; esac
