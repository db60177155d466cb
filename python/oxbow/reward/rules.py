# SPDX-License-Identifier: Apache-2.0
"""The items that a reward refuses, with reasons. Pure functions of a request."""
from __future__ import annotations

import json
from typing import Any, Mapping, Sequence, Union

import grpc

from .definition import Reward
from .item import Item
from .outcome import Outcome, failure, failure_of
from .status import StatusError, invalid

MaybeItem = Union[Item, StatusError]


def metadata_of(text: str) -> Mapping[str, Any]:
    """The prompt's metadata: a JSON object; nothing at all is an empty one."""
    if not text.strip():
        return {}
    try:
        metadata = json.loads(text)
    except (ValueError, RecursionError):
        raise invalid("the prompt's metadata is no JSON") from None
    if not isinstance(metadata, dict):
        raise invalid("the prompt's metadata is no JSON object")
    return metadata


def refusals(reward: Reward, batch_max: int, group_complete: bool,
             items: Sequence[MaybeItem]) -> list[Outcome | None]:
    """For each item the reason why this reward does not get it; None: it does."""
    own = [_refusal(reward, item) for item in items]
    if not reward.groupwise or not items:
        return own
    if not group_complete:
        return [_invalid(reward, "groupwise: the request must have the whole group (group_complete)")] * len(items)
    if len(items) > batch_max:
        why = f"groupwise, and takes {batch_max} items at most: a group of {len(items)}"
        return [_invalid(reward, why)] * len(items)
    broken = next((one for one in own if one is not None), None)
    if broken is None:
        return own
    rest = failure(grpc.StatusCode.FAILED_PRECONDITION,
                   f"{reward.name}: another item of the group cannot be scored: {broken.message}")
    return [one or rest for one in own]


def _refusal(reward: Reward, item: MaybeItem) -> Outcome | None:
    if isinstance(item, StatusError):
        return failure_of(item)
    medium = "video" if item.is_video else "image"
    if medium not in reward.reads:
        count = item.frames.shape[0]
        return _invalid(reward, f"takes no {medium}: {count} frame{'s' * (count > 1)}")
    if item.is_video and reward.frames_every % item.frames_every:
        return _invalid(reward, f"reads every {reward.frames_every}th frame of a clip, and got every {item.frames_every}th")
    missing = [key for key in reward.metadata_keys if key not in item.metadata]
    if missing:
        return _invalid(reward, f"the prompt's metadata has no {', '.join(missing)}")
    return None


def _invalid(reward: Reward, why: str) -> Outcome:
    return failure(grpc.StatusCode.INVALID_ARGUMENT, f"{reward.name}: {why}")
