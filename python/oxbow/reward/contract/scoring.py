# SPDX-License-Identifier: Apache-2.0
"""Checks of values: they are there, finite, in range, and a function of the item."""
from __future__ import annotations

from .case import Broken, Contract, Skipped, check, expect


@check("each reward scores, and its values are in range")
def _(contract: Contract) -> None:
    for reward in contract.rewards:
        values = contract.values(reward, [contract.medium(reward, i) for i in range(contract.group_size())])
        low, high, slack = reward.value_min, reward.value_max, contract.tolerance(reward)
        for value in values:
            expect(low - slack <= value <= high + slack,
                   f"{reward.name}: value {value:g} is outside of its range {low:g}..{high:g}")


@check("no names mean all rewards")
def _(contract: Contract) -> None:
    if contract.setting.rewards:
        raise Skipped("only some rewards are under check")
    images = [contract.medium(contract.rewards[0], 0)]
    if any(list(reward.media) != list(contract.rewards[0].media) for reward in contract.rewards):
        raise Skipped("rewards of different media")
    answer = contract.client.score(contract.request(images))
    expect(answer.ok, f"call ended with {answer.code.name}: {answer.message}")
    names = sorted(one.name for one in answer.responses[0].rewards)
    expect(names == sorted(reward.name for reward in contract.rewards), f"the answer has {names}")


@check("an empty batch has no answers and is no error")
def _(contract: Contract) -> None:
    for reward in contract.rewards:
        answer = contract.score(reward, [])
        expect(answer.ok and not answer.responses,
               f"{reward.name}: {len(answer.responses)} answers, {answer.code.name}: {answer.message}")


@check("several requests of one call are all answered")
def _(contract: Contract) -> None:
    reward = contract.rewards[0]
    size = contract.group_size()
    answer = contract.client.score(*(
        contract.request([contract.medium(reward, i) for i in range(size)], [reward.name], first=call * size)
        for call in range(3)))
    expect(answer.ok, f"call ended with {answer.code.name}: {answer.message}")
    expect(sorted(answer.responses) == list(range(3 * size)), f"answers for {sorted(answer.responses)}")


@check("the order of a batch does not matter")
def _(contract: Contract) -> None:
    for reward in contract.rewards:
        images = [contract.medium(reward, i) for i in range(contract.group_size())]
        there = contract.values(reward, images)
        back = contract.values(reward, images[::-1])[::-1]
        contract.same(reward, there, back, "when the batch is turned round")


@check("a batch of n is n batches of one")
def _(contract: Contract) -> None:
    pointwise = [reward for reward in contract.rewards if not reward.groupwise]
    if not pointwise:
        raise Skipped("all rewards are groupwise")
    for reward in pointwise:
        images = [contract.medium(reward, i) for i in range(contract.group_size())]
        together = contract.values(reward, images)
        alone = [contract.values(reward, [image])[0] for image in images]
        contract.same(reward, together, alone, "when items come one by one")


@check("a call that is cancelled does no harm")
def _(contract: Contract) -> None:
    reward = contract.rewards[0]
    images = [contract.medium(reward, i) for i in range(contract.group_size())]
    before = contract.values(reward, images)
    for _ in range(3):
        contract.client.begin([contract.request(images, [reward.name])]).cancel()
    contract.same(reward, before, contract.values(reward, images), "after cancelled calls")


@check("a client of before reads rewards and status")
def _(contract: Contract) -> None:
    contract.newer()
    reward = contract.rewards[0]
    good = contract.medium(reward, 0)
    bad = contract.medium(reward, 1)
    bad.pixels = bad.pixels[:-1]
    answer = contract.score(reward, [good, bad])
    for item, response in answer.responses.items():
        names = [one.name for one in response.outcomes]
        expect(names == [reward.name], f"item {item}: outcomes are of {names}, wanted was {reward.name}")
        outcome = response.outcomes[0]
        if outcome.status_code != response.status_code:
            raise Broken(f"item {item}: the outcome's status is {outcome.status_code}, "
                         f"the answer's {response.status_code}")
        values = [(one.name, one.value) for one in response.rewards]
        whole = [(outcome.name, outcome.value)] if outcome.status_code == 0 else []
        expect(values == whole, f"item {item}: rewards are {values}, outcomes say {whole}")
