# SPDX-License-Identifier: Apache-2.0
"""Metrics as columns."""
from __future__ import annotations

import math
from typing import Any, Sequence


def table_of(lines: Sequence[dict[str, float]]) -> Any:
    """A DataFrame indexed by step; without pandas a dict of numpy arrays [lines]. Columns in order of name."""
    import numpy as np

    names = sorted({name for line in lines for name in line} - {"step"})
    steps = np.array([int(line["step"]) for line in lines], np.int64)
    columns = {name: np.array([line.get(name, math.nan) for line in lines], np.float64) for name in names}
    try:
        import pandas
    except ImportError:
        return {"step": steps, **columns}
    return pandas.DataFrame(columns, index=pandas.Index(steps, name="step"))
