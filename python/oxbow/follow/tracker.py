# SPDX-License-Identifier: Apache-2.0
"""The interface of an experiment tracker for a follower."""
from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from typing import Any, Protocol, Sequence

from ..picture import Picture
from ..reward.status import EXIT_UNAVAILABLE, SetupError, one_line
from ..run import Run


@dataclass(frozen=True)
class Where:
    """The run's place in the tracker."""

    project: str = "oxbow"
    directory: str = ""  # For the tracker's local files; empty: its default.
    offline: bool = False
    tags: Sequence[str] = field(default_factory=tuple)


EVALUATION = "samples/eval"  # The name that trackers give to the pictures of a step.


class Tracker(Protocol):
    remedy: str  # Says how a person can help if it refuses.

    def open(self, run: Run, where: Where, tracker_run: str) -> str:
        """Starts a run of the tracker, or goes on with `tracker_run`. Returns the id to go on with later."""

    def last_step(self) -> int | None:
        """The last whole step that has arrived, -1: none; None: this tracker cannot tell. Asked after open()."""

    def log(self, step: int, numbers: dict[str, float], pictures: Sequence[Picture]) -> None:
        """All of one step, at once. Numbers that are not finite are NaN. Each picture has a file."""

    def close(self) -> None:
        """Waits until everything is stored."""


_TRACKERS = {"wandb": "Wandb", "swanlab": "Swanlab", "mlflow": "Mlflow"}
NAMES = tuple(_TRACKERS)


class Spoken:
    """A tracker whose every error is a SetupError: one line that names it and says what to do."""

    def __init__(self, name: str, tracker: Tracker):
        self._name, self._tracker = name, tracker

    def __getattr__(self, call: str) -> Any:
        def called(*arguments: Any) -> Any:
            try:
                return getattr(self._tracker, call)(*arguments)
            except Exception as error:  # pylint: disable=broad-except
                raise SetupError(f"{self._name} does not take the run: {one_line(error)} ({self._tracker.remedy})",
                                 EXIT_UNAVAILABLE) from error
        return called


def tracker_of(name: str) -> Any:
    """SetupError if the tracker's package is not installed."""
    try:
        return Spoken(name, getattr(importlib.import_module(f".{name}_tracker", __package__), _TRACKERS[name])())
    except ImportError as error:
        raise SetupError(f"--to {name} takes its package: pip install './python[{name}]' in oxbow's sources ({error})") from None
