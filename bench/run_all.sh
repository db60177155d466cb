#!/usr/bin/env bash
# Runs the benchmarks that need only a build: bench/run_all.sh BUILD. They give the figures of
# docs/lab.
# Not run here: oxbow bench learning configs/bench/*.yaml, graph_bench, decoder_bench, bench/reward_bench.py, and
# tools/bench_diffusers.py, which runs transformer_bench.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build/release}
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE MKL_NUM_THREADS=1
for binary in core_bench model_bench replay_bench; do
  echo "== $binary"
  "$build/bin/$binary" --benchmark_repetitions=5 --benchmark_report_aggregates_only=true
done
echo "== weight_fanout_bench"
"$build/bin/weight_fanout_bench"
"$build/bin/weight_fanout_bench" --line-mb-s 100
echo "== coordinator_bench"
"$build/bin/coordinator_bench"
for what in learning clipping overhead memory ranks; do
  echo "== $what"
  python3 bench/measure_training.py "$build" "$what"
done
