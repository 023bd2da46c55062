# The workspace image: CUDA 12.4 toolkit, PyTorch 2.8, xFormers, FlashAttention-2 and `verify`.
#
#   base ──► os ──► tools ──► toolkit        CUDA 12.4 compiler, headers, cudart (GCC and Python lie between base and os)
#             │       └─────► python         the locked Python stack, split into layers
#             │                 └──► stack   the same (SLIM=off), or without GPU code that no target runs (SLIM=on)
#             │                 └──► flash-attn-build ──► wheel (exported to the wheelhouse)
#             │                                 flash-attn    the chosen wheel as a layer
#             └──► runtime-tree ──► proof-runtime ──► runtime
#                     └──► devel-tree ──► proof-devel ──► devel (default)
#
# Big trees come by COPY --link from their own stages: an OS update changes the OS layer and nothing else. The proof
# stages run `verify` on the finished tree; the final stages take a file from them, so a bad stack does not build.
# `make image` resolves BASE and FLASH_ATTN_WHEEL and passes mirrors and a private CA as secrets, which leave no trace.
# No "syntax" line: it would pull a front end from a registry.

ARG BASE=debian:trixie-slim
ARG SLIM=off

FROM ${BASE} AS base
# The base's own shell settings and NVIDIA's cuda-compat: its libcuda on the loader path is error 804 on GeForce cards.
RUN packages=$(dpkg-query -W -f '${Package} ' 'cuda-compat*' 2>/dev/null); \
    { [ -z "$packages" ] || apt-get purge -y -qq 'cuda-compat*'; } && rm -rf /usr/local/cuda*/compat

# What apt would install now, for docker/resolve.sh; no other stage takes anything from it.
FROM base AS os-state-file
ARG PYTHON_VERSION=""
ARG OS_DAY=""
RUN --mount=type=bind,source=docker,target=/docker --mount=type=secret,id=network --mount=type=secret,id=ca \
    SIMULATE=/os-state sh /docker/apt.sh /docker/apt-compiler.txt /docker/apt-runtime.txt
FROM scratch AS os-state
COPY --from=os-state-file /os-state /os-state

# COMPILER_STATE and OS_STATE, given by the nightly build, are hashes of what apt would install: another hash, another run.
FROM base AS compiler
ARG PYTHON_VERSION=""
ARG COMPILER_STATE=""
RUN --mount=type=bind,source=docker/apt.sh,target=/docker/apt.sh \
    --mount=type=bind,source=docker/apt-compiler.txt,target=/docker/apt-compiler.txt \
    --mount=type=bind,source=docker/dates.sh,target=/docker/dates.sh \
    --mount=type=secret,id=network --mount=type=secret,id=ca \
    sh /docker/apt.sh /docker/apt-compiler.txt && sh /docker/dates.sh

FROM compiler AS os
ARG OS_STATE=""
RUN --mount=type=bind,source=docker/apt.sh,target=/docker/apt.sh \
    --mount=type=bind,source=docker/apt-runtime.txt,target=/docker/apt-runtime.txt \
    --mount=type=bind,source=docker/os.sh,target=/docker/os.sh \
    --mount=type=bind,source=docker/dates.sh,target=/docker/dates.sh \
    --mount=type=secret,id=network --mount=type=secret,id=ca \
    UPGRADE=1 sh /docker/apt.sh /docker/apt-runtime.txt && sh /docker/os.sh && sh /docker/dates.sh

FROM os AS tools
ARG PYTHON_VERSION=""
RUN --mount=type=bind,source=docker/apt.sh,target=/docker/apt.sh \
    --mount=type=bind,source=docker/apt-python.txt,target=/docker/apt-python.txt \
    --mount=type=secret,id=network --mount=type=secret,id=ca \
    sh /docker/apt.sh /docker/apt-python.txt

# Which Python the base has decides which FlashAttention wheel fits: `make image` asks for this file first.
FROM tools AS python-tag-file
ARG PYTHON_VERSION=""
RUN python${PYTHON_VERSION:-3} -c 'import sys; print("cp%d%d" % sys.version_info[:2])' >/python-tag
FROM scratch AS python-tag
COPY --from=python-tag-file /python-tag /python-tag

FROM tools AS toolkit
RUN --mount=type=bind,source=docker/toolkit.sh,target=/docker/toolkit.sh \
    --mount=type=secret,id=network --mount=type=secret,id=ca \
    bash /docker/toolkit.sh /layers/toolkit && find /layers -exec touch -h -d @315532800 {} +

FROM tools AS python
ARG PYTHON_VERSION=""
RUN --mount=type=bind,source=docker/python.sh,target=/docker/python.sh \
    --mount=type=bind,source=docker/requirements.txt,target=/docker/requirements.txt \
    --mount=type=bind,source=docker/requirements-build.txt,target=/docker/requirements-build.txt \
    --mount=type=secret,id=network --mount=type=secret,id=ca \
    --mount=type=cache,target=/root/.cache/uv,sharing=locked \
    bash /docker/python.sh /docker/requirements.txt /layers

# What slims, and no more of `verify`: an edit elsewhere leaves these layers alone.
FROM scratch AS slim-program
COPY verify/slim /verify/slim
COPY verify/__init__.py verify/audit.py verify/core.py verify/coverage.py verify/elf.py verify/fatbin.py verify/fatentry.py \
     verify/payload.py verify/plain.py verify/wording.py /verify/

FROM python AS slim-off
RUN mkdir /slim

FROM python AS slim-on
ARG PYTHON_VERSION=""
RUN --mount=type=bind,source=docker/apt.sh,target=/docker/apt.sh \
    --mount=type=bind,source=docker/apt-slim.txt,target=/docker/apt-slim.txt \
    --mount=type=secret,id=network --mount=type=secret,id=ca \
    sh /docker/apt.sh /docker/apt-slim.txt
ARG TARGETS=sm_89
RUN --mount=type=bind,from=slim-program,source=/verify,target=/program/verify \
    PYTHONPATH=/program "python${PYTHON_VERSION:-3}" -B -m verify.slim --target "$TARGETS" --manifest /slim/slim.json \
      /layers/*/opt/venv/lib/python3*/site-packages && \
    find /layers /slim -newermt '1980-01-02' -exec touch -h -d @315532800 {} +

# hadolint ignore=DL3006
FROM slim-${SLIM} AS stack

FROM os AS runtime-tree
COPY --link --from=stack /layers/cudnn/ /
COPY --link --from=stack /layers/cublas/ /
COPY --link --from=stack /layers/cuda-sparse/ /
COPY --link --from=stack /layers/cuda-rest/ /
COPY --link --from=stack /layers/torch-cuda/ /
COPY --link --from=stack /layers/torch/ /
COPY --link --from=stack /layers/triton-xformers/ /
COPY --link --from=stack /layers/packages/ /
ENV PATH=/opt/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    LANG=C.UTF-8 \
    VIRTUAL_ENV=/opt/venv

# Compiles the wheel; only `--target wheel` runs it, when the wheelhouse has none that fits.
FROM runtime-tree AS flash-attn-build
ARG FLASH_ATTN_VARIANT=lean
ARG FLASH_ATTN_ARCHS=sm_80
ARG MAX_JOBS=""
COPY --link --from=toolkit /layers/toolkit/ /
ENV CUDA_HOME=/usr/local/cuda PATH=/usr/local/cuda/bin:/opt/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
RUN --mount=type=bind,source=docker/flash-attn.sh,target=/docker/flash-attn.sh \
    --mount=type=secret,id=network --mount=type=secret,id=ca \
    bash /docker/flash-attn.sh build "${FLASH_ATTN_VARIANT}" "${FLASH_ATTN_ARCHS}" /wheel
FROM scratch AS wheel
COPY --from=flash-attn-build /wheel/ /

# The named context `wheelhouse` holds exactly the chosen wheel, or nothing (FLASH_ATTN=none).
FROM scratch AS wheelhouse
FROM runtime-tree AS flash-attn
RUN --mount=type=bind,source=docker/flash-attn.sh,target=/docker/flash-attn.sh --mount=type=bind,from=wheelhouse,target=/wheelhouse \
    mkdir -p /layers/flash-attn/opt && \
    for wheel in /wheelhouse/*.whl; do [ ! -e "$wheel" ] || bash /docker/flash-attn.sh unpack "$wheel" /layers/flash-attn || exit 1; done && \
    find /layers -exec touch -h -d @315532800 {} +

# The project's own files, with fixed modes and one old date: a layer's bytes depend on contents, not on the checkout.
# The distribution's message of the day gives way to profile.sh's, which over SSH would come after it.
FROM os AS project
COPY docker/profile.sh docker/entrypoint.sh docker/gpu.sh docker/requirements.txt LICENSE /from/
COPY workspace-skeleton /from/skeleton
COPY verify /from/verify
RUN install -D -m 644 /from/profile.sh /layers/project/etc/profile.d/workspace.sh && \
    install -D -m 755 /from/entrypoint.sh /layers/project/opt/verify/entrypoint.sh && \
    install -D -m 755 /from/gpu.sh /layers/project/usr/local/bin/gpu && \
    install -D -m 644 /dev/null /layers/project/etc/motd && mkdir /layers/project/etc/pam.d && \
    sed '/pam_motd/d' /etc/pam.d/sshd >/layers/project/etc/pam.d/sshd && \
    install -m 644 /from/requirements.txt /from/LICENSE /layers/project/opt/verify/ && \
    cp -r /from/skeleton /from/verify /layers/project/opt/verify/ && chmod -R u=rwX,go=rX /layers && \
    find /layers -exec touch -h -d @315532800 {} +

# What the image knows about itself. Reads the installed packages, so it cannot claim what is not there.
FROM runtime-tree AS facts
COPY --link --from=flash-attn /layers/flash-attn/ /
COPY --link --from=toolkit /layers/toolkit/ /
COPY --link --from=project /layers/project/ /
ARG FACTS="{}"
RUN --mount=type=bind,source=docker/requirements.txt,target=/docker/requirements.txt --mount=type=bind,from=wheelhouse,target=/wheelhouse \
    --mount=type=bind,from=stack,source=/slim,target=/slim \
    for target in runtime devel; do \
      /opt/venv/bin/python -B -m verify.manifest --target $target --lock /docker/requirements.txt --wheelhouse /wheelhouse --facts "$FACTS" --slim /slim/slim.json \
        --out /facts/$target/opt/verify/image.json || exit 1; \
    done && find /facts -exec touch -h -d @315532800 {} +

FROM runtime-tree AS workspace-tree
COPY --link --from=flash-attn /layers/flash-attn/ /
COPY --link --from=project /layers/project/ /
# Caches stay on the volume, so that a second start is warm; entrypoint.sh moves them when it is not writable.
# NVIDIA_REQUIRE_CUDA holds for driver 550 (CUDA 12.4) and newer. LD_LIBRARY_PATH stays unset: torch finds its libraries by
# RPATH, and cuDNN's sub-libraries and libstdc++ would follow the variable.
ENV NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    NVIDIA_REQUIRE_CUDA="cuda>=12.4" \
    HF_HOME=/workspace/.cache/huggingface \
    PIP_CACHE_DIR=/workspace/.cache/pip \
    TORCHINDUCTOR_CACHE_DIR=/workspace/.cache/inductor \
    TRITON_CACHE_DIR=/workspace/.cache/triton \
    XDG_CACHE_HOME=/workspace/.cache
WORKDIR /workspace
EXPOSE 8888 6006
# -s: with Docker's --init another init is PID 1, and tini says so at every start unless it is a subreaper.
ENTRYPOINT ["/usr/bin/tini", "-s", "-g", "--", "/opt/verify/entrypoint.sh"]
CMD ["bash", "-l"]

FROM workspace-tree AS runtime-ready
COPY --link --from=facts /facts/runtime/ /
FROM runtime-ready AS proof-runtime
RUN --network=none verify run --about image --no-progress && install -D -m 644 /dev/null /proof/opt/verify/proven && touch -d @315532800 /proof/opt/verify/proven
FROM runtime-ready AS runtime
COPY --link --from=proof-runtime /proof/ /

FROM workspace-tree AS devel-ready
ENV CUDA_HOME=/usr/local/cuda PATH=/usr/local/cuda/bin:/opt/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
COPY --link --from=toolkit /layers/toolkit/ /
COPY --link --from=facts /facts/devel/ /
FROM devel-ready AS proof-devel
RUN --network=none verify run --about image --no-progress && install -D -m 644 /dev/null /proof/opt/verify/proven && touch -d @315532800 /proof/opt/verify/proven
FROM devel-ready AS devel
COPY --link --from=proof-devel /proof/ /
