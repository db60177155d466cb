# SPDX-License-Identifier: Apache-2.0
"""Runs the checks, one line each, and sums up."""
from __future__ import annotations

from typing import Callable

import grpc

from ..status import EXIT_FAILURE, EXIT_OK, SetupError
# Each adds its checks, in this order.
from . import describing  # noqa: F401 isort: skip
from . import scoring  # noqa: F401 isort: skip
from . import refusing  # noqa: F401 isort: skip
from . import encodings  # noqa: F401 isort: skip
from .case import CHECKS, Broken, Contract, Older, Setting, Skipped
from .client import Client

_SCORES = "each reward scores, and its values are in range"


def is_older(contract: Contract) -> bool:
    """Whether answers have no outcomes, or --old says so."""
    if contract.setting.old:
        return True
    reward = contract.rewards[0]
    answer = contract.score(reward, [contract.medium(reward, 0)])
    return bool(answer.responses) and not any(one.outcomes for one in answer.responses.values())


def run(client: Client, setting: Setting, say: Callable[[str], None] = print) -> int:
    """Returns the exit code: 0 if no check failed, 1 otherwise. SetupError if nobody answers."""
    contract = Contract(client, setting, client.describe())
    for name in setting.rewards:
        if name not in [reward.name for reward in contract.rewards]:
            raise SetupError(f"the server has no such reward (--rewards): {name}")
    if contract.rewards:
        contract.older = is_older(contract)
    counts = {"ok": 0, "FAIL": 0, "skip": 0, "old": 0}
    for sentence, function in CHECKS:
        word, why = _outcome(function, contract)
        counts[word] += 1
        say(f"{word:5} {sentence}{': ' if why else ''}{why}")
        if word == "FAIL" and (sentence == _SCORES or not contract.rewards):
            say("skip  the other checks need a reward that scores")
            break
    left_out = "".join(f", {counts[word]} {text}" for word, text in
                       (("old", "the server is too old for"), ("skip", "left out")) if counts[word])
    say(f"check: {counts['ok']} passed, {counts['FAIL']} failed{left_out}")
    return EXIT_FAILURE if counts["FAIL"] else EXIT_OK


def _outcome(function: Callable[[Contract], None], contract: Contract) -> tuple[str, str]:
    try:
        function(contract)
    except Broken as broken:
        return "FAIL", " ".join(str(broken).split())
    except Older as older:
        return "old", str(older)
    except Skipped as skipped:
        return "skip", str(skipped)
    except grpc.RpcError as error:
        return "FAIL", f"{error.code().name}: {' '.join((error.details() or '').split())}"
    return "ok", ""
