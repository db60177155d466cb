#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the tests of the Python package that is installed. The last line is `python: N passed, M failed`.

    python python/tests/run.py [-v] [NAME...]      NAME: test_service, test_service.BatchingTest, ...
"""
import logging
import sys
import unittest
from pathlib import Path


def main(arguments):
    sys.path.insert(0, str(Path(__file__).parent))
    logging.getLogger("oxbow.reward").setLevel(logging.CRITICAL)  # Refusals are what tests are about.
    names = [one for one in arguments if not one.startswith("-")]
    loader = unittest.defaultTestLoader
    suite = loader.loadTestsFromNames(names) if names else loader.discover(str(Path(__file__).parent))
    result = unittest.TextTestRunner(verbosity=2 if "-v" in arguments else 1).run(suite)
    # A test with several failing subtests is one test.
    failed = len({getattr(test, "test_case", test).id() for test, _ in result.failures + result.errors}
                 | {test.id() for test in result.unexpectedSuccesses})
    passed = result.testsRun - failed - len(result.skipped)
    for test, why in result.skipped:
        print(f"skip  {test}: {why}")
    print(f"python: {passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
