# SPDX-License-Identifier: Apache-2.0
# make train   install missing packages, build, train the embedded model, write runs/digits/report.html;
#              an earlier run that has ended is renamed to runs/digits.1, a live one is left alone (exit code 3)
# make demo-video   the same with the video model: runs/clip/report.html shows its clips before and after, animated
# make test    install missing packages, build, run every test
# make check-cuda   build and link the CUDA and NCCL code against CUDA LibTorch (4.6 GB in .deps/cuda-venv);
#                     its tests need a GPU and are skipped without one
# make build-cuda   build and link all programs with CUDA LibTorch, into build/cuda/bin; needs no GPU
# make test-gpu   build the core with CUDA LibTorch; run its tests that need a GPU, and graph_bench
# make rehearse-gpu   run the GPU tests and short runs of all programs on the rehearsal device, which needs no GPU
#                     (tests/rehearsal)
# make gpu-evidence   build and pack, without a GPU, what measures a GPU in eight minutes on a machine that has Python's
#                     torch and no network (tools/gpu_evidence/pack.py)
# make gpu-fleets   build everything with CUDA LibTorch and train short runs on the CPU and on a GPU (tests/gpu/fleets.py)
# make check-observe   check alerts and dashboards with promtool, manifests against published types, and run oxbow
#                     under a live Prometheus; installs what it needs into .deps
# make check-python   test the Python package (python/) with the oldest and the newest packages that it takes
# make check-plans        the plans of papers, each arm in two small steps (tests/run_plans.sh)
# make check-real-sizes   the first hour of a stranger at real picture sizes, with the real programs (tests/real_sizes)
# make check-export-model   test the exporter of graphs (tools/export_model); skipped without diffusers
# make docs   the documentation as a site in build/docs/site, with its links checked; installs mkdocs into .deps/docs
# make chaos   CHAOS_RUNS=200 CHAOS_SEED=1: that many runs, each with kills, stops, a bad network or a full disk;
#              from seed 1000 on with all kinds of faults (tests/chaos/README.md)
# make soak   SOAK_FLAGS="--steps 20000": one long run under the faults of a week on 64 GPUs, against runs without faults
# make same   REV=main: whether this tree trains the same bits as that revision (or build directory), over six configs
# make kills   KILLS=1000: kill -9 of a replay buffer under load, that many times
# make fuzz   FUZZ_SECONDS=60: every fuzz target under libFuzzer and sanitizers for so long, two at a time (tests/fuzz);
#              with FUZZ_SEED=1 the same inputs each time
# make images   container images oxbow/buffer and oxbow/torch (docker/README.md), and the secrets of deploy/compose
# make deploy-test   build the images and run under compose; install and start Docker if needed (root)
# make build | bench | lint | quick-lint | format | clean
PRESET ?= release
BUILD := build/$(PRESET)
JOBS ?= $(shell nproc)
RUN ?= configs/digits.yaml
# INSTALL_FLAGS="--torch-index URL" picks another wheel index; INSTALL=no skips the check altogether.
INSTALL ?= yes
INSTALL_FLAGS ?=

.PHONY: all build train demo-video test test-again check-cuda build-cuda test-gpu gpu-evidence gpu-fleets rehearse-gpu check-observe check-python check-plans check-real-sizes check-export-model docs same chaos soak kills fuzz images deploy-test bench lint quick-lint format clean deps
all: build

deps:
ifeq ($(INSTALL),yes)
	@tools/install_deps.sh $(INSTALL_FLAGS)
endif

$(BUILD)/build.ninja: | deps
	@cmake --preset $(PRESET) $(CMAKE_FLAGS)

build: deps $(BUILD)/build.ninja
	@cmake --build $(BUILD) -j $(JOBS)

train: deps $(BUILD)/build.ninja
	@cmake --build $(BUILD) -j $(JOBS) --target oxbow learner rollout_worker replay_buffer reward_server
	@$(BUILD)/bin/oxbow train $(RUN) --set-aside $(TRAIN_FLAGS)

demo-video: RUN = configs/clip.yaml
demo-video: train

# Tests wait for processes at times: one more than there are cores keeps them busy. CASE='Suite.*' runs those cases alone.
CASE ?=
TEST_JOBS ?= $(shell echo $$(($(JOBS) + 1)))
CTEST = ctest --test-dir $(BUILD) --output-on-failure --no-tests=error --output-junit Testing/tests.xml \
	--test-output-size-passed 200000 --test-output-truncation head
SUMMARY = status=$$?; python3 tools/test_summary.py $(BUILD)/Testing/tests.xml; exit $$status
test: build
ifeq ($(CASE),)
	@$(CTEST) -j $(TEST_JOBS); $(SUMMARY)
else
	@tests/run_cases.sh $(BUILD) '$(CASE)'
endif

# What failed once more, one at a time.
test-again:
	@$(CTEST) --rerun-failed; $(SUMMARY)

# INSTALL_FLAGS is not used here: an index for the CPU wheel does not have the CUDA wheel.
CUDA_INSTALL_FLAGS ?=
# CUDA code, and the sources that use LibTorch internals, which differ between LibTorch versions.
CUDA_TARGETS ?= nccl_ranks_test $(addprefix src/core/CMakeFiles/oxbow_core_torch.dir/model/,cuda_graphs.cc.o fused/fused_layers.cc.o recompute.cc.o)
check-cuda:
ifeq ($(INSTALL),yes)
	@tools/install_deps.sh --cuda $(CUDA_INSTALL_FLAGS)
endif
	@cmake --preset cuda-core $(CMAKE_FLAGS)
	@cmake --build build/cuda-core -j $(JOBS) --target $(CUDA_TARGETS)
	@build/cuda-core/tests/nccl_ranks_test --gtest_brief=1

# What docker/Dockerfile puts into an image.
PROGRAMS = oxbow oxbow_models oxbow_health oxbow_spawn learner rollout_worker replay_buffer reward_server
build-cuda:
ifeq ($(INSTALL),yes)
	@tools/install_deps.sh --cuda $(CUDA_INSTALL_FLAGS)
endif
	@cmake --preset cuda $(CMAKE_FLAGS)
	@cmake --build build/cuda -j $(JOBS) --target $(PROGRAMS)

BENCH_FLAGS ?=
test-gpu:
ifeq ($(INSTALL),yes)
	@tools/install_deps.sh --cuda $(CUDA_INSTALL_FLAGS)
endif
	@cmake --preset cuda-core $(CMAKE_FLAGS)
	@cmake --build build/cuda-core -j $(JOBS) --target gpu_test nccl_ranks_test graph_bench
	@BENCH_FLAGS="$(BENCH_FLAGS)" tests/gpu/run.sh build/cuda-core

EVIDENCE_FLAGS ?=
gpu-evidence:
ifeq ($(INSTALL),yes)
	@tools/install_deps.sh --cuda $(CUDA_INSTALL_FLAGS)
endif
	@cmake --preset cuda -DOXBOW_BUILD_BENCH=ON $(CMAKE_FLAGS)
	@cmake --build build/cuda -j $(JOBS) --target $(PROGRAMS) gpu_test nccl_ranks_test graph_bench decoder_bench
	@tools/gpu_evidence/pack.py build/cuda $(EVIDENCE_FLAGS)

FLEET_FLAGS ?=
gpu-fleets:
ifeq ($(INSTALL),yes)
	@tools/install_deps.sh --cuda $(CUDA_INSTALL_FLAGS)
endif
	@cmake --preset cuda $(CMAKE_FLAGS)
	@cmake --build build/cuda -j $(JOBS) --target $(PROGRAMS)
	@tests/gpu/fleets.py build/cuda $(FLEET_FLAGS)

# An allocation that fails: ten of them, or with REHEARSAL_EVERY=10 every tenth of a run, for hours.
REHEARSAL_FLEETS ?=
# Short runs with late kernels, too.
REHEARSAL_LATE ?= bf16 ranks replay
REHEARSAL_EVERY ?=
rehearse-gpu: deps $(BUILD)/build.ninja
	@cmake --build $(BUILD) -j $(JOBS) --target rehearsal_tests rehearsal
	@$(if $(REHEARSAL_EVERY),OXBOW_FULL_DEVICE_EVERY=$(REHEARSAL_EVERY)) tests/rehearsal/run.sh $(BUILD)
	@tests/rehearsal/full_runs.py $(BUILD) --jobs 2 $(if $(REHEARSAL_EVERY),--every $(REHEARSAL_EVERY))
	@tests/rehearsal/worker_per_gpu.py $(BUILD)
	@tests/rehearsal/lent_base.py $(BUILD)
	@tools/gpu_evidence/pack.py $(BUILD) --out $(BUILD)/evidence --parts bench --rehearsal --folder
	@OXBOW_REHEARSAL_DEVICES=2 .deps/venv/bin/python3 tools/gpu_evidence/run.py $(BUILD)/evidence/pack --out $(BUILD)/evidence \
	  --smoke --only SD3.5-M FLUX Wan decoder
	@tests/gpu/fleets.py $(BUILD) --rehearse --jobs 1 --late $(REHEARSAL_LATE) $(if $(REHEARSAL_FLEETS),--only $(REHEARSAL_FLEETS))

check-observe: deps $(BUILD)/build.ninja
ifeq ($(INSTALL),yes)
	@tools/install_deps.sh --observe
endif
	@cmake --build $(BUILD) -j $(JOBS) --target $(PROGRAMS)
	@tests/observe/check.sh $(BUILD)

check-python:
ifeq ($(INSTALL),yes)
	@tools/install_deps.sh --python
endif
	@tools/check_python.sh $(BUILD)

check-plans: build
	@tests/run_plans.sh $(BUILD)

REAL_SIZES_FLAGS ?=
check-real-sizes: deps $(BUILD)/build.ninja
ifeq ($(INSTALL),yes)
	@tools/install_deps.sh --python
	@tools/install_deps.sh --export
endif
	@cmake --build $(BUILD) -j $(JOBS) --target $(PROGRAMS)
	@.deps/export/bin/python tests/real_sizes/run.py $(BUILD) $(REAL_SIZES_FLAGS)

check-export-model:
	@tools/check_export_model.sh

docs:
ifeq ($(INSTALL),yes)
	@tools/install_deps.sh --docs
endif
	@tools/docs_site.py
	@NO_MKDOCS_2_WARNING=1 .deps/docs/bin/mkdocs build --strict --quiet
	@echo "docs: build/docs/site/README.html"

CHAOS_RUNS ?= 200
CHAOS_SEED ?= 1
CHAOS_FLAGS ?=
chaos: deps $(BUILD)/build.ninja
	@cmake --build $(BUILD) -j $(JOBS) --target chaos
	@$(BUILD)/bin/chaos --runs $(CHAOS_RUNS) --seed $(CHAOS_SEED) $(CHAOS_FLAGS)

SOAK_FLAGS ?=
soak: deps $(BUILD)/build.ninja
	@cmake --build $(BUILD) -j $(JOBS) --target oxbow learner rollout_worker replay_buffer reward_server
	@tests/chaos/soak.py $(BUILD) $(SOAK_FLAGS)

KILLS ?= 1000
kills: deps $(BUILD)/build.ninja
	@cmake --build $(BUILD) -j $(JOBS) --target replay_service_test
	@OXBOW_KILLS=$(KILLS) $(BUILD)/tests/replay_service_test --gtest_filter='*KillDashNineLoses*'

FUZZ_SECONDS ?= 60
same: build
	@tools/same_results.py $(or $(REV),$(error REV: the revision or build directory to compare with)) $(BUILD)
	@for config in digits-op-grpo digits-mixgrpo digits-flux clip; do \
	  echo "$$config"; tools/same_results.py $(REV) $(BUILD) configs/recipes/$$config.yaml || exit 1; done
	@echo "two ranks"; tools/same_results.py $(REV) $(BUILD) configs/recipes/digits-op-grpo.yaml --set learner.ranks=2

fuzz:
ifeq ($(INSTALL),yes)
	@tools/install_deps.sh --fuzz --no-torch
endif
	@cmake --preset fuzz $(CMAKE_FLAGS)
	@cmake --build build/fuzz -j $(JOBS) --target fuzz
	@tests/fuzz/run.sh build/fuzz $(FUZZ_SECONDS) $(FUZZ_SEED)

IMAGES ?=
IMAGE_FLAGS ?=
images:
	@docker/build.sh $(IMAGES) -- $(IMAGE_FLAGS)
	@deploy/compose/make_secrets.sh

DEPLOY_TEST_FLAGS ?=
deploy-test:
	@tests/deploy/deploy_test.py $(DEPLOY_TEST_FLAGS)

bench: build
	@bench/run_all.sh $(BUILD)

lint:
	@tools/install_deps.sh --lint $(INSTALL_FLAGS)
	@tools/lint.sh $(BUILD)

quick-lint:
	@tools/install_deps.sh --lint $(INSTALL_FLAGS)
	@tools/lint.sh --quick

format:
	@git ls-files '*.h' '*.cc' | xargs clang-format -i

clean:
	@rm -rf build
