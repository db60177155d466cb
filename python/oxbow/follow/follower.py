# SPDX-License-Identifier: Apache-2.0
"""Hands the steps of a run to a tracker, each once."""
from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Callable

from ..metrics_file import Tail, numbers_of
from ..picture import Picture
from ..process_lock import State
from ..run import CONFIG, METRICS, Run
from .position import Position
from .tracker import Tracker, Where

FOLDER = "followers"


@dataclass(frozen=True)
class Options:
    where: Where = Where()
    interval: float = 2.0  # Seconds between looks at the run.
    once: bool = False  # Copy what is there and end.
    silence_max: float = 3600.0  # Seconds without a new line after which a run on another machine counts as ended.
    afresh: bool = False  # A new run of the tracker, from step 0.
    pictures: int = 64  # Handed over of each evaluation, at most; 0: none.


class Follower:
    """Follows one run into one tracker until the run ends or `stop` is set. `tell` gets each last step handed over."""

    def __init__(self, run: Run, name: str, tracker: Tracker, options: Options,
                 stop: threading.Event | None = None, now: Callable[[], float] = time.monotonic,
                 tell: Callable[[int], None] = lambda step: None):
        self._run, self._tracker, self._options, self._now, self._tell = run, tracker, options, now, tell
        self._stop = stop or threading.Event()
        self._path = run.directory / FOLDER / f"{name}.json"
        self._tail = Tail(run.directory / METRICS)
        self._last = -1  # The last step that was handed over.

    def follow(self) -> int:
        """Returns the number of steps that were copied.

        Trackers keep steps in memory for a while. So a step counts as kept once the tracker closed in order, or when it
        says so itself. After a follower was killed the next one hands over all other steps again.
        """
        position = Position(self._run.uid) if self._options.afresh else Position.read(self._path, self._run.uid)
        position.tracker_run = self._tracker.open(self._run, self._options.where, position.tracker_run)
        position.write(self._path)
        told = self._tracker.last_step()
        first = self._last = position.kept if told is None else told
        copied = 0
        try:
            copied = self._until_the_end()
        finally:
            self._tracker.close()
            if self._last != first:
                position.kept = self._last
                position.write(self._path)
        return copied

    def _until_the_end(self) -> int:
        copied, heard = 0, self._now()
        while True:
            # Asked before reading: what was written before the run's end is then read after it.
            state = self._run.state
            new = self._copy()
            copied += new
            if new:
                heard = self._now()
                self._tell(self._last)
            if self._options.once or self._stop.is_set() or state is State.ENDED:
                return copied
            # The end of a run on another machine cannot be seen.
            silent = self._now() - heard > self._options.silence_max
            if state is State.ELSEWHERE and (silent or self._last >= self._run.config["run"]["steps"]):
                return copied
            self._stop.wait(self._options.interval)

    def _copy(self) -> int:
        """Steps that were handed over are left out: a resumed run writes those behind its checkpoint once more."""
        copied = 0
        for line in self._tail.new_lines():
            step = int(line["step"])
            if step <= self._last:
                continue
            numbers = {name: value for name, value in numbers_of(line).items() if name != "step"}
            self._tracker.log(step, numbers, self._pictures(step))
            self._last = step
            copied += 1
        return copied

    def _pictures(self, step: int) -> list[Picture]:
        """Those with files, which are written before the step's line."""
        found = [one for one in self._run.evaluated(step) if one.path is not None and one.path.exists()]
        return found[:self._options.pictures]


def wait_for_run(directory: Path, seconds: float, stop: threading.Event, interval: float = 1.0,
                 say: Callable[[str], None] = lambda line: None) -> Any:
    """The run there, which may start within `seconds`; `say` gets a line if it is not there yet. FileNotFoundError if it does not."""
    until = time.monotonic() + seconds
    if seconds > 0 and not (directory / CONFIG).exists():
        beside = [one.parent.name for one in directory.absolute().parent.glob(f"*/{CONFIG}")]
        near = get_close_matches(directory.name, beside, 1)
        say(f"no run there yet, waits {seconds:g} s for it: {directory}" + (f"; did you mean {directory.parent / near[0]}?" if near else ""))
    while True:
        try:
            run = Run(directory)
            if run.uid or run.state is not State.LIVE:
                return run
        except FileNotFoundError:
            if time.monotonic() >= until or stop.is_set():
                raise
        stop.wait(interval)
