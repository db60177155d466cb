# SPDX-License-Identifier: Apache-2.0
"""Checks of Describe and health."""
from __future__ import annotations

import math

from ..definition import MEDIA
from ..wire import REWARD, SERVING
from .case import Contract, Skipped, check, expect


@check("Describe says what the server has")
def _(contract: Contract) -> None:
    description = contract.description
    names = [reward.name for reward in contract.rewards]
    expect(bool(names), "no reward is described")
    expect(all(names), "a reward without a name")
    expect(len(set(names)) == len(names), f"a name is there twice: {names}")
    expect(description.batch_max >= 1, "batch_max is 0: no request would be allowed")
    expect(bool(description.version), "version is empty")
    expect(description.unix_time > 0, "unix_time is not set")


@check("each reward has a range and known media")
def _(contract: Contract) -> None:
    for reward in contract.rewards:
        low, high = reward.value_min, reward.value_max
        expect(math.isfinite(low) and math.isfinite(high) and low < high,
               f"{reward.name}: value_min {low} and value_max {high} are no range")
        expect(all(medium in MEDIA for medium in reward.media), f"{reward.name}: unknown media: {reward.media}")
        expect(all(reward.metadata_keys), f"{reward.name}: an empty metadata key")


@check("health: the server serves")
def _(contract: Contract) -> None:
    expect(contract.client.health("") == SERVING, "the overall health is not SERVING")


@check("health: each reward serves under its own name")
def _(contract: Contract) -> None:
    for reward in contract.rewards:
        status = contract.client.health(f"{REWARD}/{reward.name}")
        if status is None:
            raise Skipped("health is known of the whole server only")
        expect(status == SERVING, f"{reward.name}: health is not SERVING")
    expect(contract.client.health(f"{REWARD}/no-such-reward") is None, "an unknown reward has a health")
