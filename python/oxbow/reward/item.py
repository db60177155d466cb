# SPDX-License-Identifier: Apache-2.0
"""The input of a reward: one picture or clip with its prompt."""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Mapping

import numpy as np

if TYPE_CHECKING:
    from PIL.Image import Image


@dataclass(frozen=True, eq=False)
class Item:
    """A medium and its prompt. Arrays are read-only: copy before you change one."""

    frames: np.ndarray  # [F, H, W, C] uint8; C is 1 (grey) or 3 (RGB)
    prompt: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    group: int = 0  # Items of one group have one value; 0: none.
    frames_every: int = 1  # `frames` are the frames 0, n, 2n, ... of a clip.

    @property
    def is_video(self) -> bool:
        return bool(self.frames.shape[0] > 1 or self.frames_every > 1)

    @property
    def picture(self) -> np.ndarray:
        """[H, W, C] uint8. A clip has no single picture: ValueError."""
        if self.is_video:
            raise ValueError(f"a clip of {self.frames.shape[0]} frames is no picture: use .frames")
        picture: np.ndarray = self.frames[0]
        return picture

    def pil(self) -> Image:
        """The picture as a PIL image in RGB. Needs Pillow."""
        return to_pil(self.picture)

    def pil_frames(self) -> list[Image]:
        return [to_pil(frame) for frame in self.frames]


def to_pil(picture: np.ndarray) -> Image:
    """A PIL image in RGB of [H, W, 1] or [H, W, 3]."""
    from PIL import Image

    grey = picture.shape[2] == 1
    return Image.fromarray(np.repeat(picture, 3, axis=2) if grey else picture)
