#!/usr/bin/env bash
# tests/rehearsal/run.sh BUILD: runs the tests of the rehearsal device and the GPU tests on it. The last line is a summary.
# SPDX-License-Identifier: Apache-2.0
set -uo pipefail
cd "$(dirname "$0")/../.."
programs=${1:?the build directory}/rehearsal/tests
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE OXBOW_REHEARSAL_DEVICES=2 OXBOW_MODEL_GOLDENS="$PWD/tests/golden/models"
passed=0 failed=0
for name in device_test lent_base_test defects_test full_device_test gpu_test_rehearsed nccl_ranks_test_rehearsed; do
  echo "== $name"
  if timeout 600 "$programs/$name" --gtest_brief=1; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
done
echo "== gpu_test_rehearsed, late"
if OXBOW_REHEARSAL_MODE=late timeout 600 "$programs/gpu_test_rehearsed" --gtest_brief=1; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
echo "== dry_run"
if timeout 900 "$programs/dry_run" --check tests/rehearsal/device_budgets.md; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
echo "rehearsal: $passed passed, $failed failed"
[ "$failed" = 0 ]
