#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sums up what ctest ran, by the cases of GoogleTest: tools/test_summary.py JUNIT_FILE

Names every case that was skipped, with its reason. The last line is "test: 2690 passed, 1 failed, 11 skipped".
A program that ended without GoogleTest's sum counts as one case that failed.
"""
import re
import sys
import xml.etree.ElementTree as ElementTree

SUM = re.compile(r"\[  (PASSED|FAILED|SKIPPED)[ ]*\] (\d+) tests?[.,]")
SKIPPED = re.compile(r"^\S+:\d+: Skipped\n(.*)", re.MULTILINE)


def cases(test):
    """(passed, failed, skipped, reasons) of one test of ctest."""
    output = test.findtext("system-out") or ""
    reasons = [reason.strip() for reason in SKIPPED.findall(output)]
    counts = {kind: int(count) for kind, count in SUM.findall(output)}
    status = test.get("status")
    if not counts:
        # Another program than GoogleTest's, one that crashed, or one that ctest did not run.
        return status == "run", status == "fail", status not in ("run", "fail"), reasons
    failed = counts.get("FAILED", 0)
    if status == "fail" and not failed:
        failed = 1  # The process broke after its cases.
    return counts.get("PASSED", 0), failed, counts.get("SKIPPED", 0), reasons


def main():
    passed = failed = skipped = 0
    for test in ElementTree.parse(sys.argv[1]).getroot().iter("testcase"):
        of_test = cases(test)
        passed, failed, skipped = passed + of_test[0], failed + of_test[1], skipped + of_test[2]
        if of_test[2]:
            why = sorted(set(of_test[3])) or ["no reason was given"]
            print(f"skip  {test.get('name')}: {of_test[2]} cases: {'; '.join(why)}")
    print(f"test: {passed} passed, {failed} failed, {skipped} skipped")


if __name__ == "__main__":
    main()
