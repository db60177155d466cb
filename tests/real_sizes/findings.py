# SPDX-License-Identifier: Apache-2.0
"""The findings: a line of `ok` or `FAIL` for each thing that a person would notice."""
import contextlib
import sys
import threading
import time


class Findings:
    def __init__(self):
        self.passed = self.failed = 0
        self._lock, self._start = threading.Lock(), time.monotonic()

    @contextlib.contextmanager
    def see(self, what):
        """A claim that the block asserts. It fails by any error; the walk goes on."""
        try:
            yield
        except Exception as error:  # pylint: disable=broad-except
            self._say(False, what, str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}")
        else:
            self._say(True, what, "")

    def _say(self, good, what, why):
        with self._lock:
            self.passed += good
            self.failed += not good
            at = f"{time.monotonic() - self._start:4.0f} s"
            print(f"{'ok  ' if good else 'FAIL'}  {at}  {what}", flush=True)
            for line in why.splitlines()[:12]:
                print(f"            {line[:300]}", flush=True)

    def sum(self):
        print(f"real: {self.passed} passed, {self.failed} failed")
        sys.stdout.flush()
        return self.passed > 0 and self.failed == 0


def within(number, low, high, what):
    assert low <= number <= high, f"{what}: {number}, expected {low} to {high}"


def says(text, *parts):
    """Each part stands in the text, whatever the case; a tuple: one of them does."""
    low = text.lower()
    for part in parts:
        choices = part if isinstance(part, tuple) else (part,)
        assert any(one.lower() in low for one in choices), f"it does not say {' or '.join(choices)!r}:\n{text}"
