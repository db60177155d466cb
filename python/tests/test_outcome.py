# SPDX-License-Identifier: Apache-2.0
"""The answer of a reward becomes a finite number or a status, and nothing else."""
import unittest

import numpy as np

from oxbow.reward import Failed, Item, Score, reward
from oxbow.reward.outcome import outcome_of, outcomes

INVALID_ARGUMENT, INTERNAL = 3, 13
ITEMS = [Item(np.zeros((1, 2, 2, 3), np.uint8))] * 3


# Promise: A reward of your own breaks nothing else. A reward in Python that raises, exits, returns
# NaN, too few scores or no numbers costs its items their score: an error status each, never a
# number. Items of other calls that were in the same batch are scored again without them. Sizes are
# checked before memory is taken, and what waits has a limit.
class OutcomeTest(unittest.TestCase):
    def test_numbers_of_all_kinds_are_values(self):
        for one in (0.5, 1, True, np.float32(0.5), np.int64(-3), np.array(2.0), np.bool_(True)):
            self.assertEqual((outcome_of(one).code, outcome_of(one).value), (0, float(one)), one)

    def test_what_is_no_finite_number_is_an_error_and_has_no_value(self):
        for one in (float("nan"), float("inf"), -np.inf, None, "0.5", b"1", [1.0, 2.0], {}, object(),
                    np.array([1.0, 2.0]), 1j, Score(float("nan")), Score(None)):
            self.assertEqual((outcome_of(one).code, outcome_of(one).value), (INTERNAL, 0), repr(one))

    def test_a_score_carries_its_note(self):
        self.assertEqual(outcome_of(Score(0.25, note="read: 473")).note, "read: 473")

    def test_an_exception_in_an_items_place_is_its_status_alone(self):
        made = outcomes("x", lambda items: [1.0, Failed("no\n text"), KeyError("a")], ITEMS)
        self.assertEqual([one.code for one in made], [0, INVALID_ARGUMENT, INTERNAL])
        self.assertEqual([one.message for one in made], ["", "x: no text", "x: KeyError: 'a'"])

    def test_what_is_raised_is_the_status_of_every_item(self):
        def raises(error):
            def score(items):
                raise error
            return score

        for error, code in ((ValueError("why"), INTERNAL), (Failed("why"), INVALID_ARGUMENT),
                            (SystemExit(1), INTERNAL)):
            self.assertEqual([one.code for one in outcomes("x", raises(error), ITEMS)], [code] * 3)

    def test_a_list_of_the_wrong_length_scores_nothing(self):
        for wrong in ([], [1.0, 2.0], [1.0] * 4):
            made = outcomes("x", lambda items, wrong=wrong: wrong, ITEMS)
            self.assertEqual([one.code for one in made], [INTERNAL] * 3)
            self.assertEqual(made[0].message, f"x: {len(wrong)} scores returned for 3 items")

    def test_what_is_no_list_at_all_scores_nothing(self):
        for wrong in (None, 1.0):
            made = outcomes("x", lambda items, wrong=wrong: wrong, ITEMS)
            self.assertEqual([one.code for one in made], [INTERNAL] * 3)

    def test_arrays_and_generators_are_lists(self):
        self.assertEqual([one.value for one in outcomes("x", lambda items: np.arange(3), ITEMS)], [0, 1, 2])
        self.assertEqual([one.value for one in outcomes("x", lambda items: (7 for _ in items), ITEMS)], [7] * 3)

    def test_a_reward_can_be_called_as_the_function_that_it_is(self):
        one = reward("x", range=(0, 1))(lambda items: [1.0 for _ in items])
        self.assertEqual(one(ITEMS), [1.0] * 3)


if __name__ == "__main__":
    unittest.main()
