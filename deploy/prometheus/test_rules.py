#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs `promtool test rules` on the cases of alert_cases.yml.

promtool needs every label and annotation of an expected alert; the constant ones are taken from the rules, so that a
case contains only the others. Also fails if an alert has no case in which it fires, no case in which it is silent, or no
page in docs/runbooks.

  test_rules.py [--promtool PATH] [--keep FILE]    FILE: receives the cases in promtool's form
"""
import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
RULES = HERE / "rules" / "oxbow.rules.yml"


def alerts():
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def expected(rule, fired):
    return {
        "exp_labels": {**rule["labels"], **fired["labels"]},
        "exp_annotations": {**rule["annotations"], "summary": fired["summary"]},
    }


def promtool_tests(rules, cases):
    """Tests every alert at every moment: only the expected ones may fire."""
    for case in cases:
        yield {
            "name": case["name"],
            "interval": "1m",
            "input_series": case["input_series"],
            "alert_rule_test": [
                {
                    "eval_time": moment["at"],
                    "alertname": name,
                    "exp_alerts": [expected(rule, fired) for fired in moment["firing"]
                                   if fired["alert"] == name],
                }
                for moment in case["expect"] for name, rule in rules.items()
            ],
        }


def missing_cases(rules, cases):
    for name in rules:
        firing = [case for case in cases if case["name"].startswith(f"{name} fires")]
        silent = [case for case in cases if case["name"].startswith(f"{name} is silent: ")]
        if not any(fired["alert"] == name for case in firing for moment in case["expect"]
                   for fired in moment["firing"]):
            yield f"{name}: no case in which it fires"
        if not silent or any(moment["firing"] for case in silent for moment in case["expect"]):
            yield f"{name}: no case in which it is silent"


def missing_pages(rules):
    named = set()
    for name, rule in rules.items():
        for wanted in ("summary", "description", "runbook_url"):
            if not rule["annotations"].get(wanted):
                yield f"{name}: no {wanted}"
        if rule["labels"].get("severity") not in ("warning", "critical"):
            yield f"{name}: severity is neither warning nor critical"
        page = ROOT / rule["annotations"].get("runbook_url", "")
        named.add(page)
        if not page.is_file() or not page.read_text().startswith(f"# {name}\n"):
            yield f"{name}: no page of that title: {page.relative_to(ROOT)}"
    for page in (ROOT / "docs" / "runbooks").glob("*.md"):
        if page not in named and page.name != "README.md":
            yield f"{page.relative_to(ROOT)}: no alert leads here"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--promtool", default="promtool")
    parser.add_argument("--keep", type=Path)
    arguments = parser.parse_args()
    rules = alerts()
    cases = yaml.safe_load((HERE / "alert_cases.yml").read_text())
    problems = [*missing_cases(rules, cases), *missing_pages(rules)]
    tests = {"rule_files": [str(RULES)], "evaluation_interval": "1m",
             "tests": list(promtool_tests(rules, cases))}
    with tempfile.TemporaryDirectory() as scratch:
        file = arguments.keep or Path(scratch) / "oxbow.rules_test.yml"
        file.write_text(yaml.safe_dump(tests, sort_keys=False, width=110))
        done = subprocess.run([arguments.promtool, "test", "rules", str(file)],
                              capture_output=True, text=True, check=False)
    if done.returncode != 0:
        problems.append((done.stdout + done.stderr).strip())
    for problem in problems:
        print(problem, file=sys.stderr)
    if problems:
        return 1
    print(f"{len(rules)} alerts, {len(cases)} cases: promtool agrees")
    return 0


if __name__ == "__main__":
    sys.exit(main())
