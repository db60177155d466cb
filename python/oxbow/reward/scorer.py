# SPDX-License-Identifier: Apache-2.0
"""One reward at work: a thread that loads it and then scores batches, one after the other.

The thread is the only one that touches the reward, so models need no lock, and what load() sets for
its thread (a device, a context) holds for score().
"""
from __future__ import annotations

import threading
from typing import Callable, Sequence

from .batch_queue import BatchQueue, Work
from .definition import Reward
from .outcome import Outcome, outcomes
from .status import EXIT_DATA, EXIT_FAILURE, SetupError, one_line


class Scorer:
    def __init__(self, reward: Reward, batch_max: int):
        self.reward = reward
        self.batch_max = reward.batch_max or batch_max
        self.load_error: BaseException | None = None
        self._queue = BatchQueue(self.batch_max, reward.wait_ms / 1000, joins=not reward.groupwise)
        self._serving = threading.Event()

    @property
    def name(self) -> str:
        return self.reward.name

    @property
    def serving(self) -> bool:
        return self._serving.is_set()

    def start(self, loaded: Callable[[], object]) -> None:
        """Begins to load. `loaded` is called in the thread, also after an error (load_error)."""
        # A daemon: a reward that never returns must not keep the process from ending.
        threading.Thread(target=self._run, args=(loaded,), name=f"reward {self.name}",
                         daemon=True).start()

    def put(self, works: Sequence[Work]) -> None:
        self._queue.put(works)

    def close(self) -> None:
        self._serving.clear()
        self._queue.close()

    def _run(self, loaded: Callable[[], object]) -> None:
        try:
            self.reward.load()
            self._serving.set()
        except (Exception, SystemExit) as error:
            self.load_error = error
        loaded()
        if self.load_error is not None:
            return
        while batch := self._queue.take():
            self._score(batch)

    def _score(self, batch: list[Work]) -> None:
        made = self._outcomes(batch)
        if all(not one.ok for one in made) and len({id(work.call) for work in batch}) > 1:
            # An item of one call may have broken them all: no other call is to pay for it.
            made = [one for call in _by_call(batch) for one in self._outcomes(call)]
            batch = [work for call in _by_call(batch) for work in call]
        start = 0
        for work in batch:
            work.deliver(made[start:start + len(work.items)])
            start += len(work.items)

    def _outcomes(self, batch: Sequence[Work]) -> list[Outcome]:
        return outcomes(self.name, self.reward, [item for work in batch for item in work.items])


def _by_call(batch: Sequence[Work]) -> list[list[Work]]:
    calls: dict[int, list[Work]] = {}
    for work in batch:
        calls.setdefault(id(work.call), []).append(work)
    return list(calls.values())


def load_failure(name: str, error: BaseException) -> SetupError:
    """Exit code 4 where a file or a package is missing: the same start would end the same way."""
    missing = isinstance(error, (FileNotFoundError, ImportError))
    return SetupError(f"{name}: load() failed: {one_line(error)}", EXIT_DATA if missing else EXIT_FAILURE)
