# SPDX-License-Identifier: Apache-2.0
"""The outcome of one item under one reward: a finite number, or a status. Nothing else gets out."""
from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Callable, Iterable, Sequence

import grpc

from .definition import Failed, Score
from .item import Item
from .status import StatusError, one_line

_NOTE_MAX = 4096


@dataclass(frozen=True)
class Outcome:
    value: float = 0.0
    code: int = 0  # google.rpc.Code; 0: value is the score.
    message: str = ""
    note: str = ""

    @property
    def ok(self) -> bool:
        return self.code == 0


def failure(code: grpc.StatusCode, message: str) -> Outcome:
    return Outcome(code=int(code.value[0]), message=message)


def failure_of(error: BaseException) -> Outcome:
    """Failed: the item does not fit, INVALID_ARGUMENT. Any other exception: INTERNAL."""
    if isinstance(error, StatusError):
        return failure(error.code, error.message)
    if isinstance(error, Failed):
        return failure(grpc.StatusCode.INVALID_ARGUMENT, " ".join(str(error).split())[:500] or "failed")
    return failure(grpc.StatusCode.INTERNAL, one_line(error))


def outcome_of(result: Any) -> Outcome:
    if isinstance(result, BaseException):
        return failure_of(result)
    note = ""
    if isinstance(result, Score):
        result, note = result.value, str(result.note)[:_NOTE_MAX]
    if result is None or isinstance(result, (str, bytes)):
        return failure(grpc.StatusCode.INTERNAL, f"score is not a number: {result!r:.80}")
    try:
        value = float(result)
    except Exception as error:
        return failure(grpc.StatusCode.INTERNAL, f"score is not a number: {one_line(error)}")
    if not math.isfinite(value):
        return failure(grpc.StatusCode.INTERNAL, f"score is not finite: {value}")
    return Outcome(value=value, note=note)


def outcomes(name: str, score: Callable[[Sequence[Item]], Iterable[Any]],
             items: Sequence[Item]) -> list[Outcome]:
    """Scores items: one outcome each, whatever `score` returns or raises."""
    try:
        results = list(score(items))
    except (Exception, SystemExit) as error:  # A reward that exits would take its thread along.
        made = [failure_of(error)] * len(items)
    else:
        if len(results) == len(items):
            made = [outcome_of(result) for result in results]
        else:
            made = [failure(grpc.StatusCode.INTERNAL,
                            f"{len(results)} scores returned for {len(items)} items")] * len(items)
    return [one if one.ok else Outcome(code=one.code, message=f"{name}: {one.message}") for one in made]
