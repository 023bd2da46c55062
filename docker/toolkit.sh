#!/bin/bash
# Inside the build: the CUDA 12.4 compiler, headers and cudart as one tree DEST/usr/local/cuda-12.4 (+ symlink cuda).
#   toolkit.sh DEST
# Source: NVIDIA's own apt repository where the base has it (nvidia/cuda images), else the packages of Debian 13 (non-free),
# which are 12.4.131 too and run on any glibc >= 2.17. cuBLAS, cuDNN, NCCL and the static libraries stay out: the Python
# wheels carry the former, nobody links the latter, and together they would add 4 GB.
set -euo pipefail

dest=${1:?usage: toolkit.sh DEST}
top=$dest/usr/local/cuda-12.4
work=$(mktemp -d)
fail() { echo "error: $*" >&2; exit 1; }
# shellcheck disable=SC1091
[ -r /run/secrets/network ] && . /run/secrets/network

mkdir -p "$top"/{bin,include,lib64/stubs,nvvm/bin,nvvm/libdevice,nvvm/include,licenses}

from_nvidia() {
  apt-get install -y -qq --no-install-recommends cuda-minimal-build-12-4 cuda-cuobjdump-12-4 cuda-nvdisasm-12-4 \
    cuda-nvrtc-dev-12-4 cuda-nvtx-12-4 cuda-profiler-api-12-4 libcublas-dev-12-4 libcusparse-dev-12-4 \
    libcusolver-dev-12-4 libcurand-dev-12-4 >/dev/null || fail "NVIDIA's repository does not offer the CUDA 12.4 compiler packages."
  local root=/usr/local/cuda-12.4
  cp -a "$root"/bin/{nvcc,ptxas,fatbinary,nvlink,cudafe++,bin2c,cuobjdump,nvdisasm,cu++filt,nvprune,crt} "$top/bin/"
  cp -a "$root"/bin/__nvcc_device_query "$top/bin/" 2>/dev/null || true
  cp -a "$root"/nvvm/bin/cicc "$top/nvvm/bin/"
  cp -a "$root"/nvvm/libdevice/libdevice.10.bc "$top/nvvm/libdevice/"
  cp -a "$root"/nvvm/include/. "$top/nvvm/include/"
  cp -a "$root"/targets/x86_64-linux/include/. "$top/include/"
  cp -a "$root"/targets/x86_64-linux/lib/{libcudart.so*,libcudart_static.a,libcudadevrt.a} "$top/lib64/"
  cp -a "$root"/targets/x86_64-linux/lib/stubs/libcuda.so "$top/lib64/stubs/"
  cp "$root"/EULA.txt "$top/licenses/" 2>/dev/null || cp /usr/share/doc/cuda-nvcc-12-4/* "$top/licenses/"
}

from_debian() {
  local mirror packages p
  # shellcheck disable=SC2016 # $(SITE) is apt's own placeholder
  mirror=${APT_MIRROR:-$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | head -n 1)}
  [ -n "$mirror" ] || fail "the base knows no Debian mirror: set APT_MIRROR."
  # A private apt: Debian 13's lists beside the base's own, whichever Debian that is.
  mkdir -p "$work"/{lists/partial,cache/archives/partial,parts,debs,root}
  printf 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s trixie main contrib non-free\n' "${mirror%/}" >"$work/sources.list"
  apt=(apt-get -o "Dir::Etc::SourceList=$work/sources.list" -o "Dir::Etc::SourceParts=$work/parts" -o "Dir::State::Lists=$work/lists"
    -o "Dir::Cache=$work/cache" -o APT::Sandbox::User=root -o Acquire::Retries=3)
  [ -s /run/secrets/ca ] && apt+=(-o Acquire::https::CAInfo=/run/secrets/ca)
  "${apt[@]}" update -qq || fail "the mirror $mirror does not answer, or does not carry Debian 13 (trixie) with non-free: set APT_MIRROR."
  packages=(nvidia-cuda-toolkit nvidia-cuda-dev libcudart12 libcu++-dev libcub-dev libthrust-dev)
  (cd "$work/debs" && "${apt[@]}" download -qq "${packages[@]}") || fail "could not download ${packages[*]} from $mirror."
  for p in "$work"/debs/*.deb; do
    # Debian's nvidia-cuda-dev unpacks to 2.5 GB of static libraries; only what is wanted is written out.
    dpkg-deb --fsys-tarfile "$p" | tar -x -C "$work/root" --exclude='*/libcu[bfrs]*_static*.a' --exclude='*/libnv*_static.a' --exclude='*/libnpp*.a' --exclude='*/doc/*/examples'
  done
  local root=$work/root/usr lib=$work/root/usr/lib/x86_64-linux-gnu
  cp -a "$root"/bin/{ptxas,fatbinary,nvlink,cudafe++,bin2c,cuobjdump,nvdisasm,cu++filt,nvprune,__nvcc_device_query} "$top/bin/"
  cp -a "$root"/lib/nvidia-cuda-toolkit/bin/nvcc "$root"/lib/nvidia-cuda-toolkit/bin/crt "$top/bin/"
  cp -a "$root"/lib/nvidia-cuda-toolkit/bin/cicc "$top/nvvm/bin/"
  find "$root" -name libdevice.10.bc -exec cp -a {} "$top/nvvm/libdevice/" \;
  rm -f "$root"/include/npp*.h "$root"/include/nvjpeg.h
  cp -a "$root"/include/. "$top/include/"
  mv "$top/include/nvvm.h" "$top/nvvm/include/"
  cp -a "$lib"/{libcudart.so*,libcudart_static.a,libcudadevrt.a} "$top/lib64/"
  ln -s libcudart.so.12 "$top/lib64/libcudart.so" 2>/dev/null || true
  cp -a "$lib"/stubs/libcuda.so "$top/lib64/stubs/"
  cp "$root/share/doc/nvidia-cuda-toolkit/copyright" "$top/licenses/nvidia-cuda-toolkit.txt"
  for p in libcub-dev libthrust-dev libcu++-dev; do cp "$root/share/doc/$p/copyright" "$top/licenses/$p.txt"; done
}

apt-get update -qq || fail "the package mirror does not answer from inside the build; set APT_MIRROR, or HTTP_PROXY."
if apt-cache policy cuda-nvcc-12-4 2>/dev/null | grep -q Candidate; then from_nvidia; else from_debian; fi

# Relative to nvcc itself, so that the tree can be moved; the symlinked, absolute one of Debian cannot. -isystem, since
# glibc 2.41 declares sinpi, cospi … noexcept and CUDA 12.4 does not: an error in a plain header, tolerated in a system one.
cat >"$top/bin/nvcc.profile" <<'PROFILE'
TOP              = $(_HERE_)/..
CICC_PATH        = $(TOP)/nvvm/bin
NVVMIR_LIBRARY_DIR = $(TOP)/nvvm/libdevice
LD_LIBRARY_PATH += $(TOP)/lib64:
PATH            += $(CICC_PATH):$(_HERE_):
INCLUDES        += "-isystem" "$(TOP)/include" $(_SPACE_)
LIBRARIES        =+ $(_SPACE_) "-L$(TOP)/lib64/stubs" "-L$(TOP)/lib64"
CUDAFE_FLAGS    +=
PTXAS_FLAGS     +=
PROFILE
ln -s lib64 "$top/lib"
ln -s cuda-12.4 "$dest/usr/local/cuda"

version=$("$top/bin/nvcc" --version | sed -n 's/.*, V\([0-9.]*\)$/\1/p')
[ "$version" = 12.4.131 ] || fail "nvcc says ${version:-nothing}, 12.4.131 was expected."
for needed in nvvm/libdevice/libdevice.10.bc nvvm/bin/cicc include/cuda_runtime.h include/cuda/std/version include/cub/cub.cuh \
  include/thrust/version.h include/cublas_v2.h include/cusparse.h include/cusolverDn.h include/curand_kernel.h include/nvrtc.h \
  include/nvtx3/nvToolsExt.h lib64/libcudart_static.a lib64/libcudart.so.12; do
  [ -e "$top/$needed" ] || fail "the toolkit tree lacks $needed."
done
rm -rf "$work"
