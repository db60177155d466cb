# SPDX-License-Identifier: Apache-2.0
"""The last line of a terminal: what trains, and how long the rest will take. Nothing elsewhere."""
from __future__ import annotations

import math
import os
import shutil
import sys
import time
from typing import Iterable

from ..metrics_file import read_lines
from ..run import METRICS
from .plan import Run

SHOW_SECONDS = 1.0


class RunsLine:
    def __init__(self) -> None:
        self.ended = 0
        self._start, self._last, self._shown = time.monotonic(), -math.inf, False
        self._rewritten = sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb" and not os.environ.get("NO_COLOR")

    def clear(self) -> None:
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
        self._shown = False

    def show(self, training: Iterable[Run], left: int) -> None:
        now = time.monotonic()
        if not self._rewritten or now - self._last < SHOW_SECONDS:
            return
        self._last = now
        parts = [f"{run.recipe} seed {run.seed} step {_step(run)}" for run in training]
        if self.ended:
            seconds = round((now - self._start) / self.ended * left)
            parts.append(f"ETA {seconds // 3600}:{seconds // 60 % 60:02d}:{seconds % 60:02d}")
        self.clear()
        print("   ".join(parts)[:shutil.get_terminal_size().columns - 1], end="", file=sys.stderr, flush=True)
        self._shown = True


def _step(run: Run) -> int:
    """The last step that it has logged; 0 before the first."""
    try:
        return int(read_lines(run.directory / METRICS)[-1]["step"])
    except (OSError, ValueError, IndexError):
        return 0
