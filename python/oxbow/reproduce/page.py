# SPDX-License-Identifier: Apache-2.0
"""reproduced.md, .html and .svg: the runs' numbers beside those of the document."""
from __future__ import annotations

import io
import math
from typing import Any, Iterable, Mapping, Sequence

from matplotlib import rc_context
from matplotlib.figure import Figure

from ..bench.comparison import table
from ..bench.page import COLOURS
from ..bench.shares import Lines, series

TRAILING = 3


def value_at(lines: Lines, metric: str, step: int) -> float | None:
    """The mean of the last three values up to `step`, of a run that got there; 0: at the end. None: not measured, or not yet."""
    if not lines or lines[-1]["step"] < step:
        return None
    kept = [value for at, value in series(lines, metric) if not step or at <= step][-TRAILING:]
    return sum(kept) / len(kept) if kept else None


def published_table(published: Iterable[Mapping[str, Any]], runs: Mapping[str, Lines]) -> str:
    """A row for each number that the document prints. Empty where it prints none."""
    rows = []
    for of in published:
        ours = value_at(runs.get(of["recipe"], []), of["metric"], of["step"])
        rows.append([of["of"], of["recipe"], of["metric"], str(of["step"]) if of["step"] else "end", f"{of['value']:g}",
                     "not yet" if ours is None else f"{ours:.4g}", "" if ours is None else f"{ours - of['value']:+.3g}"])
    if not rows:
        return ""
    return ("\nNumbers of the document, and ours: the mean of the last three values up to the step.\n\n"
            + table(["where", "recipe", "metric", "step", "published", "ours", "off by"], rows))


def drawing(name: str, published: Sequence[Mapping[str, Any]], runs: Mapping[str, Lines]) -> str:
    """A chart for each metric that the document prints, else of the held-out reward: a line for each run, a dashed one for each
    published number. Empty where nothing was measured."""
    metrics = list(dict.fromkeys([of["metric"] for of in published] or ["eval/reward_mean"]))
    colours = {recipe: COLOURS[i % len(COLOURS)] for i, recipe in enumerate(runs)}
    measured = [metric for metric in metrics if any(series(lines, metric) for lines in runs.values())]
    if not measured:
        return ""
    with rc_context({"svg.hashsalt": "oxbow", "svg.fonttype": "none", "text.parse_math": False}):
        figure = Figure(figsize=(8, 3.4 * len(measured) + 1), layout="constrained")
        for ax, metric in zip(figure.subplots(len(measured), 1, squeeze=False).flat, measured):
            ax.set(xlabel="step", ylabel=metric)
            ax.grid(color="#e3e5e8")
            for recipe, lines in runs.items():
                if points := series(lines, metric):
                    ax.plot(*zip(*points), color=colours[recipe], label=recipe, linewidth=2)
            for of in (one for one in published if one["metric"] == metric):
                ax.axhline(of["value"], color=colours.get(of["recipe"], "#6b7480"), linestyle="--", linewidth=1)
                if of["step"]:
                    ax.plot([of["step"]], [of["value"]], "o", color=colours.get(of["recipe"], "#6b7480"))
            ax.legend(frameon=False)
        figure.suptitle(f"{name}: runs, and published numbers (dashed)")
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return out.getvalue()
