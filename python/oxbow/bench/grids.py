# SPDX-License-Identifier: Apache-2.0
"""Recipes that ran with several values of a setting, such as learning rates: where each still learns."""
from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import groupby
from typing import Callable, Sequence

from .comparison import Arm, Comparison, mean_text, table
from .curve import Curve, mean
from .paired import sign_flip_p

BySeed = dict[int, float]


@dataclass(frozen=True)
class Measure:
    """A number that a table compares."""

    title: str
    digits: int
    of: Callable[[Curve], float]  # NaN: the run does not have it.
    best: Callable[..., int]      # max: more is better.

    def by_seed(self, arm: Arm) -> BySeed:
        values = {seed: float(self.of(curve)) for curve, seed in zip(arm.curves, arm.seeds)}
        return {seed: values[seed] for seed in sorted(values) if math.isfinite(values[seed])}


def grid_tables(comparison: Comparison) -> str:
    """Tables for each set of recipes whose grids have the same points: a row per grid, a column per point, mean and standard error
    over seeds, of the held-out reward at the end and of the steps to each level. Then the mean over all points: its difference to
    the grid of the baseline, over seeds that both have finished at every point, and p of sign flips. So a recipe is judged on the
    whole row. Last the same difference where each has the point that suits it best. Empty where no recipe has a grid."""
    grids = [list(arms) for name, arms in groupby(comparison.arms, key=lambda arm: arm.grid) if name]
    measures = [Measure("held-out reward at the end", 3, lambda curve: curve.final_reward, max)]
    # A run that never got there counts with all its steps.
    measures += [Measure(f"steps to {level:g}", 1, lambda curve, level=level: curve.cost("step", level) if len(curve) else math.nan, min)
                 for level in comparison.levels]
    text = ""
    done: list[list[str]] = []
    for grid in grids:
        if (points := _points(grid)) in done:
            continue
        done.append(points)
        alike = [one for one in grids if _points(one) == points]
        baseline = next((one for one in alike if comparison.baseline in [arm.name for arm in one]), grid)
        text += (f"\nBy point of a grid, mean and standard error over seeds. Differences are to {baseline[0].grid}, seed by seed, with p "
                 "of sign flips: of each point, of the means over all points, and of the point that is best for the one to the point "
                 "that is best for the other, both chosen on these runs. A run that never reached a level counts with all its steps.\n")
        for measure in measures:
            text += "\n" + table([measure.title, *points, "mean of the row", "difference", "p", "best", "difference at the best", "p"],
                                 [row for one in alike for row in _rows(one, baseline, measure)])
    return text


def _points(grid: Sequence[Arm]) -> list[str]:
    return [arm.point for arm in grid]


def _rows(grid: Sequence[Arm], baseline: Sequence[Arm], measure: Measure) -> list[list[str]]:
    """The grid's row and, of another than the baseline's, one of the differences at single points."""
    ours, theirs = ([measure.by_seed(arm) for arm in one] for one in (grid, baseline))
    means, their_means = _row_means(ours), _row_means(theirs)
    best, their_best = _best(ours, measure), _best(theirs, measure)
    row = [grid[0].grid, *(mean_text(values.values(), measure.digits) for values in ours), mean_text(means.values(), measure.digits)]
    best_name = "-" if best is None else grid[best].point
    same = grid is baseline
    if same or best is None or their_best is None:
        row += ["", "", best_name, "", ""]
    else:
        row += [*_difference(means, their_means, measure.digits), best_name, *_difference(ours[best], theirs[their_best], measure.digits)]
    if same:
        return [row]
    single = [_differences(values, others) for values, others in zip(ours, theirs)]
    return [row, ["difference, p", *(f"{mean(of):+.{measure.digits}f}, {sign_flip_p(of):.2g}" if of else "-" for of in single),
                  *[""] * 6]]


def _row_means(grid: Sequence[BySeed]) -> BySeed:
    """The mean over all points, of seeds that have finished at every one."""
    return {seed: mean([values[seed] for values in grid]) for seed in sorted(set(grid[0]).intersection(*grid[1:]))}


def _best(grid: Sequence[BySeed], measure: Measure) -> int | None:
    """The point with the best mean; None without a finished run."""
    means = {i: mean(list(values.values())) for i, values in enumerate(grid) if values}
    return measure.best(means, key=lambda i: means[i], default=None)


def _differences(ours: BySeed, theirs: BySeed) -> list[float]:
    """Over seeds that both have."""
    return [value - theirs[seed] for seed, value in ours.items() if seed in theirs]


def _difference(ours: BySeed, theirs: BySeed, digits: int) -> list[str]:
    """`+0.120 (8 seeds)`, `0.0078`."""
    of = _differences(ours, theirs)
    return [f"{mean(of):+.{digits}f} ({len(of)} seeds)", f"{sign_flip_p(of):.3g}"] if of else ["-", "-"]
