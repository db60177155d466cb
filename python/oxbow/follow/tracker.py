# SPDX-License-Identifier: Apache-2.0
"""What a follower asks of an experiment tracker."""
from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from typing import Any, Protocol, Sequence

from ..reward.status import SetupError
from ..run import Run
from ..sheet import Sheet


@dataclass(frozen=True)
class Where:
    """Where in the tracker the run goes."""

    project: str = "oxbow"
    directory: str = ""  # For the tracker's local files; empty: its default.
    offline: bool = False
    tags: Sequence[str] = field(default_factory=tuple)


class Tracker(Protocol):
    def open(self, run: Run, where: Where, tracker_run: str) -> str:
        """Starts a run of the tracker, or goes on with `tracker_run`. Returns the id to go on with later."""

    def last_step(self) -> int | None:
        """The last whole step that has arrived, -1: none; None: this tracker cannot tell. Asked after open()."""

    def log(self, step: int, numbers: dict[str, float], sheets: Sequence[Sheet]) -> None:
        """All of one step, at once. Numbers that are not finite are NaN."""

    def close(self) -> None:
        """Waits until everything is stored."""


_TRACKERS = {"wandb": "Wandb", "swanlab": "Swanlab", "mlflow": "Mlflow"}
NAMES = tuple(_TRACKERS)


def tracker_of(name: str) -> Any:
    """SetupError if the tracker's package is not installed."""
    try:
        return getattr(importlib.import_module(f".{name}_tracker", __package__), _TRACKERS[name])()
    except ImportError as error:
        raise SetupError(f"--to {name} takes its package: pip install 'oxbow[{name}]' ({error})") from None
