#!/usr/bin/env bash
# tests/gpu/run.sh BUILD: runs the tests of a core build with CUDA LibTorch that need a GPU, and
# graph_bench with SD3.5-M. The last line is a summary.
#   BENCH_FLAGS="--peak-tflops 989 --rows 18"   flags of graph_bench, for the MFU of this GPU and other sizes
# SPDX-License-Identifier: Apache-2.0
set -uo pipefail
cd "$(dirname "$0")/../.."
build=${1:?the build directory}
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE OXBOW_MODEL_GOLDENS="$PWD/tests/golden/models"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
passed=0 failed=0 skipped=0
count() { sed -n "$1" "$log" | tail -1 | grep . || echo 0; }

for name in gpu_test nccl_ranks_test; do
  binary=$build/tests/$name
  timeout 1200 "$binary" --gtest_brief=1 >"$log" 2>&1
  status=$?
  good=$(count 's/^\[  PASSED  \] \([0-9]*\) test.*/\1/p')
  bad=$(count 's/^ *\([0-9]*\) FAILED TESTS\{0,1\}$/\1/p')
  left=$(count 's/^\[  SKIPPED \] \([0-9]*\) test.*/\1/p')
  [ "$status" = 0 ] || [ "$bad" != 0 ] || bad=1  # The process died.
  printf '%-26s %4d passed %4d failed %4d skipped\n' "$name" "$good" "$bad" "$left"
  grep -A1 -E ': Skipped$' "$log" | grep -vE ': Skipped$|^--$' | sort | uniq -c | sed 's/^/    skipped/'
  [ "$bad" = 0 ] || tail -40 "$log"
  passed=$((passed + good)) failed=$((failed + bad)) skipped=$((skipped + left))
done

# shellcheck disable=SC2086
"$build/bin/graph_bench" models/graphs/SD3Transformer2DModel-sd3.5-medium.json.gz --device cuda --compute bf16 \
  --repeat 10 ${BENCH_FLAGS:-} 2>&1
case $? in
  0) bench=measured ;;
  3) bench="skipped, no GPU" ;;
  *) bench=failed failed=$((failed + 1)) ;;
esac

echo "test-gpu: $passed passed, $failed failed, $skipped skipped; graph_bench $bench"
[ "$failed" = 0 ]
