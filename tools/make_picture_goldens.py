# SPDX-License-Identifier: Apache-2.0
"""Small PNG files of every kind, and what Pillow's convert("RGB") reads from them: tests/golden/rewards/pictures.json.

    python3 tools/make_picture_goldens.py     # needs Pillow

The files are written here, byte by byte, since Pillow writes few of these kinds. Of grey with 16 bits Pillow makes white, so
that kind is not here.
"""
import io
import json
import pathlib
import struct
import zlib

import PIL
from PIL import Image

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests/golden/rewards/pictures.json"
WIDTH, HEIGHT = 5, 3
GREY, RGB, PALETTE, GREY_ALPHA, RGBA = 0, 2, 3, 4, 6
SAMPLES = {GREY: 1, RGB: 3, PALETTE: 1, GREY_ALPHA: 2, RGBA: 4}


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def row_of(values, depth):
    if depth == 16:
        return b"".join(struct.pack(">H", value) for value in values)
    if depth == 8:
        return bytes(values)
    bits = "".join(format(value, f"0{depth}b") for value in values)
    bits += "0" * (-len(bits) % 8)
    return bytes(int(bits[i:i + 8], 2) for i in range(0, len(bits), 8))


def png(colour, depth, *between):
    """Samples that differ in every row and column; no row is filtered."""
    top = 2 ** depth
    rows = [[(7919 * (x + 1) * (y + 2) + 104729 * y) % top for x in range(WIDTH * SAMPLES[colour])] for y in range(HEIGHT)]
    if colour == PALETTE:
        rows = [[value % 3 for value in row] for row in rows]
    body = b"".join(b"\0" + row_of(row, depth) for row in rows)
    head = struct.pack(">IIBBBBB", WIDTH, HEIGHT, depth, colour, 0, 0, 0)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + b"".join(between) + chunk(b"IDAT", zlib.compress(body)) +
            chunk(b"IEND", b""))


def files():
    gamma = chunk(b"gAMA", struct.pack(">I", 100000))  # Linear light.
    palette = chunk(b"PLTE", bytes([255, 0, 10, 20, 200, 30, 1, 2, 250]))
    yield "rgb", png(RGB, 8)
    yield "rgb with a gamma", png(RGB, 8, gamma)
    yield "rgb with a transparent colour", png(RGB, 8, chunk(b"tRNS", struct.pack(">HHH", 0, 0, 0)))
    yield "rgb, 16 bits", png(RGB, 16)
    yield "rgb, 16 bits, with a gamma", png(RGB, 16, gamma)
    yield "rgba", png(RGBA, 8)
    yield "rgba, 16 bits", png(RGBA, 16)
    yield "grey", png(GREY, 8)
    yield "grey and alpha", png(GREY_ALPHA, 8)
    yield "grey and alpha, 16 bits", png(GREY_ALPHA, 16)
    for depth in (1, 2, 4):
        yield f"grey, {depth} bits", png(GREY, depth)
    yield "palette", png(PALETTE, 8, palette)
    yield "palette with alpha", png(PALETTE, 2, palette, chunk(b"tRNS", bytes([0, 128])))


def interlaced():
    """libpng's and Pillow's interlaced files are read alike; Pillow does not write them, so one is written by hand: 1 x 1."""
    head = struct.pack(">IIBBBBB", 1, 1, 8, RGBA, 0, 0, 1)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0" + bytes([9, 8, 7, 0]))) +
            chunk(b"IEND", b""))


def main():
    pictures = []
    for name, content in [*files(), ("rgba, interlaced", interlaced())]:
        image = Image.open(io.BytesIO(content)).convert("RGB")
        pictures.append({"name": name, "png": content.hex(), "width": image.width, "height": image.height,
                         "rgb": image.tobytes().hex()})
    OUT.write_text(json.dumps({"pillow": PIL.__version__, "pictures": pictures}, indent=1) + "\n")


if __name__ == "__main__":
    main()
