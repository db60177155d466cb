# SPDX-License-Identifier: Apache-2.0
"""Shares of clipped rows by the origin of a sample: fresh, of older weights, replayed (OP-GRPO, section 4.2)."""
from __future__ import annotations

import math
from typing import Iterable, Mapping, Sequence

from .comparison import table
from .curve import mean

Lines = Sequence[Mapping[str, float]]
ORIGINS = ("fresh", "stale", "replay")


def series(lines: Lines, metric: str) -> list[tuple[float, float]]:
    """(step, value) where the metric was measured."""
    return [(line["step"], line[metric]) for line in lines if isinstance(line.get(metric), (int, float)) and math.isfinite(line[metric])]


def shares_table(runs: Mapping[str, Iterable[Lines]]) -> str:
    """A row for each recipe: means over the steps of its runs. Empty where no run has such a share."""
    rows = []
    for recipe, of in runs.items():
        values = [[value for lines in of for _, value in series(lines, f"train/clip_frac_{origin}")] for origin in ORIGINS]
        if any(values):
            rows.append([recipe, *(f"{100 * mean(one):.1f} %" if one else "-" for one in values)])
    return ("\nShares of rows outside the clip range, means over the steps of all runs.\n\n"
            + table(["recipe", *(f"clipped, {origin}" for origin in ORIGINS)], rows)) if rows else ""
