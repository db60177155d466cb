# SPDX-License-Identifier: Apache-2.0
"""learning.md: a row for each recipe, and the tables of paired runs and of grids."""
from __future__ import annotations

import math

import numpy as np

from .comparison import Arm, Comparison, cost_ratio, mean_text, pairs_of, table
from .curve import mean, trailing_means
from .grids import grid_tables
from .paired import bootstrap, differences_at_equal, sign_flip_p

HEAD = ["recipe", "reached", "steps", "steps ratio", "time ratio", "NFE3 ratio", "images ratio", "final reward", "strict", "speckle",
        "rarer layout", "collapsed", ""]
PAIRED_HEAD = ["recipe", "reached", "steps", "steps ratio", "p", "NFE3 ratio", "p", "images ratio", "p"]


def learning_table(comparison: Comparison) -> str:
    """A row per recipe: how many runs reached the level and when, and ratios to the full length of the baseline's runs. A run
    that never reached the level counts with its full cost, and the ratio is marked as a lower bound."""
    level = comparison.level_to_reach
    if level is None:
        return "No run of the baseline is finished.\n"
    own = "" if comparison.level > 0 else ", the level's own uncertainty among them"
    return (f"Level: held-out reward {level:.3f}, mean of three evaluations in a row. Ratios are to whole runs of {comparison.baseline}, "
            f"with 95 % bootstrap intervals over seeds{own}; `>=`: some run never reached the level and counts with all it took.\n\n"
            + table(HEAD, (_row(arm, comparison, level) for arm in comparison.finished))
            + grid_tables(comparison) + _paired_tables(comparison) + _equal_layout_tables(comparison) + _difficulty_tables(comparison))


def _row(arm: Arm, comparison: Comparison, level: float) -> list[str]:
    measured = [curve for curve in arm.curves if len(curve)]
    reached = sum(curve.reached(level) for curve in measured)
    bound = "" if reached == len(measured) else ">= "
    ratios = []
    for cost in ("step", "seconds", "nfe3", "images"):
        # Baseline runs count to their end: their final reward is the level, which half of them reach earlier only by chance.
        of = cost_ratio(arm, comparison.of_baseline, comparison.level, cost, to_whole_runs=True)
        ratios.append(f"{bound}{of.ratio:.3f} ({of.low:.3f} to {of.high:.3f})" if of else "-")
    return [arm.name, f"{reached}/{len(arm.curves)}", f"{bound}{mean([curve.cost('step', level) for curve in measured]):.1f}", *ratios,
            mean_text(curve.final_reward for curve in arm.curves),
            *(mean_text(curve.finals[name] for curve in arm.curves) for name in ("strict", "speckle", "minority")),
            str(sum(curve.collapsed for curve in arm.curves)), arm.note]


def _paired_row(arm: Arm, baseline: Arm, level: float) -> list[str]:
    """The costs to reach the level, as ratios to those of the baseline to reach the same level."""
    pairs = pairs_of(arm, baseline)
    short, other_short = (any(not pair[i].reached(level) for pair in pairs) for i in (0, 1))
    sign = {(True, True): "~ ", (True, False): ">= ", (False, True): "<= "}.get((short, other_short), "")
    cells = [arm.name, f"{sum(ours.reached(level) for ours, _ in pairs)}/{len(pairs)}",
             f"{'>= ' if short else ''}{mean([ours.cost('step', level) for ours, _ in pairs]):.1f}"]
    for cost in ("step", "nfe3", "images"):
        of = cost_ratio(arm, baseline, level, cost, to_whole_runs=False)
        if arm is baseline:
            cells += ["1", ""]
        elif of is None:
            cells += ["-", "-"]
        else:
            p = sign_flip_p([ours.cost(cost, level) - theirs.cost(cost, level) for ours, theirs in pairs])
            cells += [f"{sign}{of.ratio:.2f} ({of.low:.2f} to {of.high:.2f})", f"{p:.3g}"]
    return cells


def _paired_tables(comparison: Comparison) -> str:
    """Recipes against the baseline seed by seed, at each level that was fixed beforehand."""
    baseline = comparison.of_baseline
    return "".join(
        f"\nTo held-out reward {level:g}, fixed beforehand; ratios to {baseline.name} at the same level, over pairs of runs with the same "
        "seed; 95 % bootstrap intervals over pairs, p of sign flips. A run that never got there counts with all it took (`>=`, `<=` of "
        "the baseline, `~` of both).\n\n" + table(PAIRED_HEAD, (_paired_row(arm, baseline, level) for arm in comparison.finished))
        for level in comparison.levels if baseline.curves)


def _equal_layout_tables(comparison: Comparison) -> str:
    """Recipes at equal shares of two equally right layouts. A run that gives up one layout has less to learn and looks faster, so
    steps alone may say what a recipe does to layouts. Empty where no layout was measured or no share is above 0."""
    if not any((curve.minority > 0).any() for arm in comparison.arms for curve in arm.curves):
        return ""
    baseline = comparison.of_baseline
    text = ""
    for level in comparison.levels if baseline.curves else []:
        rows = (_equal_layout_row(arm, baseline, level) for arm in comparison.arms)
        text += (f"\nTo held-out reward {level:g} at equal shares of the layouts: ratios of steps to {baseline.name}, less what the rarer "
                 "layout's share explains (its slope within recipes).\n\n"
                 + table(["recipe", "rarer layout, where the level is reached", "steps ratio at equal shares"], filter(None, rows)))
    return text


def _equal_layout_row(arm: Arm, baseline: Arm, level: float) -> list[str]:
    both = np.array([[ours.cost("step", level), theirs.cost("step", level), *(trailing_means(one.minority)[one.place(level)]
                                                                              for one in (ours, theirs))]
                     for ours, theirs in pairs_of(arm, baseline)]).reshape(-1, 4)
    both = both[np.isfinite(both).all(axis=1)]
    if not len(both):
        return []

    def ratio(items: np.ndarray) -> np.ndarray:
        columns = both[items].transpose(2, 0, 1)  # [4, samples, pairs]
        base = columns[1].sum(axis=1)
        more = differences_at_equal(*columns).sum(axis=1)
        return 1 + np.divide(more, base, out=np.full(len(base), math.nan), where=base > 0)

    # The slope's uncertainty is in the interval; sign flips of adjusted differences would not have it.
    of = bootstrap(len(both), ratio)
    text = "1" if arm is baseline else f"{of.ratio:.2f} ({of.low:.2f} to {of.high:.2f})" if of else "-"
    return [arm.name, f"{mean(both[:, 2]):.3f}", text]


def _difficulty_tables(comparison: Comparison) -> str:
    """Reward at the end by value of `eval.by`, and what it cost to reach the first level on the value that began lowest. Empty
    where nothing was measured by value."""
    baseline = comparison.of_baseline
    first: dict[str, list[float]] = {}
    for curve in baseline.curves:
        for value, rewards in curve.by.items():
            if math.isfinite(rewards[0]):
                first.setdefault(value, []).append(rewards[0])
    if not first:
        return ""
    hardest = min(sorted(first), key=lambda value: mean(first[value]))
    values = sorted(baseline.curves[0].by)
    text = "\nHeld-out reward at the end by difficulty.\n\n" + table(["recipe", *values], (
        [arm.name, *(mean_text(curve.final_reward for curve in arm.of_value(value).curves) for value in values)]
        for arm in comparison.finished))
    if not comparison.levels:
        return text
    level, of_baseline = comparison.levels[0], baseline.of_value(hardest)
    rows = (_paired_row(of_baseline if arm is baseline else arm.of_value(hardest), of_baseline, level) for arm in comparison.finished)
    return text + f"\nTo reward {level:g} on the prompts that began lowest ({hardest}).\n\n" + table(PAIRED_HEAD, rows)
