# SPDX-License-Identifier: Apache-2.0
"""Figures that the steps of run.py have printed, as a table for docs/lab/gpu.md."""
import re

HEADER = "| step | figure | measured | predicted | off by |\n|---|---|---|---|---|\n"


def number(value):
    return f"{value:.4g}" if value < 1e4 else f"{value:.0f}"


def predicted(figure):
    if figure.low is None:
        return ""
    low, high = number(figure.low), number(figure.high)
    return low if low == high else f"{low}-{high}"


def off_by(figure, value):
    """How far a number is from the nearer end of its prediction, in per cent: a miss over 10 % is a finding."""
    if figure.low is None:
        return ""
    end = min(max(value, figure.low), figure.high)
    return "" if end == value else f"{100 * (value - end) / end:+.0f} %" if end else f"{value - end:+g}"


def value_of(figure, text):
    found = None
    for found in re.finditer(figure.pattern, text):
        pass
    return float(found[1]) if found else None


def rows(step, outcome, text, smoke=False):
    """Lines of the table: how the step ended unless it ended well, and what it printed. Sizes of a smoke test are others,
    so nothing is predicted for them."""
    if outcome:
        yield f"| {step.name} | **{outcome}** | | | |"
    for figure in step.figures:
        value = value_of(figure, text)
        if value is None:
            if not outcome and "failed" not in figure.name:
                yield f"| {step.name} | {figure.name} | not printed | {predicted(figure)} | |"
            continue
        expected = ("", "") if smoke else (predicted(figure), off_by(figure, value))
        yield f"| {step.name} | {figure.name} | {f'{number(value)} {figure.unit}'.strip()} | {expected[0]} | {expected[1]} |"


def document(machine, lines, seconds):
    """The whole file. `machine`: lines about it."""
    return "\n".join([*machine, "", HEADER + "\n".join(lines), "", f"All of it took {seconds:.0f} s."]) + "\n"
