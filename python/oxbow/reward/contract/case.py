# SPDX-License-Identifier: Apache-2.0
"""A check of the contract, its findings and its means."""
from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, Callable, Sequence

import grpc
import numpy as np

from .client import Answer, Client, request_of
from .pictures import picture, raw


class Broken(Exception):
    """The server does not keep the contract, in these words."""


class Skipped(Exception):
    """The check does not apply here, or needs what is not there."""


class Older(Exception):
    """The server is of a protocol before this part."""


@dataclass(frozen=True)
class Setting:
    """The items of a request. A reward may need a prompt or a size of its own."""

    prompt: str = 'a sign that says "oxbow"'
    metadata: str = ""
    width: int = 64
    height: int = 64
    channels: int = 3
    tolerance: float = 1e-5  # Values may differ by this share of the range.
    old: bool = False  # The server is of the protocol before outcomes.
    rewards: tuple[str, ...] = ()  # Those to check; none: all.


@dataclass
class Contract:
    """One server under check."""

    client: Client
    setting: Setting
    description: Any
    older: bool = False

    @property
    def rewards(self) -> list[Any]:
        """The descriptions of the rewards under check."""
        wanted = self.setting.rewards
        return [reward for reward in self.description.rewards if not wanted or reward.name in wanted]

    def group_size(self) -> int:
        """Pictures in the batches of most checks; all fit into one request and one group."""
        limits = [reward.batch_max for reward in self.rewards if reward.groupwise and reward.batch_max]
        return int(min([4, self.description.batch_max, *limits]))

    def medium(self, reward: Any, seed: int) -> Any:
        """A picture, or for rewards of clips alone a clip."""
        video = list(reward.media) == ["video"]
        return raw(self.picture(seed), frames=3 if video else 1)

    def picture(self, seed: int) -> np.ndarray:
        return picture(seed, self.setting.width, self.setting.height, self.setting.channels)

    def request(self, images: Sequence[Any], rewards: Sequence[str] = (), *, complete: bool = True,
                metadata: str | None = None, first: int = 0) -> Any:
        return request_of(images, self.setting.prompt,
                          self.setting.metadata if metadata is None else metadata, rewards, complete, first)

    def score(self, reward: Any, images: Sequence[Any], **kwargs: Any) -> Answer:
        return self.client.score(self.request(images, [reward.name], **kwargs))

    def values(self, reward: Any, images: Sequence[Any], **kwargs: Any) -> list[float]:
        """The reward's values; Broken unless all are scored."""
        answer = self.score(reward, images, **kwargs)
        expect(answer.ok, f"{reward.name}: call ended with {answer.code.name}: {answer.message}")
        expect(len(answer.responses) == len(images),
               f"{reward.name}: {len(answer.responses)} answers for {len(images)} items")
        values = []
        for item, response in sorted(answer.responses.items()):
            expect(response.status_code == 0, f"item {item} is not scored: {response.status_message}")
            expect([one.name for one in response.rewards] == [reward.name],
                   f"{reward.name}: the answer has other rewards: {[one.name for one in response.rewards]}")
            values.append(response.rewards[0].value)
            expect(math.isfinite(values[-1]), f"{reward.name}: the value is not finite: {values[-1]}")
        return values

    def tolerance(self, reward: Any) -> float:
        return float(self.setting.tolerance * (reward.value_max - reward.value_min))

    def same(self, reward: Any, first: Sequence[float], second: Sequence[float], when: str) -> None:
        worst = max((abs(a - b) for a, b in zip(first, second)), default=0.0)
        expect(worst <= self.tolerance(reward), f"{reward.name}: values differ by {worst:.3g} {when}; "
                                                f"{self.tolerance(reward):.3g} is allowed (--tolerance)")

    def newer(self) -> None:
        """For checks of what servers of before do not have."""
        if self.older:
            raise Older("a server of the protocol before outcomes")


def expect(condition: bool, otherwise: str) -> None:
    if not condition:
        raise Broken(otherwise)


def expect_refused(answer: Answer, items: Sequence[int], what: str,
                   code: grpc.StatusCode = grpc.StatusCode.INVALID_ARGUMENT) -> None:
    """Each of these items has the status `code`, or the whole call ended with it."""
    number = int(code.value[0])
    if not answer.ok:
        expect(answer.code is code, f"{what}: call ended with {answer.code.name}, not {code.name}: {answer.message}")
        return
    for item in items:
        expect(item in answer.responses, f"{what}: item {item} has no answer")
        got = answer.responses[item].status_code
        expect(got != 0, f"{what}: it got a score")
        expect(got == number, f"{what}: status {got}, not {code.name}: {answer.responses[item].status_message}")
        expect(not answer.responses[item].rewards, f"{what}: an error and values in one answer")


def metadata_without(metadata: str, key: str) -> str:
    kept = {name: value for name, value in json.loads(metadata or "{}").items() if name != key}
    return json.dumps(kept)


Check = Callable[[Contract], None]
CHECKS: list[tuple[str, Check]] = []


def check(sentence: str) -> Callable[[Check], Check]:
    """Adds a function to the suite, in the order of the files; the sentence is what it shows."""

    def add(function: Check) -> Check:
        CHECKS.append((sentence, function))
        return function

    return add
