#!/usr/bin/env bash
# Runs every check that needs no test run: layers, house rules, metric names, formatting, clang-tidy on torch-free
# code. Prints one line per check and a summary; exits 1 if any failed. `lint.sh --quick` skips
# clang-tidy, which takes a quarter of an hour and needs a configured build.
# SPDX-License-Identifier: Apache-2.0
set -uo pipefail
cd "$(dirname "$0")/.."
build=${1:-build/release}
passed=0 failed=0
check() {
  local name=$1 output
  shift
  if output=$("$@" 2>&1); then
    echo "ok    $name"; passed=$((passed + 1))
  else
    echo "FAIL  $name"; printf '%s\n' "$output" | tail -40; failed=$((failed + 1))
  fi
}
check "layers" python3 tools/check_layers.py
check "house rules" python3 tools/tidy.py
check "size of the product" python3 tools/size.py
check "size of classes" python3 tools/class_size.py
check "metric names" python3 tools/metric_names.py
check "docs: links and code blocks" python3 tools/check_docs.py
check "promises and their tests" python3 tools/guarantees.py --check
check "keys and their meanings" python3 tools/config_reference.py --check
check "bill of materials" python3 tools/sbom.py --self-test
check "what an image is built from" python3 tools/check_image.py
check "licence lines" python3 tools/spdx.py
formatted() {
  command -v clang-format > /dev/null || { echo "no clang-format: tools/install_deps.sh --lint installs it"; return 1; }
  git ls-files '*.h' '*.cc' | xargs clang-format --dry-run -Werror
}
check "format" formatted
[ "$build" = --quick ] || check "clang-tidy" python3 tools/run_clang_tidy.py "$build"
echo "lint: $passed passed, $failed failed"
[ "$failed" = 0 ]
