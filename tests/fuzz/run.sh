#!/usr/bin/env bash
# Runs every fuzz target of a build for some seconds, two at a time, from the inputs in corpus/.
#
#   tests/fuzz/run.sh BUILD_DIRECTORY SECONDS [SEED]
#
# Without a seed each run tries other inputs. A target without threads tries the same ones with the same seed.
# Inputs that crash a target go to BUILD_DIRECTORY/found. The last line sums up.
# SPDX-License-Identifier: Apache-2.0
# Promise: Foreign bytes crash no process. Any bytes as a message, a sequence of calls, a file or a
# setting are taken or refused with an error; what is taken is within its limits. Each parser, file
# format and service has a fuzz target (tests/fuzz/README.md), which runs under sanitizers in CI.
# gRPC, protobuf, libpng and RocksDB themselves are not instrumented. A worker trusts its learner.
set -uo pipefail
build=$(realpath "$1") seconds=$2 seed=${3:-0}
corpus=$(realpath "$(dirname "$0")/corpus")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$build/found"

one() { # one TARGET: a line that says how it went
  local name=$1 log=$work/$1.log flags=()
  # Threads of a service hold memory for the next call: the check for leaks would stop at every input.
  case $name in *_calls) flags=(-detect_leaks=0) ;; esac
  mkdir -p "$work/$name"
  if "$build/tests/${name}_fuzz" "$work/$name" "$corpus/$name" -seed="$seed" -max_total_time="$seconds" -max_len=4096 \
    -timeout=25 -rss_limit_mb=2560 -print_final_stats=1 -artifact_prefix="$build/found/$name-" "${flags[@]}" \
    >"$log" 2>&1; then
    echo "ok    $name: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") executions"
  else
    grep -a -E "check failed|runtime error|ERROR|SUMMARY|Test unit written" "$log" | head -5
    echo "FAIL  $name: repeat it with ${build#"$PWD"/}/tests/${name}_fuzz FILE, which is in ${build#"$PWD"/}/found"
  fi
}
export -f one
export build seconds seed corpus work

find "$build/tests" -maxdepth 1 -name '*_fuzz' -printf '%f\n' | sed 's/_fuzz$//' | sort |
  xargs -P 2 -I NAME bash -c 'one NAME' | tee "$work/lines"
echo "fuzz: $(grep -c '^ok ' "$work/lines") passed, $(grep -c '^FAIL ' "$work/lines") failed"
[ -s "$work/lines" ] && ! grep -q '^FAIL ' "$work/lines"
