# SPDX-License-Identifier: Apache-2.0
"""When a process that has died starts again, as `oxbow train` decides it (docs/formats.md). Pure: time comes in."""
from __future__ import annotations

from dataclasses import dataclass

FINAL = (2, 4, 7)  # Exit codes with which the same start would end again.
RESTARTS_MIN = 5
PAUSE_FIRST, PAUSE_MAX, PAUSE_BESIDE_MAX = 0.2, 60.0, 600.0  # Seconds; the last while another of its kind lives.


@dataclass
class _Trouble:
    deaths: int
    since: float
    due: float


class Restarts:
    def __init__(self, patience: float):
        """`patience`: seconds for which deaths without a committed step end nothing."""
        self._patience = patience
        self._troubles: dict[str, _Trouble] = {}

    def died(self, name: str, code: int | None, now: float, beside: bool = False) -> bool:
        """Counts a death. False if it ends the run; never where another of its kind lives beside it."""
        trouble = self._troubles.setdefault(name, _Trouble(0, now, now))
        trouble.deaths += 1
        longest = PAUSE_BESIDE_MAX if beside else PAUSE_MAX
        trouble.due = now + min(PAUSE_FIRST * 2 ** min(trouble.deaths - 1, 20), longest)
        if beside:
            return True
        over = trouble.deaths > RESTARTS_MIN and now - trouble.since >= self._patience
        return code not in FINAL and not over

    def due(self, name: str, now: float) -> bool:
        """Whether the pause of this one is over."""
        return name not in self._troubles or now >= self._troubles[name].due

    def deaths(self, name: str) -> int:
        return self._troubles[name].deaths if name in self._troubles else 0

    def progress(self) -> None:
        """The run has committed a step."""
        self._troubles.clear()
