# SPDX-License-Identifier: Apache-2.0
"""Pictures for checks: smooth colours with some noise, so that scorers and JPEG have something to do."""
from __future__ import annotations

import io
from typing import Any

import numpy as np

from .. import wire


def picture(seed: int, width: int, height: int, channels: int) -> np.ndarray:
    """[H, W, C] uint8; a function of its arguments."""
    random = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    waves = [np.sin(x * random.uniform(.02, .3) + y * random.uniform(.02, .3) + random.uniform(0, 6))
             for _ in range(channels)]
    noisy = np.stack(waves, axis=2) * 90 + 128 + random.normal(0, 8, (height, width, channels))
    return noisy.clip(0, 255).astype(np.uint8)


def raw(array: np.ndarray, frames: int = 1) -> Any:
    """The message of a picture; with `frames` over 1 a clip that shows it so often."""
    height, width, channels = array.shape
    return wire.Image(width=width, height=height, channels=channels, frames=frames,
                      pixels=array.tobytes() * frames)


def encoded(array: np.ndarray, encoding: str) -> Any:
    """The same picture as a PNG or JPEG file. ImportError without Pillow."""
    from PIL import Image

    file = io.BytesIO()
    grey = array.shape[2] == 1
    Image.fromarray(array[:, :, 0] if grey else array).save(file, format=encoding.upper())
    message = raw(array)
    message.encoding, message.pixels = encoding, file.getvalue()
    return message


def decoded(message: Any) -> Any:
    """The raw picture of an encoded one."""
    from PIL import Image

    with Image.open(io.BytesIO(message.pixels)) as file:
        array = np.asarray(file)
    return raw(array.reshape(message.height, message.width, message.channels))
