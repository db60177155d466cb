# SPDX-License-Identifier: Apache-2.0
"""Starts a run's processes over a Ray cluster and keeps them running until the learner has done its steps."""
from __future__ import annotations

import sys
import threading
import time
from dataclasses import dataclass
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from ..run import Run
from . import plan
from .member import Member
from .plan import Setting
from .restarts import Restarts

ENDS = (0, 8, 9)  # Exit codes of an orderly end: done, by a rule, drained (docs/formats.md).
LOOK_SECONDS = 1.0


@dataclass(frozen=True)
class Options:
    workers_per_node: int = 1
    gpus: bool = False  # A learner rank and a worker take a GPU each.


class Fleet:
    def __init__(self, setting: Setting, options: Options, stop: threading.Event):
        self._setting, self._options, self._stop = setting, options, stop
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
        beside = {"num_cpus": 0, "scheduling_strategy": here}
        rank = {"num_gpus": 1, "num_cpus": 1} if options.gpus else {"num_cpus": 1, "scheduling_strategy": here}
        self._buffers = [self._member(plan.buffer_name(setting, i), lambda at, i=i: plan.buffer(setting, at, i), beside)
                         for i in range(setting.shards)]
        count = int(setting.config["services"]["reward_servers"]) if setting.own_rewards else 0
        self._rewards = [self._member(f"reward_server-{i}", lambda at: plan.reward_server(setting, at), beside)
                         for i in range(count)]
        self._ranks = [self._member(f"learner-{i}" if i else "learner", self._learner, rank,
                                    lambda i=i: self._rank_environment(i)) for i in range(setting.ranks)]
        self._workers: dict[str, Member] = {}
        self._restarts = Restarts(60 * float(setting.config["services"]["patience_minutes"]))
        self._down: set[str] = set()  # Processes whose death is counted, and that have not started again.
        self._committed = 0
        self._launches = 0  # Starts of all ranks together.
        self._master = ""  # The address at which ranks meet.
        self._told: tuple[str, ...] = ()  # The addresses that the ranks were started with.

    def run(self) -> int:
        """The learner's exit code once it has ended for good; 0 when the run is complete, 9 when it was drained."""
        try:
            for member in (*self._buffers, *self._rewards):
                member.start()
            while not self._stop.is_set():
                code = self._look()
                if code is not None:
                    return code
                self._stop.wait(LOOK_SECONDS)
            self._say("stopping after this step")
            return 130
        finally:
            self._end()

    def _look(self) -> int | None:
        """One round: restarts what has died, starts what can start. The exit code if the run is over."""
        self._forgive()
        for member in (*self._buffers, *self._rewards):
            if member.look() and member.health.exit_code is None:
                continue
            code = self._again(member)
            if code is not None:
                return code
        if not all(member.endpoint for member in (*self._buffers, *self._rewards)):
            return None
        if not self._ranks[0].started and not self._launches:
            self._launch()
        code = self._look_at_ranks()
        if code is None and self._ranks[0].endpoint:
            self._look_at_workers()
        return code

    def _look_at_ranks(self) -> int | None:
        lost = [rank for rank in self._ranks if not rank.look()]
        # Ranks end one after another. One that has ended well waits for the first, which says that the run is complete.
        ended = [rank for rank in self._ranks if rank.health.exit_code not in (None, *ENDS)]
        first = self._ranks[0]
        if first.health.exit_code in ENDS and not lost:
            return first.health.exit_code
        moved = self._addresses() != self._told
        if not ended and not lost and not moved:
            return None
        who = (lost or ended or [first])[0]
        if not moved:
            code = self._count(who)
            if code is not None or who.name in self._down:
                return code
        # Ranks are one group: when one has died, the others end by themselves, and all start again.
        for rank in self._ranks:
            rank.stop()
        self._launch()
        return None

    def _look_at_workers(self) -> None:
        """As many as nodes offer: a node that comes gets workers, one that goes takes its own along."""
        learner = self._ranks[0].endpoint
        nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
        for node in nodes:
            for i in range(self._options.workers_per_node):
                name = f"worker-{node[:8]}-{i}"
                if name not in self._workers:
                    where = NodeAffinitySchedulingStrategy(node, soft=False)
                    needs = {"num_gpus": 1} if self._options.gpus else {}
                    self._workers[name] = self._member(
                        name, lambda _, name=name: plan.worker(self._setting, name, self._ranks[0].endpoint, self._options.gpus),
                        {"num_cpus": 0, **needs, "scheduling_strategy": where}, fixed_port=False)
                    self._workers[name].start()
                    self._say(f"{name} joins {learner}")
        for name, worker in list(self._workers.items()):
            if not worker.look():
                self._say(f"{name} is gone with its node")
                del self._workers[name]
            elif worker.health.exit_code not in (None, 0):
                self._count(worker, beside=True)
                if name not in self._down:
                    worker.start()

    def _launch(self) -> None:
        """All ranks, with the addresses of the others as they are now."""
        self._told = self._addresses()
        for worker in self._workers.values():
            worker.stop()  # Its learner may come back somewhere else.
        self._workers.clear()
        self._master = self._ranks[0].meeting_point() if len(self._ranks) > 1 else ""
        for rank in self._ranks:
            rank.start()
        self._launches += 1

    def _addresses(self) -> tuple[str, ...]:
        return tuple(member.endpoint for member in (*self._buffers, *self._rewards))

    def _again(self, member: Member) -> int | None:
        if member.started or self._committed or self._launches:
            kind = self._buffers if member in self._buffers else self._rewards
            code = self._count(member, bool(self._launches) and any(
                one is not member and one.endpoint and one.health.exit_code is None for one in kind))
            if code is not None or member.name in self._down:
                return code
        member.start()
        return None

    def _count(self, member: Member, beside: bool = False) -> int | None:
        """Counts a death once; until its pause is over the member is down. The exit code if this one ends the run."""
        name, health, now = member.name, member.health, time.monotonic()
        if name in self._down:
            if self._restarts.due(name, now):
                self._down.discard(name)
            return None
        again = self._restarts.died(name, health.exit_code, now, beside)
        how_often = f", {self._restarts.deaths(name)} times" if self._restarts.deaths(name) > 1 else ""
        self._say(f"{name} ended with {health.exit_code}{how_often}"
                  + (" and is started again: " + (health.tail[-1] if health.tail else "") if again else ""))
        if again:
            self._down.add(name)
            return None
        print("\n".join(health.tail), file=sys.stderr)
        return health.exit_code if health.exit_code and health.exit_code > 0 else 1

    def _forgive(self) -> None:
        steps = Run(self._setting.run_dir).steps
        if steps > self._committed:
            self._committed = steps
            self._restarts.progress()

    def _end(self) -> None:
        """The learner first, which finishes its step; then the others, all at once."""
        for members in (self._ranks, [*self._workers.values(), *self._rewards, *self._buffers]):
            threads = [threading.Thread(target=member.stop) for member in members]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

    def _learner(self, listen: str) -> list[str]:
        buffer_at = ",".join(one.endpoint for one in self._buffers)
        return plan.learner(self._setting, listen, buffer_at, [one.endpoint for one in self._rewards])

    def _rank_environment(self, rank: int) -> dict[str, str]:
        return plan.rank_environment(self._setting, rank, self._master, self._launches)

    def _member(self, name: str, argv: Any, options: dict[str, Any], environment: Any = dict,
                fixed_port: bool = True) -> Member:
        return Member(name, self._setting.log(name), self._setting.directory, argv,
                      lambda: {**self._setting.environment, **environment()}, options, fixed_port)

    @staticmethod
    def _say(text: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} oxbow-ray: {text}", flush=True)
