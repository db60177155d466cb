#!/usr/bin/env bash
# Builds the Python package's wheel and runs its tests with the oldest and the newest packages that it takes; with
# experiment trackers and Ray it runs the tests of followers, notebooks and clusters. Needs tools/install_deps.sh --python. The last line
# sums up: `python: N passed, M failed`.
#
#   tools/check_python.sh [BUILD]    with BUILD/bin/reward_server and BUILD/bin/oxbow, if they are there, the tests
#                                    with the newest packages check that server too, and train with a reward of Python;
#                                    with BUILD/bin/oxbow the Python on the pages of the documentation runs, too
# SPDX-License-Identifier: Apache-2.0
set -uo pipefail
cd "$(dirname "$0")/.."
build=${1:-build/release}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0
part() { # part NAME COMMAND...
  local name=$1
  shift
  if "$@" >"$work/log" 2>&1; then
    echo "ok    $name"; passed=$((passed + 1))
  else
    echo "FAIL  $name"; tail -20 "$work/log"; failed=$((failed + 1))
  fi
}

part "descriptors are those of proto/" tools/python_protocol.py
# A copy, so that building leaves nothing in the checkout, and takes nothing of an earlier one.
cp -r python "$work/python"
rm -rf "$work/python/build" "$work/python"/*.egg-info
for set in oldest newest trackers; do
  [ "$set" != newest ] || export OXBOW_BUILD=$PWD/$build
  tests=()
  [ "$set" != trackers ] || tests=(test_bench_command test_cluster test_follow test_notebook test_run test_trackers)
  python=$PWD/.deps/python-$set/bin/python
  part "wheel with the $set packages" "$python" -m pip wheel -q --disable-pip-version-check --no-index --no-deps \
    --no-build-isolation -w "$work/$set" "$work/python"
  part "installation with the $set packages" "$python" -m pip install -q --disable-pip-version-check --no-index \
    --no-deps --force-reinstall "$work/$set"/oxbow-*.whl
  part "requirements of the package ($set)" "$python" -m pip check --disable-pip-version-check
  "$python" -c 'import google.protobuf, grpc, numpy; print(f"== protobuf {google.protobuf.__version__}, "
    f"grpcio {grpc.__version__}, numpy {numpy.__version__}")'
  (cd "$work" && "$python" "$OLDPWD/python/tests/run.py" "${tests[@]}") 2>"$work/errors" >"$work/tests"
  # gRPC itself writes about handshakes that the tests mean to fail.
  grep -v "ssl_transport_security\|Handshake failed" "$work/errors" | tail -60
  head -n -1 "$work/tests"
  sum=$(sed -n 's/^python: \([0-9]*\) passed, \([0-9]*\) failed$/\1 \2/p' "$work/tests" | tail -1)
  sum=${sum:-0 1}
  passed=$((passed + ${sum% *})) failed=$((failed + ${sum#* }))
done
if [ -x "$build/bin/oxbow" ]; then
  part "Python on the pages of the documentation" env OXBOW_PYTHON="$PWD/.deps/python-newest/bin/python" \
    python3 tests/docs/commands.py "$build" --python
fi
echo "python: $passed passed, $failed failed"
[ "$failed" = 0 ]
