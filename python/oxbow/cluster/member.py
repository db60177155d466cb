# SPDX-License-Identifier: Apache-2.0
"""A process of the fleet with the Ray actor that holds it."""
from __future__ import annotations

from typing import Any, Callable, Mapping

import ray

from .process import Health, Process

ASK_SECONDS = 1.0
PLACES_MAX = 3  # Actors that are tried before an error is one.


class NodeProcess(Process):
    def __init__(self) -> None:
        super().__init__(ray.util.get_node_ip_address())


class Member:
    """One of the run's processes, wherever it is. `argv(listen)` and `environment()` are asked at each start."""

    def __init__(self, name: str, log: str, directory: str, argv: Callable[[str], list[str]],
                 environment: Callable[[], Mapping[str, str]], options: Mapping[str, Any], fixed_port: bool = True):
        self.name, self._log, self._directory, self._argv, self._environment = name, log, directory, argv, environment
        self._options, self._fixed_port = dict(options), fixed_port
        self._actor: Any = None
        self._port = 0
        self._pending: Any = None
        self.endpoint = ""
        self.health = Health()

    @property
    def started(self) -> bool:
        return self._actor is not None

    def start(self) -> None:
        """Starts the process; after a lost node in a new actor, where Ray has room, and at a new address."""
        self._place()
        if self._fixed_port and self._port == 0:
            self._port = self._ask("free_port")
        self.endpoint, self.health = "", Health()
        self._actor.start.remote(self._argv(f"{{host}}:{self._port}"), dict(self._environment()), self._log,
                                 self._directory)

    def meeting_point(self) -> str:
        """HOST:PORT, free on the node of this process."""
        return str(self._ask("meeting_point"))

    def _ask(self, question: str) -> Any:
        """The answer of this member's actor. Ray may still place one on a node that is gone: then another is asked."""
        for attempt in range(PLACES_MAX):
            self._place()
            try:
                return ray.get(getattr(self._actor, question).remote())
            except ray.exceptions.RayActorError:
                self._actor = None
                if attempt == PLACES_MAX - 1:
                    raise

    def _place(self) -> None:
        if self._actor is None:
            self._actor = ray.remote(NodeProcess).options(max_restarts=0, **self._options).remote()
            self._port = 0

    def look(self) -> bool:
        """Asks how the process is. False if its node is gone; the health stays what it was while a node is silent."""
        if self._actor is None:
            return False
        self._pending = self._pending or self._actor.health.remote()
        ready, _ = ray.wait([self._pending], timeout=ASK_SECONDS)
        if not ready:
            return True
        try:
            self.health = ray.get(self._pending)
        except ray.exceptions.RayActorError:
            self._actor = None
            self.health = Health(exit_code=-9)
            return False
        finally:
            self._pending = None
        self.endpoint = self.health.endpoint or self.endpoint
        return True

    def stop(self) -> None:
        """An orderly end of the process; its actor goes as well."""
        if self._actor is None:
            return
        try:
            ray.get(self._actor.stop.remote())
        except ray.exceptions.RayActorError:
            pass  # It ended with its node.
        ray.kill(self._actor)
        self._actor = None
