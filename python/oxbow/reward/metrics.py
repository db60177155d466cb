# SPDX-License-Identifier: Apache-2.0
"""The counts of a reward server, as verbs, and its page in Prometheus' text format.

Names, labels and buckets are those of oxbow's own reward server (docs/formats.md, metrics).
"""
from __future__ import annotations

import bisect
import os
import resource
import threading
import time
from typing import Iterable, Sequence

import grpc

from .definition import Reward
from .outcome import Outcome

_SECONDS = (.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10)
_ITEMS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_INVALID = int(grpc.StatusCode.INVALID_ARGUMENT.value[0])
_START = time.time()

Labels = tuple[tuple[str, str], ...]


class _Histogram:
    def __init__(self, bounds: Sequence[float]):
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect.bisect_left(self.bounds, value)] += 1
        self.sum += value

    def lines(self, name: str, labels: Labels) -> Iterable[str]:
        total = 0
        for bound, count in zip([*map(_number, self.bounds), "+Inf"], self.counts):
            total += count
            yield _line(name + "_bucket", labels + (("le", bound),), total)
        yield _line(name + "_sum", labels, self.sum)
        yield _line(name + "_count", labels, total)


def _number(value: float) -> str:
    return f"{value:.12g}"


def _line(name: str, labels: Labels, value: float) -> str:
    text = ",".join('{}="{}"'.format(key, word.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n"))
                    for key, word in labels)
    return f"{name}{{{text}}} {_number(value)}" if text else f"{name} {_number(value)}"


class RewardMetrics:
    """Thread-safe. Every series of a reward is there from the start, so that rates start from 0."""

    def __init__(self, rewards: Sequence[Reward], version: str):
        self._lock = threading.Lock()
        self._version = version
        self._items = {(reward.name, outcome): 0 for reward in rewards
                       for outcome in ("failed", "invalid", "scored")}
        self._scores = {reward.name: _Histogram(_tenths(*reward.range)) for reward in rewards}
        self._calls = {outcome: _Histogram(_SECONDS) for outcome in ("error", "ok")}
        self._batches = _Histogram(_ITEMS)
        self._refused: dict[tuple[str, str], int] = {}

    def item_scored(self, reward: str, outcome: Outcome) -> None:
        with self._lock:
            if outcome.ok:
                self._items[reward, "scored"] += 1
                self._scores[reward].observe(outcome.value)
            else:
                self._items[reward, "invalid" if outcome.code == _INVALID else "failed"] += 1

    def batch_arrived(self, items: int) -> None:
        with self._lock:
            self._batches.observe(items)

    def call_ended(self, seconds: float, ok: bool) -> None:
        with self._lock:
            self._calls["ok" if ok else "error"].observe(seconds)

    def call_refused(self, method: str, reason: str) -> None:
        with self._lock:
            self._refused[method, reason] = self._refused.get((method, reason), 0) + 1

    def page(self) -> str:
        with self._lock:
            lines = [line for name, kind, series in self._families()
                     for line in [f"# TYPE {name} {kind}", *series]]
        return "\n".join(lines) + "\n"

    def _families(self) -> Iterable[tuple[str, str, list[str]]]:
        def counter(name: str, series: Iterable[tuple[Labels, float]]) -> tuple[str, str, list[str]]:
            return name, "counter", [_line(name, labels, value) for labels, value in series]

        def histogram(name: str, series: Iterable[tuple[Labels, _Histogram]]) -> tuple[str, str, list[str]]:
            return name, "histogram", [line for labels, one in series for line in one.lines(name, labels)]

        def gauge(name: str, value: float, labels: Labels = ()) -> tuple[str, str, list[str]]:
            return name, "gauge", [_line(name, labels, value)]

        yield counter("oxbow_reward_items_total", [((("outcome", outcome), ("reward", name)), count)
                                                   for (name, outcome), count in self._items.items()])
        yield histogram("oxbow_reward_score",
                        [((("reward", name),), one) for name, one in self._scores.items()])
        yield histogram("oxbow_reward_request_duration_seconds",
                        [((("outcome", outcome),), one) for outcome, one in self._calls.items()])
        yield histogram("oxbow_reward_batch_items", [((), self._batches)])
        yield counter("oxbow_rpc_refused_total", [((("method", method), ("reason", reason)), count)
                                                  for (method, reason), count in self._refused.items()])
        yield gauge("oxbow_build_info", 1, (("version", self._version),))
        yield gauge("process_resident_memory_bytes", _resident_bytes())
        used = resource.getrusage(resource.RUSAGE_SELF)
        yield counter("process_cpu_seconds_total", [((), used.ru_utime + used.ru_stime)])
        yield gauge("process_start_time_seconds", _START)


def _tenths(low: float, high: float) -> list[float]:
    return [low + (high - low) * i / 10 for i in range(11)]


def _resident_bytes() -> int:
    try:
        with open("/proc/self/statm", encoding="ascii") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
