# SPDX-License-Identifier: Apache-2.0
"""The arguments of @reward, and the description that it makes."""
import tempfile
import unittest
from pathlib import Path

from oxbow.reward import fingerprint, reward
from oxbow.reward.status import SetupError


class DefinitionTest(unittest.TestCase):
    def test_mistakes_are_one_line(self):
        for arguments in ({"name": "a b"}, {"name": ""}, {"name": "x" * 81}, {"range": (1, 1)},
                          {"range": (0, float("inf"))}, {"range": (float("nan"), 1)}, {"media": ("audio",)},
                          {"media": ()}, {"batch_max": -1}, {"wait_ms": -1}):
            with self.subTest(arguments), self.assertRaises(SetupError) as raised:
                reward(**{"name": "x", "range": (0, 1), **arguments})(len)
            self.assertNotIn("\n", str(raised.exception))

    def test_a_class_needs_score(self):
        with self.assertRaisesRegex(SetupError, "no method score"):
            reward("x", range=(0, 1))(type("Empty", (), {}))

    def test_help_is_the_first_line_of_the_docstring(self):
        def one(items):
            """First.

            Second.
            """

        self.assertEqual(reward("x", range=(0, 1))(one).help, "First.")
        self.assertEqual(reward("x", range=(0, 1), help="Mine.")(one).help, "Mine.")

    def test_the_identity_of_a_function_follows_its_source(self):
        def one(items):
            return [1.0 for _ in items]

        def other(items):
            return [2.0 for _ in items]

        first, second = (reward("x", range=(0, 1))(f).identity for f in (one, other))
        self.assertEqual(first, reward("y", range=(0, 1))(one).identity)
        self.assertNotEqual(first, second)
        self.assertEqual(reward("x", range=(0, 1), identity="mine")(one).identity, "mine")

    def test_a_class_says_its_identity_when_it_is_loaded(self):
        class Model:
            def load(self):
                self.identity = "weights-7"

            def score(self, items):
                return []

        made = reward("x", range=(0, 1))(Model)
        self.assertEqual(made.identity, "")
        made.load()
        self.assertEqual(made.identity, "weights-7")

    def test_a_fingerprint_tells_contents_and_borders_apart(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "weights")
            file.write_bytes(b"abc")
            self.assertEqual(fingerprint(file), fingerprint(b"abc"))
            before = fingerprint(file, "v1")
            file.write_bytes(b"abd")
            self.assertNotEqual(before, fingerprint(file, "v1"))
        self.assertNotEqual(fingerprint("ab", "c"), fingerprint("a", "bc"))


if __name__ == "__main__":
    unittest.main()
