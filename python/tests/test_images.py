# SPDX-License-Identifier: Apache-2.0
"""Pixels come out as they went in, or not at all."""
import unittest

import numpy as np

from oxbow.reward import Item, wire
from oxbow.reward.contract.pictures import encoded, picture, raw
from oxbow.reward.images import declared_bytes, frames_of
from oxbow.reward.status import StatusError

LIMIT = 1 << 20


def read(image):
    declared_bytes(image, LIMIT)
    return frames_of(image, image.pixels)


# Promise: A reward of your own breaks nothing else.
class ImagesTest(unittest.TestCase):
    def test_raw_pixels_are_rows_of_interleaved_channels(self):
        image = wire.Image(width=2, height=1, channels=3, frames=2, pixels=bytes(range(12)))
        frames = read(image)
        self.assertEqual(frames.shape, (2, 1, 2, 3))
        self.assertEqual(frames[1, 0, 0].tolist(), [6, 7, 8])
        self.assertEqual(declared_bytes(image, LIMIT), 12)

    def test_a_picture_may_say_no_frames_or_one(self):
        for frames in (0, 1):
            image = wire.Image(width=1, height=1, channels=1, frames=frames, pixels=b"x")
            self.assertEqual(read(image).shape, (1, 1, 1, 1))

    def test_pixels_are_read_only(self):
        for array in (read(raw(picture(0, 4, 4, 3))), read(encoded(picture(0, 4, 4, 3), "png"))):
            with self.assertRaises(ValueError):
                array[0, 0, 0, 0] = 1

    def test_a_png_is_its_pixels_and_a_jpeg_nearly(self):
        for channels in (1, 3):
            array = picture(1, 33, 21, channels)
            np.testing.assert_array_equal(read(encoded(array, "png"))[0], array)
            np.testing.assert_allclose(read(encoded(array, "jpeg"))[0].astype(int).mean(), array.mean(), atol=3)

    def test_sizes_that_are_not_allowed_are_refused_before_any_pixel(self):
        good = dict(width=4, height=4, channels=3, frames=1)
        for wrong in (dict(width=0), dict(height=0), dict(channels=0), dict(channels=2), dict(channels=4),
                      dict(width=8193), dict(width=31623, height=31623), dict(frames=1 << 31),
                      dict(encoding="webp"), dict(encoding="png", frames=2)):
            with self.subTest(wrong), self.assertRaises(StatusError):
                declared_bytes(wire.Image(**{**good, **wrong}), LIMIT)

    def test_every_cut_of_a_file_is_refused(self):
        for encoding in ("png", "jpeg"):
            image = encoded(picture(2, 16, 16, 3), encoding)
            whole = image.pixels
            # A JPEG may end without its last marker and a PNG without its last chunk.
            for end in range(0, len(whole) - 40, max(1, len(whole) // 40)):
                image.pixels = whole[:end]
                with self.subTest(f"{encoding} {end}"), self.assertRaises(StatusError) as raised:
                    read(image)
                self.assertNotIn("\n", raised.exception.message)

    def test_an_item_gives_arrays_and_pil_images(self):
        clip = Item(np.stack([picture(3, 5, 4, 3)] * 2))
        self.assertEqual([frame.size for frame in clip.pil_frames()], [(5, 4)] * 2)
        with self.assertRaisesRegex(ValueError, "clip of 2 frames"):
            clip.picture
        grey = Item(picture(3, 5, 4, 1)[None])
        self.assertEqual((grey.pil().mode, grey.pil().getpixel((1, 2))[0]), ("RGB", grey.picture[2, 1, 0]))


if __name__ == "__main__":
    unittest.main()
