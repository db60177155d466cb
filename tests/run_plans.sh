#!/usr/bin/env bash
# tests/run_plans.sh BUILD [NAME...]: runs the published plans in small, two steps of each arm. The last line is a summary.
# SPDX-License-Identifier: Apache-2.0
set -uo pipefail
cd "$(dirname "$0")/.."
oxbow=${1:?the build directory}/bin/oxbow
shift
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
passed=0 failed=0
for plan in configs/bench/published/*.yaml; do
  name=$(basename "$plan" .yaml)
  [[ $# = 0 || " $* " = *" $name "* ]] || continue
  if timeout 600 "$oxbow" reproduce "$plan" --tiny --out "$out/$name" >"$out/log" 2>&1 && [ -s "$out/$name/reproduced.html" ]; then
    passed=$((passed + 1))
    echo "ok    $name"
  else
    failed=$((failed + 1))
    echo "FAIL  $name"
    tail -20 "$out/log"
  fi
done
echo "plans: $passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
