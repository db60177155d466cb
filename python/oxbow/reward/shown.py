# SPDX-License-Identifier: Apache-2.0
"""The part of an item that a reward sees, and the meaning of its answers.

A picture, or a clip and a reward of clips: the item, with the frames that the reward reads. A clip and a reward of
pictures: each of these frames as an item of its own; the score of the clip is their mean.
"""
from __future__ import annotations

from dataclasses import replace
from typing import Sequence

from .definition import Reward
from .item import Item
from .outcome import Outcome


def shown(reward: Reward, item: Item) -> list[Item]:
    """Requires an item that the rules do not refuse."""
    if not item.is_video:
        return [item]
    read = item.frames[::reward.frames_every // item.frames_every]
    if "video" in reward.media:
        return [replace(item, frames=read, frames_every=reward.frames_every)]
    return [replace(item, frames=read[i:i + 1], frames_every=1) for i in range(len(read))]


def together(made: Sequence[Outcome]) -> Outcome:
    """The mean, with notes in the order of time; the first error where a frame has no score."""
    for one in made:
        if not one.ok:
            return one
    notes = " | ".join(one.note for one in made if one.note)
    return Outcome(value=sum(one.value for one in made) / len(made), note=notes)
