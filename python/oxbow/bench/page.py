# SPDX-License-Identifier: Apache-2.0
"""learning.svg and learning.html: the curves of a comparison, as a picture and beside its tables."""
from __future__ import annotations

import io
import math
from html import escape
from itertools import groupby

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .comparison import Arm, Comparison, standard_error
from .curve import mean

COLUMNS = 2
# Apart for the common kinds of colour blindness (Okabe-Ito), as in a run's page.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#b0559a", "#c08a00", "#3d9fd6", "#6b7480", "#8a5a3c", "#2b2f36")
STYLE = """body{font:15px/1.5 system-ui,sans-serif;color:#1d2126;background:#fff;max-width:75rem;margin:2rem auto;padding:0 1rem}
.wide{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums}
th,td{text-align:left;padding:.25rem .7rem;border-bottom:1px solid #e3e5e8;white-space:nowrap}figure{margin:1rem 0}
figure svg{max-width:100%;height:auto}@media(prefers-color-scheme:dark){body{color:#e6e8ea;background:#16191d}
th,td{border-color:#33383e}figure{background:#fff}}"""


def picture(comparison: Comparison) -> str:
    """The mean held-out reward of each recipe over steps, with two standard errors over seeds, as SVG; of grids a chart for each
    point, with a line for each grid. Empty where no run is finished."""
    grids = any(arm.grid for arm in comparison.arms)
    charts: dict[str, list[tuple[str, Arm]]] = {}
    for arm in comparison.finished:
        if arm.grid or not grids:
            charts.setdefault(arm.point, []).append((arm.grid or arm.name, arm))
    if not charts:
        return ""
    colours = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(dict.fromkeys(name for of in charts.values() for name, _ in of))}
    columns = min(COLUMNS, len(charts))
    rows = math.ceil(len(charts) / columns)
    # The same bytes each time; texts that can be searched; a `$` in a name is no formula.
    with rc_context({"svg.hashsalt": "oxbow", "svg.fonttype": "none", "text.parse_math": False}):
        figure = Figure(figsize=(6 * columns if columns > 1 else 8, 3.4 * rows + 1.2), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False).flat
        for ax, (point, of) in zip(axes, charts.items()):
            ax.set(title=point, xlabel="step", ylabel="held-out reward")
            for name, arm in of:
                _draw(ax, arm, name, colours[name])
            if grids:
                ax.set_ylim(0, 1)
        for ax in list(axes)[len(charts):]:
            ax.set_axis_off()
        figure.suptitle(f"{comparison.name}: held-out reward by step, mean and two standard errors over seeds")
        lines = {line.get_label(): line for ax in figure.axes for line in ax.get_lines()}
        figure.legend(lines.values(), lines.keys(), loc="outside lower center", ncols=4, frameon=False)
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return out.getvalue()


def band(arm: Arm) -> np.ndarray:
    """By step of an evaluation: [step, mean, low, high]. Not beyond what any seed had: a reward of 0 to 1 has no band below 0."""
    points = sorted((step, reward) for curve in arm.curves for step, reward in zip(curve.costs["step"], curve.reward))
    rows = []
    for step, of in groupby(points, key=lambda point: point[0]):
        rewards = [reward for _, reward in of]
        middle, error = mean(rewards), standard_error(rewards)
        rows.append([step, middle, max(middle - 2 * error, min(rewards)), min(middle + 2 * error, max(rewards))])
    return np.array(rows).reshape(-1, 4)


def _draw(ax: Axes, arm: Arm, name: str, colour: str) -> None:
    steps, middle, low, high = band(arm).T
    ax.plot(steps, middle, color=colour, label=name, linewidth=2)
    ax.fill_between(steps, low, high, color=colour, alpha=0.18, linewidth=0)
    ax.grid(color="#e3e5e8")


def page(name: str, tables: str, drawing: str) -> str:
    """The document of learning.html: `tables`, those of learning.md, and the picture. It loads nothing from elsewhere."""
    parts = []
    for is_row, lines in groupby(tables.splitlines(), key=lambda line: line.startswith("|")):
        if not is_row:
            parts += [f'<p class="lead">{escape(line)}</p>' for line in lines if line]
            continue
        rows = [[escape(cell.strip()) for cell in line.split("|")[1:-1]] for line in lines if not line.startswith("|---")]
        cells = ["".join(f"<{kind}>{cell}</{kind}>" for cell in row) for row, kind in zip(rows, ["th"] + ["td"] * len(rows))]
        parts.append('<div class="wide"><table>\n' + "\n".join(f"<tr>{row}</tr>" for row in cells) + "\n</table></div>")
    if drawing:
        parts.append(f'<figure class="chart">{drawing[drawing.index("<svg"):]}</figure>')
    return (f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">\n'
            f"<title>{escape(name)}</title><style>{STYLE}</style></head><body>\n<h1>{escape(name)}</h1>\n" + "\n".join(parts) + "\n</body></html>\n")
