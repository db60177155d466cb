# SPDX-License-Identifier: Apache-2.0
"""Batches join callers up to a limit or a wait; what stays together stays together."""
import random
import unittest

from oxbow.reward.batch_queue import BatchQueue, Budget, Work

HOUR = 3600.0


def work(call, count=1):
    return Work(call, [object()] * count, lambda outcomes: None)


class BatchQueueTest(unittest.TestCase):
    def test_work_of_all_callers_joins_until_the_batch_is_full(self):
        queue = BatchQueue(3, HOUR)
        all_work = [work("a"), work("b"), work("c"), work("d")]
        queue.put(all_work[:2])
        queue.put(all_work[2:])
        self.assertEqual(queue.take(), all_work[:3])  # Without waiting for the hour.
        queue.close()
        self.assertEqual(queue.take(), all_work[3:])
        self.assertEqual(queue.take(), [])

    def test_a_batch_waits_from_its_first_work_on(self):
        now = [100.0]
        queue = BatchQueue(10, 5.0, now=lambda: now[0])
        first, second = work("a"), work("b")
        queue.put([first])
        now[0] += 4
        queue.put([second])
        now[0] += 1
        self.assertEqual(queue.take(), [first, second])

    def test_what_its_caller_gave_up_is_dropped(self):
        queue = BatchQueue(2, 0.0)
        gone, stays = work("a"), work("b")
        queue.put([gone, stays])
        gone.given_up = True
        self.assertEqual(queue.take(), [stays])

    def test_groups_are_never_joined_or_cut(self):
        queue = BatchQueue(100, HOUR, joins=False)
        groups = [work("a", 4), work("b", 3)]
        queue.put(groups)
        self.assertEqual(queue.take(), groups[:1])
        self.assertEqual(queue.take(), groups[1:])

    def test_a_closed_queue_takes_nothing_more(self):
        queue = BatchQueue(1, 0.0)
        queue.close()
        with self.assertRaises(RuntimeError):
            queue.put([work("a")])

    def test_laws_hold_for_random_work(self):
        seed = random.randrange(1 << 30)
        draw = random.Random(seed)
        for _ in range(200):
            limit = draw.randint(1, 9)
            queue = BatchQueue(limit, 0.0)
            put = [work(draw.randint(0, 3), draw.randint(1, 4)) for _ in range(draw.randint(0, 20))]
            for one in put:
                one.given_up = draw.random() < 0.2
            queue.put(put)
            queue.close()
            taken = []
            while batch := queue.take():
                size = sum(len(one.items) for one in batch)
                self.assertTrue(size <= limit or len(batch) == 1, f"seed {seed}")
                taken += batch
            self.assertEqual(taken, [one for one in put if not one.given_up], f"seed {seed}")


class BudgetTest(unittest.TestCase):
    def test_nothing_is_taken_where_there_is_no_room(self):
        budget = Budget(3, 100)
        self.assertTrue(budget.take(2, 60))
        self.assertFalse(budget.take(2, 1))
        self.assertFalse(budget.take(1, 41))
        self.assertEqual((budget.items, budget.bytes), (2, 60))
        self.assertTrue(budget.take(1, 40))
        budget.give_back(3, 100)
        self.assertEqual((budget.items, budget.bytes), (0, 0))


if __name__ == "__main__":
    unittest.main()
