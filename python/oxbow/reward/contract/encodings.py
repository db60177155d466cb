# SPDX-License-Identifier: Apache-2.0
"""Checks of PNG, JPEG and media in pieces."""
from __future__ import annotations

from typing import Any

from .case import Broken, Contract, Skipped, check, expect, expect_refused
from .pictures import decoded, encoded

_UNIMPLEMENTED = 12


def _image_reward(contract: Contract) -> Any:
    for reward in contract.rewards:
        if "image" in (list(reward.media) or ["image"]):
            return reward
    raise Skipped("no reward takes pictures")


def _file(contract: Contract, encoding: str, seed: int = 0) -> tuple[Any, Any]:
    """A picture as a file, and a reward for it; Skipped where one side cannot have it."""
    contract.newer()
    reward = _image_reward(contract)
    try:
        message = encoded(contract.picture(seed), encoding)
    except ImportError:
        raise Skipped("needs Pillow here") from None
    answer = contract.score(reward, [message])
    if answer.ok and answer.responses[0].status_code == _UNIMPLEMENTED:
        raise Skipped(f"the server does not read it: {answer.responses[0].status_message}")
    return message, reward


@check("a PNG has the score of its pixels")
def _(contract: Contract) -> None:
    message, reward = _file(contract, "png")
    contract.same(reward, contract.values(reward, [message]), contract.values(reward, [decoded(message)]),
                  "between a PNG and its pixels")


@check("a JPEG has the score of its pixels")
def _(contract: Contract) -> None:
    # Decoders may differ by one level in a pixel: the values of a smooth reward hardly show it.
    message, reward = _file(contract, "jpeg")
    as_file = contract.values(reward, [message])[0]
    as_pixels = contract.values(reward, [decoded(message)])[0]
    allowed = max(contract.tolerance(reward), 0.02 * (reward.value_max - reward.value_min))
    expect(abs(as_file - as_pixels) <= allowed,
           f"{reward.name}: {as_file:g} as a file, {as_pixels:g} as pixels; {allowed:.3g} is allowed")


@check("damaged and false PNG and JPEG files are refused")
def _(contract: Contract) -> None:
    for encoding in ("png", "jpeg"):
        message, reward = _file(contract, encoding)
        whole = message.pixels
        for what, change in {
            "cut in half": {"pixels": whole[:len(whole) // 2]},
            "of 10 bytes": {"pixels": whole[:10]},
            "with nothing in it": {"pixels": b""},
            "of another width": {"width": message.width + 1},
            "of other channels": {"channels": 4 - message.channels},
            "as a clip": {"frames": 2},
            "of another kind": {"encoding": "jpeg" if encoding == "png" else "png"},
        }.items():
            bad, _ = _file(contract, encoding)
            for name, value in change.items():
                setattr(bad, name, value)
            expect_refused(contract.score(reward, [bad]), [0], f"a {encoding} {what}")


@check("a PNG that says 10^9 pixels is refused at once")
def _(contract: Contract) -> None:
    message, reward = _file(contract, "png")
    # The head of a PNG: width and height at byte 16, then a checksum over them at byte 29.
    import struct
    import zlib

    head = b"IHDR" + struct.pack(">II", 31623, 31623) + message.pixels[24:29]
    bomb = message.pixels[:12] + head + struct.pack(">I", zlib.crc32(head)) + message.pixels[33:]
    for width, height in ((31623, 31623), (message.width, message.height)):
        message.pixels, message.width, message.height = bomb, width, height
        expect_refused(contract.score(reward, [message]), [0], f"a PNG of 31623 x 31623 declared {width} x {height}")


@check("an unknown encoding is refused")
def _(contract: Contract) -> None:
    contract.newer()
    reward = _image_reward(contract)
    message = contract.medium(reward, 0)
    message.encoding = "webp"
    answer = contract.score(reward, [message])
    if answer.ok and answer.responses[0].status_code == 0:
        raise Broken(f"{reward.name}: it got a score")


@check("a medium in pieces has the score of the whole")
def _(contract: Contract) -> None:
    contract.newer()
    reward = _image_reward(contract)
    whole = contract.medium(reward, 0)
    first = contract.request([whole], [reward.name])
    first.items[0].image.pixels_size = len(whole.pixels)
    first.items[0].image.pixels = whole.pixels[:7]
    rest = [contract.request([type(whole)(pixels=piece)]) for piece in (whole.pixels[7:11], whole.pixels[11:])]
    answer = contract.client.score(first, *rest)
    expect(answer.ok, f"call ended with {answer.code.name}: {answer.message}")
    expect(list(answer.responses) == [0] and answer.responses[0].status_code == 0, f"answers: {answer.responses}")
    contract.same(reward, [answer.responses[0].rewards[0].value], contract.values(reward, [whole]),
                  "between pieces and the whole")


@check("pieces that do not fit are refused")
def _(contract: Contract) -> None:
    contract.newer()
    reward = _image_reward(contract)
    whole = contract.medium(reward, 0)
    first = contract.request([whole], [reward.name])
    first.items[0].image.pixels_size = len(whole.pixels)
    first.items[0].image.pixels = whole.pixels[:7]
    piece = contract.request([type(whole)(pixels=whole.pixels[7:])])
    too_long = contract.request([type(whole)(pixels=whole.pixels)])
    stranger = contract.request([type(whole)(pixels=whole.pixels[7:])], first=5)
    for what, requests in {"a piece too long": [first, too_long], "a piece of another item": [first, stranger],
                           "a piece that never comes": [first], "a piece of nothing": [piece]}.items():
        expect_refused(contract.client.score(*requests), [0], what)
