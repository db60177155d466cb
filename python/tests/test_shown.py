# SPDX-License-Identifier: Apache-2.0
"""The frames of a clip that a reward sees, and the clip's score."""
import unittest

import numpy as np

from oxbow.reward import Item, reward
from oxbow.reward.outcome import Outcome
from oxbow.reward.shown import shown, together

FRAMES = np.arange(7, dtype=np.uint8).reshape(7, 1, 1, 1)
CLIP = Item(FRAMES, prompt="a cat", metadata={"tag": 1}, group=5)


def levels(items):
    return [[int(level) for level in item.frames[:, 0, 0, 0]] for item in items]


def seen(item, **arguments):
    return shown(reward("x", range=(0, 1), **arguments)(len), item)


class ShownTest(unittest.TestCase):
    def test_a_reward_of_pictures_sees_each_frame_that_it_reads(self):
        self.assertEqual(levels(seen(CLIP)), [[i] for i in range(7)])
        self.assertEqual(levels(seen(CLIP, frames_every=3)), [[0], [3], [6]])
        for frame in seen(CLIP):
            self.assertEqual((frame.prompt, frame.metadata, frame.group), ("a cat", {"tag": 1}, 5))
            self.assertEqual(frame.picture.shape, (1, 1, 1))

    def test_a_reward_of_clips_sees_its_frames_together(self):
        for media in (["video"], ["image", "video"]):
            self.assertEqual(levels(seen(CLIP, media=media)), [list(range(7))])
            self.assertEqual(levels(seen(CLIP, media=media, frames_every=2)), [[0, 2, 4, 6]])

    def test_frames_that_did_not_travel_are_counted(self):
        third = Item(FRAMES[::3], frames_every=3)
        self.assertEqual(levels(seen(third, frames_every=3)), [[0], [3], [6]])
        self.assertEqual(levels(seen(third, frames_every=6, media=["video"])), [[0, 6]])

    def test_a_picture_is_itself(self):
        picture = Item(FRAMES[:1])
        self.assertEqual(seen(picture, frames_every=4), [picture])

    def test_a_clip_has_the_mean_and_all_notes_or_the_first_error(self):
        made = [Outcome(1.0, note="a"), Outcome(2.0), Outcome(6.0, note="b")]
        self.assertEqual(together(made), Outcome(3.0, note="a | b"))
        self.assertEqual(together(made[:1]), made[0])
        wrong = [Outcome(code=3, message="dark"), Outcome(code=13, message="broken")]
        self.assertEqual(together(made + wrong), wrong[0])


if __name__ == "__main__":
    unittest.main()
