# SPDX-License-Identifier: Apache-2.0
"""Requests in pieces come together whole, within a budget, or not at all."""
import random
import unittest

from servers import wire

from oxbow.reward.assembly import Limits, begin
from oxbow.reward.batch_queue import Budget
from oxbow.reward.status import StatusError

LIMITS = Limits(batch_max=4, item_bytes_max=1000, items_waiting_max=6, bytes_waiting_max=3000)


def request(*items):
    return wire.ScoreRequest(items=[wire.ScoreItem(item=number, image=image) for number, image in items])


def image(pixels, size=0, side=10):
    return wire.Image(width=side, height=1, channels=1, pixels=pixels, pixels_size=size)


# Promise: A reward of your own breaks nothing else.
class AssemblyTest(unittest.TestCase):
    def setUp(self):
        self.budget = Budget(LIMITS.items_waiting_max, LIMITS.bytes_waiting_max)

    def begin(self, *items):
        return begin(request(*items), LIMITS, self.budget)

    def test_pieces_of_any_sizes_come_together(self):
        seed = random.randrange(1 << 30)
        draw = random.Random(seed)
        for _ in range(100):
            media = {number: bytes(draw.randrange(256) for _ in range(10)) for number in range(3)}
            cuts = {number: draw.randint(1, 10) for number in media}
            batch = self.begin(*((number, image(data[:cuts[number]], 10)) for number, data in media.items()))
            while not batch.whole:
                number = draw.choice([one.item for one in batch.media if one.missing])
                end = draw.randint(cuts[number] + 1, 10)
                batch.add(request((number, wire.Image(pixels=media[number][cuts[number]:end]))))
                cuts[number] = end
            self.assertEqual([one.pixels for one in batch.media], list(media.values()), f"seed {seed}")
            batch.release()
        self.assertEqual((self.budget.items, self.budget.bytes), (0, 0))

    def test_pieces_that_do_not_fit_end_the_call(self):
        batch = self.begin((1, image(b"12345", 10)), (2, image(b"1234567890")))
        for number, pixels in ((1, b"678901"), (1, b""), (2, b"1"), (3, b"67890")):
            with self.subTest((number, pixels)), self.assertRaises(StatusError):
                batch.add(request((number, wire.Image(pixels=pixels))))

    def test_two_items_of_one_number_cannot_both_be_in_pieces(self):
        with self.assertRaisesRegex(StatusError, "one number"):
            self.begin((1, image(b"12345", 10)), (1, image(b"12345", 10)))

    def test_declared_sizes_are_refused_before_any_piece_is_read(self):
        for items in ([(1, image(b"", 1001))], [(number, image(b"0123456789")) for number in range(5)]):
            with self.assertRaises(StatusError) as raised:
                self.begin(*items)
            self.assertEqual(raised.exception.code.name, "INVALID_ARGUMENT")
        self.assertEqual((self.budget.items, self.budget.bytes), (0, 0))

    def test_what_has_no_room_is_refused_as_busy_and_room_comes_back(self):
        held = self.begin(*((number, image(b"0123456789")) for number in range(4)))
        three = [(number, image(b"0123456789")) for number in range(3)]
        with self.assertRaises(StatusError) as raised:
            self.begin(*three)
        self.assertEqual(raised.exception.code.name, "RESOURCE_EXHAUSTED")
        self.assertEqual(raised.exception.trailing, (("retry-after-ms", "100"),))
        held.since -= 4
        held.release()
        held.release()
        self.assertAlmostEqual(self.budget.pause, 4, delta=1)
        self.assertEqual(self.budget.items, 0)
        self.begin(*three)

    def test_a_file_takes_room_for_its_pixels_too(self):
        png = wire.Image(width=10, height=10, channels=3, pixels=b"x" * 50, encoding="png")
        self.begin((1, png))
        self.assertEqual(self.budget.bytes, 350)

    def test_a_picture_of_a_wrong_size_is_refused_alone(self):
        batch = self.begin((1, image(b"0123456789")), (2, image(b"0123456789", side=9000)), (3, image(b"123", 2)))
        self.assertEqual([one.refusal is None for one in batch.media], [True, False, False])
        self.assertTrue(batch.whole)


if __name__ == "__main__":
    unittest.main()
