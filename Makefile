# One word a job; `make` or `make help` lists them. Nothing needs to be typed before: each job sets up what it needs.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

JOBS ?= $(shell nproc)
BIN := build/release/bin
PYTEST := .venv/bin/python -m pytest
# Clones of one commit share a compiler cache, where there is one.
export CCACHE_BASEDIR := $(CURDIR)
export CCACHE_NOHASHDIR := 1
FUZZ_SECONDS ?= 60
SOAK_RUNS ?= 20
# Of test-peers: a venv with the peers in it, a folder of scripts that drive them, a checkout of Mooncake, a model.
PEERS_ENV ?=
CLIENTS ?=
REFERENCE ?=
CHECKPOINT ?=

# $(call build,PRESET,TARGETS...): no target means all of them.
build = cmake --preset $(1) --log-level=WARNING >/dev/null && \
  cmake --build --preset $(1) --parallel $(JOBS) $(if $(2),--target $(2))

.PHONY: help setup setup-build setup-dev build wheel demo test model bench lint format clean soak fuzz asan tsan clang test-peers

help:  ## This list
	@awk -F ':.*##  *' '/^[a-z-]+:.*##/ { printf "%-12s %s\n", $$1, $$2 }' Makefile

setup-build:
	@scripts/setup --build
setup:
	@scripts/setup
setup-dev:
	@scripts/setup --dev

build: setup-build  ## Everything, preset release, to build/release/bin
	@$(call build,release)

wheel: setup  ## The Python package as a wheel, to build/dist
	@.venv/bin/python -m pip wheel . --quiet --no-deps --no-build-isolation --wheel-dir build/dist
	@ls build/dist/*.whl

demo: setup-build  ## One completion through the whole path, then the same from the cache
	@$(call build,release,nano-mooncake)
	@$(BIN)/nano-mooncake-demo

test: setup  ## All tests of preset release: units, processes, command line, HTTP
	@$(call build,release)
	@ctest --preset release --parallel $(JOBS)

model: setup  ## SmolLM2-135M-Instruct into the cache folder, for --model smollm2
	@scripts/fetch-model

bench: setup-build  ## Prefill and decode throughput beside this machine's own limits
	@$(call build,release,nano-mooncake)
	@$(BIN)/nano-mooncake bench-engine

lint: setup-dev  ## Formatting of changed files, clang's warnings, thread-safety and clang-tidy
	@scripts/lint

format: setup-dev  ## clang-format over the files changed since origin/main
	@scripts/lint --format

asan: setup  ## Unit tests under AddressSanitizer and UndefinedBehaviorSanitizer
	@$(call build,asan-ubsan)
	@ctest --preset asan-ubsan --parallel $(JOBS)

tsan: setup  ## Unit tests under ThreadSanitizer
	@$(call build,tsan)
	@ctest --preset tsan --parallel $(JOBS)

clang: setup-dev  ## Build and tests by clang, with its thread-safety analysis
	@$(call build,clang)
	@ctest --preset clang --parallel $(JOBS)

fuzz: setup-dev  ## Each fuzz target for FUZZ_SECONDS (60)
	@$(call build,fuzz,nmc_fuzzers)
	@scripts/fuzz build/fuzz/bin --seconds $(FUZZ_SECONDS)

soak: setup-dev  ## Unit tests SOAK_RUNS (20) times over, long forms of the store's tests, fuzz targets for FUZZ_SECONDS
	@$(call build,release)
	@ctest --preset release --parallel $(JOBS) --label-regex unit --repeat until-fail:$(SOAK_RUNS)
	@NMC_SOAK=1 NMC_BIN_DIR=$(CURDIR)/$(BIN) $(PYTEST) -rs tests/test_serving_soak.py tests/test_store_*.py \
	  tests/python/test_store_large.py tests/python/test_store_full.py
	@$(MAKE) fuzz

test-peers: wheel  ## Other programs against our wheel: PEERS_ENV=DIR CLIENTS=DIR REFERENCE=DIR CHECKPOINT=DIR, what lacks is skipped
	@$(call build,release,nano-mooncake nmc_python_stub nmc_logits_tool)
	@NMC_BIN_DIR=$(CURDIR)/$(BIN) .venv/bin/python tests/peers/run_peers.py --wheel "$$(ls -t build/dist/*.whl | head -1)" \
	  --env "$(PEERS_ENV)" --clients "$(CLIENTS)" --reference "$(REFERENCE)" \
	  --checkpoint "$(CHECKPOINT)"

clean:  ## Removes build/; .venv and what the programs wrote stay
	@rm -rf build
