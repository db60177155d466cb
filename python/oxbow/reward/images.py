# SPDX-License-Identifier: Apache-2.0
"""Pixels of a message `Image`: its sizes are checked before memory is taken for them.

A medium is raw pixels or a PNG or JPEG file. The sizes in the message always say what it holds, so
that what a batch will need is known before anything is decoded.
"""
from __future__ import annotations

import io
import re
from typing import Any

import grpc
import numpy as np

from .status import StatusError, invalid

SIDE_MAX = 8192
ENCODINGS = ("", "png", "jpeg")
_MODES = {1: "L", 3: "RGB"}


def declared_bytes(image: Any, bytes_max: int) -> int:
    """Bytes of the pixels once decoded. INVALID_ARGUMENT if sizes or encoding are not allowed."""
    for side in (image.width, image.height):
        if not 1 <= side <= SIDE_MAX:
            raise invalid(f"image side is not in 1..{SIDE_MAX}: {image.width} x {image.height}")
    if image.channels not in _MODES:
        raise invalid(f"image has neither 1 nor 3 channels: {image.channels}")
    if image.encoding not in ENCODINGS:
        raise invalid(f"encoding is none of raw, png and jpeg: {image.encoding[:20]!r}")
    if image.encoding and image.frames > 1:
        raise invalid(f"a {image.encoding} file is one picture, not {image.frames} frames")
    size: int = max(1, image.frames) * image.height * image.width * image.channels
    if size > bytes_max:
        raise invalid(f"medium is too large: {size} bytes of pixels over {bytes_max}")
    return size


def frames_of(image: Any, pixels: bytes) -> np.ndarray:
    """[F, H, W, C] uint8, read-only. Requires what declared_bytes checks."""
    shape = (max(1, image.frames), image.height, image.width, image.channels)
    if image.encoding:
        return _decoded(image, pixels).reshape(shape)
    size = int(np.prod(shape))
    if len(pixels) != size:
        raise invalid(f"image has other bytes than its size says: {len(pixels)} for {size}")
    return np.frombuffer(pixels, np.uint8).reshape(shape)


def _decoded(image: Any, data: bytes) -> np.ndarray:
    try:
        from PIL import Image
    except ImportError:
        raise StatusError(grpc.StatusCode.UNIMPLEMENTED,
                          "this server reads raw pixels only; PNG and JPEG need Pillow") from None
    kind = image.encoding.upper()
    try:
        # The head is read here, the pixels by np.asarray: a file of other sizes is never decoded.
        with Image.open(io.BytesIO(data), formats=[kind]) as file:
            size, mode = file.size, file.mode
            if size == (image.width, image.height) and mode == _MODES[image.channels]:
                array = np.array(file, np.uint8)
                array.flags.writeable = False
                return array
    except Exception as error:  # Pillow raises errors of many kinds for damaged files.
        why = re.sub(r" <[^>]*>", "", " ".join(str(error).split()))  # Without the address of an object.
        raise invalid(f"not a whole {kind} file: {why[:200]}") from None
    raise invalid(f"{kind} file is {size[0]} x {size[1]} {mode}, and the message says "
                  f"{image.width} x {image.height} {_MODES[image.channels]}")
