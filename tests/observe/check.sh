#!/usr/bin/env bash
# Tests Prometheus, Grafana and Kubernetes: alerts, dashboards, manifests, and a live run under all
# of them.
#
#   tests/observe/check.sh [BUILD]      build/release; needs tools/install_deps.sh --observe and the binaries
#
# Prints one line per check and a summary; exits 1 if any check failed. About a minute on a quiet
# machine.
# SPDX-License-Identifier: Apache-2.0
# Promise: Dashboards, alerts and pages match the metrics. Every panel's query finds data in a run,
# or `known_empty.yml` says why not. Every alert evaluates, fires in one case of its own, is silent
# in another, and has a page. `exported_metrics.h` lists the metrics that are there, no more and
# no fewer.
# Promise: Manifests match the binaries. Every flag in `deploy/` is a flag of the binary, and every
# address is in the rendering. Each GPU that a pod asks for has a rank or a worker, and shared
# memory; the pod of a whole run has the memory of its plan. The rendered pods, run as processes of
# one machine, train, answer probes and drain, and the pod of a whole run goes on when it is started
# again. It is not promised that a cluster takes them: no cluster was there.
set -uo pipefail
cd "$(dirname "$0")/../.."
bin=${1:-build/release}/bin
prometheus=$PWD/.deps/prometheus/usr/bin
python=$PWD/.deps/observe/bin/python
kubectl=$PWD/.deps/observe/bin/kubectl
passed=0 failed=0
check() {
  local name=$1 output
  shift
  if output=$("$@" 2>&1); then
    echo "ok    $name: $(printf '%s\n' "$output" | sed '/^ *$/d' | tail -1 | sed 's/^ *//')"; passed=$((passed + 1))
  else
    echo "FAIL  $name"; printf '%s\n' "$output" | tail -40; failed=$((failed + 1))
  fi
}
generated() {
  "$python" deploy/grafana/make_dashboards.py --check && "$python" deploy/prometheus/make_prometheus_rule.py --check &&
    echo "dashboards and PrometheusRule are what their sources say"
}
check "promtool check rules" "$prometheus/promtool" check rules deploy/prometheus/rules/oxbow.rules.yml
check "promtool test rules" "$python" deploy/prometheus/test_rules.py --promtool "$prometheus/promtool"
check "promtool check config" "$prometheus/promtool" check config deploy/prometheus/prometheus.yml
check "generated files" generated
check "dashboards" "$python" tests/observe/check_dashboards.py
check "types of Grafana and Kubernetes" "$python" tests/observe/check_types.py --node .deps/observe-node --kubectl "$kubectl"
check "manifests" "$python" tests/observe/check_manifests.py --bin "$bin" --kubectl "$kubectl"
check "pods as processes" "$python" tests/observe/pods_check.py --bin "$bin" --kubectl "$kubectl" digits-cpu jobset-hpa statefulset-tls node
check "live run of the default recipe" "$python" tests/observe/live_check.py --run configs/digits.yaml --bin "$bin" --prometheus "$prometheus"
check "live run without ratios and replay" "$python" tests/observe/live_check.py --run configs/recipes/digits-nft.yaml --bin "$bin" --prometheus "$prometheus"
check "live run" "$python" tests/observe/live_check.py --bin "$bin" --prometheus "$prometheus"
echo "observe: $passed passed, $failed failed"
[ "$failed" = 0 ]
