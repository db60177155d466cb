# SPDX-License-Identifier: Apache-2.0
"""Checks of what a server does not take: an error status each, never a number."""
from __future__ import annotations

from typing import Any, Callable

import grpc

from .case import Broken, Contract, Skipped, check, expect, expect_refused, metadata_without


def _wrong_sizes() -> dict[str, Callable[[Any], None]]:
    def change(**values: Any) -> Callable[[Any], None]:
        def set_values(image: Any) -> None:
            for name, value in values.items():
                setattr(image, name, value)

        return set_values

    def cut(image: Any) -> None:
        image.pixels = image.pixels[:-1]

    def grow(image: Any) -> None:
        image.pixels += b"\0"

    return {"one byte short": cut, "one byte too many": grow, "no width": change(width=0),
            "no height": change(height=0), "two channels": change(channels=2), "no channels": change(channels=0),
            "a side of 10^6": change(width=10 ** 6), "no pixels": change(pixels=b""),
            "10^9 pixels": change(width=31623, height=31623)}


@check("wrong sizes are refused, and the rest of the batch is scored")
def _(contract: Contract) -> None:
    for reward in contract.rewards:
        for what, damage in _wrong_sizes().items():
            good, bad = contract.medium(reward, 0), contract.medium(reward, 1)
            damage(bad)
            answer = contract.score(reward, [good, bad])
            expect_refused(answer, [1], f"{reward.name}: {what}")
            if answer.ok and not reward.groupwise:
                expect(answer.responses[0].status_code == 0, f"{what}: the good item of the batch is not scored")


@check("a batch over batch_max is refused")
def _(contract: Contract) -> None:
    count = contract.description.batch_max + 1
    reward = contract.rewards[0]
    image = contract.medium(reward, 0)
    if count * len(image.pixels) > 8 << 20:
        raise Skipped(f"{count} pictures do not fit into one message (--size)")
    answer = contract.score(reward, [image] * count)
    expect(not answer.ok, f"{count} items were taken")
    expect(answer.code is grpc.StatusCode.INVALID_ARGUMENT, f"{answer.code.name}: {answer.message}")


@check("an unknown reward is NOT_FOUND")
def _(contract: Contract) -> None:
    answer = contract.client.score(contract.request([contract.medium(contract.rewards[0], 0)], ["no-such-reward"]))
    expect(answer.code is grpc.StatusCode.NOT_FOUND, f"{answer.code.name}: {answer.message}")


@check("a medium that a reward does not take is refused")
def _(contract: Contract) -> None:
    for reward in contract.rewards:
        takes = list(reward.media) or ["image"]
        if sorted(takes) == ["image", "video"]:
            continue
        other = contract.medium(reward, 0)
        frames = 1 if takes == ["video"] else 3
        other.pixels = other.pixels[:len(other.pixels) // max(1, other.frames)] * frames
        other.frames = frames
        what = "a clip" if frames > 1 else "a picture"
        expect_refused(contract.score(reward, [other]), [0], f"{reward.name}: {what}")


@check("a groupwise reward without its whole group is refused")
def _(contract: Contract) -> None:
    groupwise = [reward for reward in contract.rewards if reward.groupwise]
    if not groupwise:
        raise Skipped("no reward is groupwise")
    contract.newer()
    for reward in groupwise:
        images = [contract.medium(reward, i) for i in range(contract.group_size())]
        answer = contract.score(reward, images, complete=False)
        expect_refused(answer, range(len(images)), f"{reward.name}: a part of a group")


@check("metadata that a reward needs must be there")
def _(contract: Contract) -> None:
    needing = [reward for reward in contract.rewards if reward.metadata_keys]
    if not needing:
        raise Skipped("no reward needs metadata")
    for reward in needing:
        for key in reward.metadata_keys:
            rest = metadata_without(contract.setting.metadata, key)
            expect_refused(contract.score(reward, [contract.medium(reward, 0)], metadata=rest), [0],
                           f"{reward.name}: metadata without {key}")


@check("metadata that is no JSON is not scored")
def _(contract: Contract) -> None:
    if not any(reward.metadata_keys for reward in contract.rewards):
        raise Skipped("no reward needs metadata")
    for reward in contract.rewards:
        if reward.metadata_keys:
            answer = contract.score(reward, [contract.medium(reward, 0)], metadata='{"cut')
            if answer.ok and answer.responses[0].status_code == 0:
                raise Broken(f"{reward.name}: it got a score")
