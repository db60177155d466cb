# SPDX-License-Identifier: Apache-2.0
"""How fast a run learnt: where its held-out reward crosses a level, and what that had cost.

An evaluation of a few hundred images is noisy, so a level is *reached* where the mean of three evaluations in a row meets
it. The cost of evaluations is not counted.
"""
from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
TRAILING = 3
COLLAPSED = 0.7  # A share of the best mean of three.


def mean(values: Sequence[float]) -> float:
    return float(sum(values) / len(values)) if len(values) else 0.0


@dataclass(frozen=True)
class Curve:
    """A run at each of its evaluations. Costs are sums since the run began."""

    reward: Numbers          # Held-out, of this evaluation only.
    costs: dict[str, Numbers]  # "step": committed steps; "images": sampled for training; "seconds": wall clock without
    #                            evaluations; "nfe3": rows forward, and three for each row forward and backward, NaN: not logged.
    minority: Numbers        # Share of the rarer right layout; NaN: not measured.
    finals: dict[str, float] = field(default_factory=dict)  # "strict", "speckle", "minority": means of the last three.
    by: dict[str, Numbers] = field(default_factory=dict)  # Reward of the prompts of one value of `eval.by`.

    def __len__(self) -> int:
        return len(self.reward)

    @cached_property
    def trailing(self) -> Numbers:
        """The mean of the three evaluations up to each, or of fewer at the beginning."""
        return trailing_means(self.reward)

    @cached_property
    def _best(self) -> Numbers:
        full = np.where(np.isnan(self.trailing), -np.inf, self.trailing)
        full[:TRAILING - 1] = -np.inf  # Fewer than three reach nothing.
        return np.maximum.accumulate(full)

    def places(self, levels: Any) -> NDArray[np.intp]:
        """For each level the first evaluation whose mean of three meets it; len(self) if none does."""
        return np.searchsorted(self._best, levels)

    def reached(self, level: float) -> bool:
        return bool(self.places(level) < len(self))

    def place(self, level: float) -> int:
        """The step at which it reached the level; else its end."""
        return int(min(self.places(level), len(self) - 1))

    def cost(self, name: str, levels: Any) -> Any:
        """The cost up to each level; all of it where the run never got there."""
        return self.costs[name][np.minimum(self.places(levels), len(self) - 1)]

    @property
    def final_reward(self) -> float:
        return float(self.trailing[-1]) if len(self) else math.nan

    @property
    def mean_reward(self) -> float:
        """Over all evaluations: high for a run that is fast, and stays high."""
        return mean(self.reward) if len(self) else math.nan

    @property
    def collapsed(self) -> bool:
        return len(self) > 0 and self.final_reward < COLLAPSED * np.fmax.reduce(self.trailing)

    def of_value(self, value: str) -> Curve:
        """The curve of the prompts of one value of `eval.by`."""
        return replace(self, reward=self.by[value], finals={}, by={})


def trailing_means(values: Numbers) -> Numbers:
    return np.array([mean(values[max(0, i + 1 - TRAILING):i + 1]) for i in range(len(values))])


def curve_of(lines: Iterable[Mapping[str, float]]) -> Curve:
    """`lines` as read from metrics.jsonl."""
    sums = {"step": 0.0, "images": 0.0, "seconds": 0.0, "nfe3": 0.0}
    points, evaluated = [], []
    for line in lines:
        get = line.get
        if get("step", 0) > 0:
            # Runs of older versions have no count of samples that were made.
            sums["images"] += get("rollout/samples", get("train/samples", 0))
            # NaN stays: a cost that was not logged once is not known.
            sums["nfe3"] += (get("rollout/rows_forward", math.nan) + get("train/rows_forward", math.nan)
                             + 3 * get("train/rows_backward", math.nan))
            sums["seconds"] += get("time/step_s", 0) - get("time/eval_s", 0)
        if math.isfinite(get("eval/reward_mean", math.nan)):
            points.append({**sums, "step": get("step", 0)})
            evaluated.append(line)
    column = {name: np.array([line.get(name, math.nan) for line in evaluated], np.float64)
              for name in sorted({"eval/reward_mean", "eval/minority_share", "eval/speckle_mean"}.union(*evaluated))}
    strict = np.full(len(evaluated), math.nan)
    for name in reversed(column):  # The first by name counts.
        if name.startswith("eval/reward_") and name.endswith("_strict_mean"):
            strict = np.where([name in line for line in evaluated], column[name], strict)
    finals = {"strict": strict, "speckle": column["eval/speckle_mean"], "minority": column["eval/minority_share"]}
    return Curve(reward=column["eval/reward_mean"], costs={name: np.array([point[name] for point in points]) for name in sums},
                 minority=column["eval/minority_share"], finals={name: _final(values) for name, values in finals.items()},
                 by={name[len("eval/by_"):-len("_mean")]: values for name, values in column.items()
                     if name.startswith("eval/by_") and name.endswith("_mean")})


def _final(values: Numbers) -> float:
    """The mean of the last three that were measured."""
    kept = values[np.isfinite(values)][-TRAILING:]
    return mean(kept) if len(kept) else math.nan
