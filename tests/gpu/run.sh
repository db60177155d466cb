#!/usr/bin/env bash
# tests/gpu/run.sh BUILD: runs every test of a core build with CUDA LibTorch, including those that
# need a GPU, and sd35m_bench. One process per binary, because each loads gigabytes of libraries.
# The last line is a summary.
#   BENCH_FLAGS="--peak-tflops 989 --rows 16"   flags of sd35m_bench, for the MFU of this GPU and other sizes
# SPDX-License-Identifier: Apache-2.0
set -uo pipefail
cd "$(dirname "$0")/../.."
build=${1:?the build directory}
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE OXBOW_MODEL_GOLDENS="$PWD/tests/golden/models"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
passed=0 failed=0 skipped=0
count() { sed -n "$1" "$log" | tail -1 | grep . || echo 0; }

for binary in "$build"/tests/*_test; do
  name=$(basename "$binary")
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

for compute in f32 bf16; do
  # shellcheck disable=SC2086
  "$build/bin/sd35m_bench" --device cuda --compute "$compute" ${BENCH_FLAGS:-} 2>&1
  case $? in
    0) bench=measured ;;
    3) bench="skipped, no GPU"; break ;;
    *) bench=failed failed=$((failed + 1)) ;;
  esac
done

echo "test-gpu: $passed passed, $failed failed, $skipped skipped; sd35m_bench $bench"
[ "$failed" = 0 ]
