# SPDX-License-Identifier: Apache-2.0
"""Joins work of all callers into batches for one reward.

Work is what must stay together: one item, or a whole group. A batch is full at `items_max` items;
until then it waits up to `wait_seconds` for more, from the moment that its first work was there.
Work that its caller gave up is dropped. Callers bound what waits here (Budget).
"""
from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Callable, Sequence

from .item import Item
from .outcome import Outcome


@dataclass(eq=False)
class Work:
    """Items of one call, and where their outcomes go. `deliver` is called in the scoring thread."""

    call: object
    items: Sequence[Item]
    deliver: Callable[[list[Outcome]], None]
    given_up: bool = False


class BatchQueue:
    """Thread-safe. `now` gives seconds of a steady clock."""

    def __init__(self, items_max: int, wait_seconds: float, *, joins: bool = True,
                 now: Callable[[], float] = time.monotonic):
        self._items_max = items_max
        self._wait_seconds = wait_seconds if joins else 0.0
        self._joins = joins
        self._now = now
        self._changed = threading.Condition()
        self._waiting: deque[tuple[float, Work]] = deque()
        self._closed = False

    def put(self, works: Sequence[Work]) -> None:
        with self._changed:
            if self._closed:
                raise RuntimeError("the queue is closed")
            self._waiting.extend((self._now(), work) for work in works)
            self._changed.notify_all()

    def close(self) -> None:
        """No more work comes: take() returns what waits, and then nothing."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def take(self) -> list[Work]:
        """The next batch; waits for one. Empty: the queue is closed and has no work."""
        with self._changed:
            while True:
                self._drop_given_up()
                if self._waiting:
                    left = self._waiting[0][0] + self._wait_seconds - self._now()
                    if self._closed or left <= 0 or self._full():
                        return self._cut()
                    self._changed.wait(left)
                elif self._closed:
                    return []
                else:
                    self._changed.wait()

    def _drop_given_up(self) -> None:
        self._waiting = deque(one for one in self._waiting if not one[1].given_up)

    def _full(self) -> bool:
        return sum(len(work.items) for _, work in self._waiting) >= self._items_max

    def _cut(self) -> list[Work]:
        batch = [self._waiting.popleft()[1]]
        room = self._items_max - len(batch[0].items)
        while self._joins and self._waiting and len(self._waiting[0][1].items) <= room:
            batch.append(self._waiting.popleft()[1])
            room -= len(batch[-1].items)
        return batch


PAUSE_MIN = 0.1


class Budget:
    """Items and bytes that may wait in a server at a time. Used by one thread, so it has no lock."""

    def __init__(self, items_max: int, bytes_max: int):
        self.items_max = items_max
        self.bytes_max = bytes_max
        self.items = 0
        self.bytes = 0
        self.pause = PAUSE_MIN  # Seconds after which a caller that found no room may ask again.

    def take(self, items: int, size: int) -> bool:
        """False, with nothing taken, if there is no room."""
        if self.items + items > self.items_max or self.bytes + size > self.bytes_max:
            return False
        self.items += items
        self.bytes += size
        return True

    def give_back(self, items: int, size: int, held: float = 0.0) -> None:
        """`held`: seconds for which this room was taken."""
        self.pause = max(PAUSE_MIN, held)
        self.items -= items
        self.bytes -= size
