#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes rules/prometheus-rule.yaml, the PrometheusRule for Kubernetes, from rules/oxbow.rules.yml.

--check: exits 1 if the file is not up to date.
"""
import sys
from pathlib import Path

RULES = Path(__file__).resolve().parent / "rules"
HEAD = """\
# Made by deploy/prometheus/make_prometheus_rule.py from oxbow.rules.yml.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: oxbow
  labels: {app.kubernetes.io/part-of: oxbow}
spec:
"""


def main():
    lines = (RULES / "oxbow.rules.yml").read_text().splitlines()
    groups = lines[lines.index("groups:"):]
    text = HEAD + "".join(f"  {line}\n" if line else "\n" for line in groups)
    target = RULES / "prometheus-rule.yaml"
    if "--check" not in sys.argv[1:]:
        target.write_text(text)
    elif not target.is_file() or target.read_text() != text:
        print("rules/prometheus-rule.yaml is stale: run deploy/prometheus/make_prometheus_rule.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
