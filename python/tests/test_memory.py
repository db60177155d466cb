# SPDX-License-Identifier: Apache-2.0
"""Limits of memory of control groups, versions 1 and 2."""
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from oxbow.reward import memory
from oxbow.reward.assembly import Limits


# Promise: A server of Python cannot be locked.
class MemoryTest(unittest.TestCase):
    def test_the_least_limit_of_the_groups_counts(self):
        with tempfile.TemporaryDirectory() as folder:
            root, machine = Path(folder), memory.usable("")

            def write(name, text):
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text, encoding="utf-8")

            self.assertGreater(machine, 1 << 26)
            write("pod/worker/memory.max", "max\n")
            self.assertEqual(memory.usable("0::/pod/worker\n", root), machine)
            write("pod/memory.max", "9000\n")
            self.assertEqual(memory.usable("0::/pod/worker\n", root), 9000)
            write("memory/memory.limit_in_bytes", "8000\n")
            self.assertEqual(memory.usable("4:memory:/docker/ab\n1:cpu:/docker/ab\n", root), 8000)
            write("memory/docker/ab/memory.limit_in_bytes", "9223372036854771712\n")
            self.assertEqual(memory.usable("4:memory:/docker/ab\n", root), 8000)

    def test_what_waits_takes_a_share_of_it(self):
        with mock.patch("oxbow.reward.memory.usable", lambda: 1 << 30):
            self.assertEqual(Limits().bytes_waiting_max, int(0.3 * (1 << 30)))
        with mock.patch("oxbow.reward.memory.usable", lambda: 1 << 40):
            self.assertEqual(Limits().bytes_waiting_max, 1 << 30)


if __name__ == "__main__":
    unittest.main()
