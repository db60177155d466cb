# SPDX-License-Identifier: Apache-2.0
"""The finished runs of a comparison, and how every table writes their numbers."""
from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Iterable, Sequence

import numpy as np

from .curve import Curve, Numbers, mean
from .paired import Interval, bootstrap


@dataclass(frozen=True)
class Arm:
    """The finished runs of one recipe."""

    name: str
    curves: list[Curve]
    seeds: list[int]
    note: str = ""
    grid: str = ""   # The recipe of whose grid this is a point, and which point.
    point: str = ""

    def of_value(self, value: str) -> Arm:
        """Its runs on the prompts of one value of `eval.by`."""
        kept = [(curve.of_value(value), seed) for curve, seed in zip(self.curves, self.seeds) if value in curve.by]
        return Arm(self.name, [curve for curve, _ in kept], [seed for _, seed in kept], self.note)


@dataclass(frozen=True)
class Comparison:
    name: str
    baseline: str  # One of `arms`.
    arms: list[Arm]
    level: float = 0  # 0: the baseline's final reward, mean over its curves.
    levels: list[float] = field(default_factory=list)  # Fixed beforehand, for comparisons seed by seed.

    @property
    def of_baseline(self) -> Arm:
        return next(arm for arm in self.arms if arm.name == self.baseline)

    @property
    def finished(self) -> list[Arm]:
        return [arm for arm in self.arms if arm.curves]

    @property
    def level_to_reach(self) -> float | None:
        """None if the baseline has no finished run."""
        if self.level > 0:
            return self.level
        rewards = [curve.final_reward for curve in self.of_baseline.curves if math.isfinite(curve.final_reward)]
        return mean(rewards) if rewards else None


def pairs_of(arm: Arm, baseline: Arm) -> list[tuple[Curve, Curve]]:
    """Runs of the same seed; both have evaluations."""
    return [(ours, theirs) for ours, seed in zip(arm.curves, arm.seeds) for theirs, other in zip(baseline.curves, baseline.seeds)
            if seed == other and len(ours) and len(theirs)]


def cost_ratio(arm: Arm, baseline: Arm, level: float, cost: str, to_whole_runs: bool) -> Interval | None:
    """mean(arm) / mean(baseline) of a cost over common seeds, with its interval. With a level of 0 it is the baseline's own final
    reward, estimated in every resample; `to_whole_runs`: to what all of the baseline's runs took. None: a cost was not logged."""
    pairs = pairs_of(arm, baseline)

    def ratio(items: np.ndarray) -> Numbers:
        ends = np.array([theirs.final_reward for _, theirs in pairs])
        wanted = np.full(len(items), level) if level > 0 else ends[items].mean(axis=1)
        ours = np.stack([one.cost(cost, wanted) for one, _ in pairs], axis=1)  # [samples, pairs]
        theirs = np.stack([np.full(len(items), one.costs[cost][-1]) if to_whole_runs else one.cost(cost, wanted) for _, one in pairs],
                          axis=1)
        above, below = (np.take_along_axis(of, items, axis=1).sum(axis=1) for of in (ours, theirs))
        known = np.isfinite(above) & np.isfinite(below) & (below > 0)
        return np.divide(above, below, out=np.full(len(items), math.nan), where=known)

    return bootstrap(len(pairs), ratio)


def standard_error(values: Sequence[float]) -> float:
    """The standard error of a mean over runs; 0 of a single value."""
    return float(np.std(values, ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else 0.0


def mean_text(values: Iterable[float], digits: int = 3) -> str:
    """`0.970 +- 0.010`: the mean of those that were measured and its standard error; of a single value no error; `-` of none."""
    kept = [value for value in values if math.isfinite(value)]
    if not kept:
        return "-"
    return f"{mean(kept):.{digits}f}" + (f" +- {standard_error(kept):.{digits}f}" if len(kept) > 1 else "")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of Markdown."""
    return "".join(line + "\n" for line in [row_text(head), "|" + "---|" * len(head), *map(row_text, rows)])


def row_text(cells: Sequence[str]) -> str:
    """An empty cell is one space wide."""
    return "|" + "".join(f" {cell} |" if cell else " |" for cell in cells)
