# Variables: set them on the command line (make image TARGET=runtime) or in the environment.
IMAGE ?= pytorch-workspace:2.8.0
# What `make pull` brings: registry/name:tag or registry/name@sha256:…
REF ?=
# Base image: the local store, a registry, or (debian:<suite>) bootstrapped from the Debian mirror of this machine.
BASE ?= debian:trixie-slim
# devel (with nvcc) or runtime (without).
TARGET ?= devel
# Another Python minor version than the base's own, where the base offers it: 3.10 on Ubuntu 22.04.
PYTHON_VERSION ?=
# auto: a wheel from the wheelhouse, else full with 8 or more cores, else lean. Or: full, lean, none.
FLASH_ATTN ?= auto
FLASH_ATTN_ARCHS ?= sm_80
WHEELHOUSE ?= wheelhouse
# GPU targets and host driver that the image declares, and `verify` holds it to.
TARGETS ?= sm_89
DRIVER ?= 550.90.07
# on: leave out the GPU code that none of TARGETS runs. A smaller image, for these cards alone.
SLIM ?= off
# GPUs for `make verify`: auto (if the host has any), required, none.
GPU ?= auto
# Extra arguments: make verify ARGS="--json -"; make unit ARGS="-k limits".
ARGS ?=
VENV ?= .venv
PYTHON ?= python3

# Mirrors, proxies and CA: APT_MIRROR, PIP_INDEX_URL, HTTP_PROXY …, CA_BUNDLE, REGISTRY_MIRROR come from the environment as
# well; they reach the build as secrets and are not in the image.
export IMAGE BASE TARGET PYTHON_VERSION FLASH_ATTN FLASH_ATTN_ARCHS WHEELHOUSE TARGETS SLIM DRIVER
export APT_MIRROR PIP_INDEX_URL CA_BUNDLE REGISTRY_MIRROR MAX_JOBS PROGRESS SOURCE_DATE_EPOCH
ifneq ($(origin WHEELHOUSE),file)
export WHEELHOUSE_GIVEN := 1
endif

.DEFAULT_GOAL := help
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
RUN := $(VENV)/bin/

.PHONY: help
help: ## Show this help
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | awk -F'\t' '{printf "  make %-12s %s\n", $$1, $$2}'

##@ The two commands

.PHONY: image
image: ## Build the image; sets up a Docker engine on bare Debian/Ubuntu
	@bash docker/image.sh

.PHONY: verify
verify: $(VENV)/ready ## Run verify in the image, with the GPU if there is one (GPU=auto|required|none)
	@bash docker/engine.sh
	@$(RUN)python -m verify image --image $(IMAGE) --gpus $(GPU) $(ARGS)

##@ Working with the image

.PHONY: pull
pull: $(VENV)/ready ## Pull REF=registry/name:tag by digest, check its signature, verify it
	@bash docker/engine.sh
	@$(RUN)python -m verify pull $(REF) --gpus $(GPU) $(ARGS)

.PHONY: shell
shell: ## A shell in the image; /workspace is a volume, or a folder with WORKSPACE=./folder
	@bash docker/compose.sh run --rm workspace

.PHONY: up
up: ## JupyterLab and TensorBoard on 127.0.0.1
	@bash docker/compose.sh up -d jupyter tensorboard && bash docker/compose.sh logs jupyter

.PHONY: down
down: ## Stop what `make up` started
	@bash docker/compose.sh down

.PHONY: size
size: $(VENV)/ready ## Bytes per layer, compressed and unpacked; per library too for a slimmed image
	@$(RUN)python -m verify.size $(IMAGE)

.PHONY: bench-pull
bench-pull: $(VENV)/ready ## Pull and unpack: the image's layers against one gzip layer (as root, twice its size free)
	@mkdir -p .build
	@$(RUN)python -m verify.pull_bench $(IMAGE) --folder .build $(ARGS)

##@ Tests

.PHONY: test
test: lint unit image-test ## Lint, unit tests and image tests (builds the image first)

.PHONY: lint
lint: $(VENV)/ready ## ruff, mypy, shellcheck, hadolint
	$(RUN)ruff check .
	$(RUN)ruff format --check .
	$(RUN)mypy
	$(RUN)shellcheck -x docker/*.sh docker/fleet/*.sh
	$(RUN)hadolint Dockerfile

.PHONY: unit
unit: $(VENV)/ready ## Tests that need neither Docker nor a GPU
	$(RUN)pytest tests/unit $(ARGS)

.PHONY: doctor-score
doctor-score: $(VENV)/ready ## How many recorded failures `verify doctor` names right, and its false alarms
	$(RUN)python -m verify.doctor.score $(ARGS)

# A test run on a large machine must not take an hour for a wheel: where the wheelhouse has none, lean is built.
test image-test: export FLASH_ATTN_BUILD ?= lean
.PHONY: image-test
image-test: $(VENV)/ready image ## Tests of the built image; no GPU needed
	$(RUN)pytest tests/image --image $(IMAGE) $(ARGS)

##@ Every night

# REPOSITORY=registry/name; GPU_HOST=ssh://user@host or a Docker context, else this machine's GPU; SIGN_KEY=cosign.key.
.PHONY: nightly
nightly: export PATH := $(abspath $(VENV))/bin:$(PATH)
nightly: $(VENV)/ready ## Build, prove and promote to REPOSITORY, or leave latest alone
	@bash docker/engine.sh
	@$(RUN)python -m verify nightly run $(ARGS)

.PHONY: rollback
rollback: $(VENV)/ready ## Point latest at the last verified digest before
	@$(RUN)python -m verify nightly rollback $(ARGS)

.PHONY: reproduce
reproduce: $(VENV)/ready ## Build twice without a cache and compare; names the layer and the files that differ
	@bash docker/engine.sh
	@bash docker/reproduce.sh $(RUN)python

.PHONY: delta
delta: $(VENV)/ready ## Bytes pulled for no change, a change of verify, an OS update, a compiler update
	@bash docker/delta.sh $(RUN)python $(IMAGE)

##@ Maintenance

.PHONY: lock
lock: $(VENV)/ready ## Resolve docker/requirements*.in anew (hashes, no index address)
	@bash docker/lock.sh $(VENV)

.PHONY: clean
clean: ## Remove the image, build scraps and the virtual environment (the wheelhouse stays)
	-docker image rm $(IMAGE)
	rm -rf .build $(VENV)

$(VENV)/ready: docker/requirements-dev.txt docker/venv.sh
	@bash docker/venv.sh $(VENV) $(PYTHON)
