#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tests/run_cases.sh BUILD FILTER: runs the cases of GoogleTest that match, in each test program that has their suite.
set -uo pipefail
programs=${1:?the build directory}/tests filter=${2:?Suite.Case, with * for any text}
# The longest piece of the suite's name without a wildcard: what a program must have in it to be asked.
suite=$(tr '*/?' '\n' <<<"${filter%%.*}" | awk 'length > length(best) { best = $0 } END { print best }')
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE
ran=0 failed=0
for program in $(grep -l --binary-files=text -- "$suite" "$programs"/*_test); do
  listed=$("$program" --gtest_list_tests --gtest_filter="$filter" | grep -c '^  ') || continue
  ran=$((ran + listed))
  "$program" --gtest_filter="$filter" || failed=$((failed + 1))
done
[ "$ran" != 0 ] || { echo "no test is called $filter" >&2; exit 1; }
[ "$failed" = 0 ]
