# Stepgraph: a thin wrapper around CMake. `make help` lists the targets.
#
# build/ holds the release build, every tool in build/bin. BUILD, PRESET, JOBS and PREFIX may be given; UNITY=ON, for
# a new BUILD, compiles files in batches: half the time from scratch, slower after an edit.

BUILD      ?= build
PRESET     ?= release
PREFIX     ?= /usr/local
JOBS       ?= $(shell nproc 2>/dev/null || echo 2)
PYTHON     ?= python3
GENERATOR  := $(shell command -v ninja >/dev/null 2>&1 && echo Ninja || echo "Unix Makefiles")
STRICT     := $(if $(CI),-DSG_WARNINGS_AS_ERRORS=ON,)
UNITY      ?= OFF
MAKEFLAGS  += --no-print-directory

.PHONY: all deps configure demo test test-all bench fuzz fuzz-short install package update format debug asan tsan cuda stats clean help
.DEFAULT_GOAL := all

all: configure  ## build every tool into build/bin (installs what is missing first)
	@cmake --build $(BUILD) -j $(JOBS)

deps:
	@cmake/install-dependencies.sh

configure: deps
	@test -f $(BUILD)/CMakeCache.txt || cmake -G "$(GENERATOR)" --preset $(PRESET) -B $(BUILD) $(STRICT) -DSG_UNITY=$(UNITY) >/dev/null \
	  || { rm -f $(BUILD)/CMakeCache.txt; cmake -G "$(GENERATOR)" --preset $(PRESET) -B $(BUILD) $(STRICT) -DSG_UNITY=$(UNITY); }

demo: all  ## the main job end to end, on a small real step
	@examples/04_run_a_moe_step/run.sh $(BUILD)/bin $(BUILD)/moe-profile.json

test: all  ## build and run the tests
	@cd $(BUILD) && ctest --output-on-failure -j $(JOBS) -LE long

test-all: all  ## the tests, and what is too long for CI: sanitizers, longer fuzzing
	@cd $(BUILD) && ctest --output-on-failure -j $(JOBS)
	@$(MAKE) asan
	@$(MAKE) fuzz FUZZ_SECONDS=120

bench: all  ## measure; prints the machine and the figures
	@$(PYTHON) tests/bench/run_bench.py --bin $(BUILD)/bin
	@$(PYTHON) tests/bench/run_plan_bench.py --bin $(BUILD)/bin

FUZZ_SECONDS ?= 600
fuzz: deps  ## libFuzzer with ASan and UBSan, FUZZ_SECONDS per target (600)
	@tests/fuzz/run_fuzz.sh $(FUZZ_SECONDS)

fuzz-short: deps  ## fixed inputs, as in CI
	@tests/fuzz/run_fuzz.sh short

asan: deps  ## build and test under ASan and UBSan, in build-asan
	@cmake -G "$(GENERATOR)" --preset asan >/dev/null && cmake --build build-asan -j $(JOBS) && cd build-asan && ctest --output-on-failure -j $(JOBS) -LE "long|golden"

tsan: deps  ## build and test under TSan, in build-tsan
	@cmake -G "$(GENERATOR)" --preset tsan >/dev/null && cmake --build build-tsan -j $(JOBS) && cd build-tsan && ctest --output-on-failure -j $(JOBS) -LE "long|golden"

debug: deps  ## debug build in build-debug
	@cmake -G "$(GENERATOR)" --preset debug >/dev/null && cmake --build build-debug -j $(JOBS)

cuda: deps  ## build with the CUDA toolkit, in build-cuda
	@cmake -G "$(GENERATOR)" --preset cuda >/dev/null && cmake --build build-cuda -j $(JOBS)

install: all  ## install into PREFIX (relocatable)
	@cmake --install $(BUILD) --prefix $(PREFIX)

package: all  ## a Debian package (and one of each plugin) and an archive, in build/packages
	@cd $(BUILD) && cpack --config CPackConfig.cmake

update: all  ## rewrite the expected parts of the goldens and documents
	@$(PYTHON) tests/run_golden.py --bin $(BUILD)/bin --update
	@$(PYTHON) tests/cli/run_cli_tests.py --bin $(BUILD)/bin --update
	@$(PYTHON) tests/run_docs.py --bin $(BUILD)/bin --update

format:  ## format the C++ sources with clang-format
	@cmake/format.sh

stats:  ## house-style indicators per folder
	@$(PYTHON) tests/style_stats.py libgraph libpasses librun tools tests

clean:  ## remove the build folders
	@rm -rf build build-*

help:
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'
