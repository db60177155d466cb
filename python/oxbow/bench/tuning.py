# SPDX-License-Identifier: Apache-2.0
"""The choice of each recipe's learning rate: as many rates, seeds and prompts for every recipe."""
from __future__ import annotations

from typing import Mapping, Sequence

from .comparison import table
from .curve import mean

Scores = Mapping[tuple[str, float], Sequence[float]]  # By recipe and rate: the mean reward of each finished run.


def best_rates(scores: Scores) -> dict[str, float]:
    """The rate with the highest mean score, of equal ones the lower, by recipe. Recipes without a finished run have none."""
    best: dict[str, float] = {}
    for (recipe, rate), of in sorted(scores.items()):
        if of and (recipe not in best or mean(of) > mean(scores[recipe, best[recipe]])):
            best[recipe] = rate
    return best


def tuning_table(scores: Scores) -> str:
    """A row per recipe, a column per rate; the chosen one in bold."""
    rates, best = sorted({rate for _, rate in scores}), best_rates(scores)

    def cell(recipe: str, rate: float) -> str:
        of = scores.get((recipe, rate))
        text = f"{mean(of):.3f}" if of else "-"
        return f"**{text}**" if best.get(recipe) == rate else text

    return (f"Learning rates: {len(rates)} for every recipe, on seeds and prompts for tuning alone, up to "
            f"{max(map(len, scores.values()), default=0)} runs each; held-out reward averaged over all evaluations. The comparison takes "
            "the one in bold.\n\n" + table(["recipe", *(f"{rate:g}" for rate in rates)],
                                           ([recipe, *(cell(recipe, rate) for rate in rates)] for recipe in sorted({one for one, _ in scores}))))
