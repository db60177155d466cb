# SPDX-License-Identifier: Apache-2.0
"""The items that a reward gets."""
import unittest

import numpy as np

from oxbow.reward import Item, reward
from oxbow.reward.rules import metadata_of, refusals
from oxbow.reward.status import StatusError, invalid

PICTURE = Item(np.zeros((1, 2, 2, 3), np.uint8), metadata={"tag": 1})
CLIP = Item(np.zeros((5, 2, 2, 3), np.uint8))
BROKEN = invalid("no pixels")
INVALID_ARGUMENT, FAILED_PRECONDITION = 3, 9


def codes(items, complete=False, batch_max=4, **arguments):
    one = reward("x", range=(0, 1), **arguments)(len)
    return [why and why.code for why in refusals(one, batch_max, complete, items)]


class RulesTest(unittest.TestCase):
    def test_a_broken_item_is_refused_alone(self):
        self.assertEqual(codes([PICTURE, BROKEN, PICTURE]), [None, INVALID_ARGUMENT, None])

    def test_media_are_what_the_reward_takes(self):
        self.assertEqual(codes([PICTURE, CLIP]), [None, None])
        self.assertEqual(codes([PICTURE, CLIP], complete=True, groupwise=True), [FAILED_PRECONDITION, INVALID_ARGUMENT])
        self.assertEqual(codes([PICTURE, CLIP], media=["video"]), [INVALID_ARGUMENT, None])
        self.assertEqual(codes([PICTURE, CLIP], media=["video", "image"]), [None, None])

    def test_a_clip_must_have_the_frames_that_are_read(self):
        every_second = Item(np.zeros((3, 2, 2, 3), np.uint8), frames_every=2)
        one_of_many = Item(np.zeros((1, 2, 2, 3), np.uint8), frames_every=4)
        clips = [CLIP, every_second, one_of_many]
        for media in (["image"], ["video"]):
            self.assertEqual(codes(clips, media=media), [None, INVALID_ARGUMENT, INVALID_ARGUMENT])
            self.assertEqual(codes(clips, media=media, frames_every=4), [None, None, None])
            self.assertEqual(codes(clips, media=media, frames_every=2), [None, None, INVALID_ARGUMENT])

    def test_metadata_that_is_needed_must_be_there(self):
        self.assertEqual(codes([PICTURE], metadata_keys=["tag"]), [None])
        self.assertEqual(codes([PICTURE], metadata_keys=["tag", "include"]), [INVALID_ARGUMENT])

    def test_a_groupwise_reward_gets_a_whole_group_or_nothing(self):
        group = {"groupwise": True}
        self.assertEqual(codes([PICTURE] * 3, complete=True, **group), [None] * 3)
        self.assertEqual(codes([PICTURE] * 3, complete=False, **group), [INVALID_ARGUMENT] * 3)
        self.assertEqual(codes([PICTURE] * 5, complete=True, **group), [INVALID_ARGUMENT] * 5)
        self.assertEqual(codes([PICTURE, BROKEN], complete=True, **group), [FAILED_PRECONDITION, INVALID_ARGUMENT])
        self.assertEqual(codes([], complete=False, **group), [])

    def test_metadata_is_a_json_object(self):
        self.assertEqual(metadata_of(""), {})
        self.assertEqual(metadata_of('{"a": [1]}'), {"a": [1]})
        for text in ("{", "[1]", "1", "nul", "[" * 100_000):
            with self.subTest(text[:5]), self.assertRaises(StatusError):
                metadata_of(text)


if __name__ == "__main__":
    unittest.main()
