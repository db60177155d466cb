# SPDX-License-Identifier: Apache-2.0
"""Worlds: prompts and the small grey pictures that they ask for, as examples/worlds/digits.h, clips.h and plates.h define them.

A world of your own is one more row of WORLDS. Pictures are float32 from -1 (black) to 1 (white), [C, H, W], of videos
[C, F, H, W].
"""
import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]

# Glyphs 0 to 9, 7 rows of 5 pixels.
FONT = """
.###. ..#.. .###. ##### #...# ##### ..##. ##### .###. .###.
#...# .##.. #...# ...#. #...# #.... .#... ....# #...# #...#
#...# ..#.. ....# ..#.. #...# ####. #.... ...#. .#.#. #...#
#...# ..#.. ...#. ...#. ##### ....# ####. ..#.. ..#.. .####
#...# ..#.. ..#.. ....# ....# ....# #...# .#... .#.#. ....#
#...# ..#.. .#... #...# ....# ....# #...# .#... #...# ...#.
.###. ##### ##### .###. ....# ####. .###. .#... .###. .##..
"""
GLYPHS = np.array([[[1.0 if pixel == "#" else -1.0 for pixel in glyph] for glyph in row.split()]
                   for row in FONT.split("\n") if row], np.float32).swapaxes(0, 1)  # [10, 7, 5]


@functools.cache
def plate_glyphs():
    """The digits of a real typeface, grey [10, 10, 10], from the file that the programs have them from."""
    table = (ROOT / "examples/worlds/plate_glyphs.cc").read_text().split("kPlateGlyphs")[1]
    return np.array([int(grey[:2], 16) for grey in table.split("0x")[1:]], np.float32).reshape(10, 10, 10) / 127.5 - 1


def digits(numbers, layout):
    """Three glyphs in cells; the layout, 0 or 1, is their row."""
    picture = np.full((1, 8, 20), -1, np.float32)
    for column, number in zip((1, 7, 13), numbers):
        picture[0, layout:layout + 7, column:column + 5] = GLYPHS[number]
    return picture


def clip(numbers, layout):
    """Two glyphs that move 4 columns a frame; layouts 0 and 1 come from the left, odd ones stand in row 1."""
    video, row = np.full((1, 3, 8, 20), -1, np.float32), layout % 2
    for frame in range(3):
        left = 1 + 4 * (frame if layout < 2 else 2 - frame)
        for column, number in zip((left, left + 6), numbers):
            video[0, frame, row:row + 7, column:column + 5] = GLYPHS[number]
    return video


def plates(numbers, layout):
    """Three digits of a real typeface, dark on white; the layout, 0 to 2, is their row."""
    picture = np.ones((1, 16, 32), np.float32)
    for column, number in zip((1, 11, 21), numbers):
        picture[0, 2 + layout:12 + layout, column:column + 10] = plate_glyphs()[number]
    return picture


@dataclasses.dataclass(frozen=True)
class World:
    draw: Callable  # (numbers, layout) -> picture
    layouts: int    # So many pictures are equally right.
    word: str       # All its prompts begin with it: one token of CLIP.
    steps: int      # With which the shipped model was made.

    def batch(self, prompts, size, caption_noise, random):
        """Prompts and pictures. Captions are wrong on purpose: each number is replaced by a random one with probability
        `caption_noise`. The model learns to draw sharp pictures, but mostly the wrong ones: the situation of a real
        model before reinforcement learning. The picture changes and not the prompt, so held-out prompts stay unseen.
        """
        captions = [prompts[i] for i in random.integers(len(prompts), size=size)]
        numbers = np.array([[int(c) for c in caption if c.isdigit()] for caption in captions])
        wrong = random.random(numbers.shape) < caption_noise
        numbers = np.where(wrong, random.integers(10, size=numbers.shape), numbers)
        layouts = random.integers(self.layouts, size=size)
        return captions, np.stack([self.draw(row, layout) for row, layout in zip(numbers, layouts)])


WORLDS = {
    "digits": World(draw=digits, layouts=2, word="text", steps=6000),
    "clip": World(draw=clip, layouts=4, word="clip", steps=8000),
    "plates": World(draw=plates, layouts=3, word="text", steps=3500),
}
