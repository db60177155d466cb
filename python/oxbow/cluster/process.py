# SPDX-License-Identifier: Apache-2.0
"""One of oxbow's programs, started and watched on the node where this object lives."""
from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import threading
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Mapping, Sequence

TAIL_LINES = 20
DRAIN_SECONDS = 120.0  # A learner finishes its step and writes a checkpoint.

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def _die_with_parent() -> None:
    """The kernel kills the process when the thread that started it ends, however that ends (Linux)."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


@dataclass(frozen=True)
class Health:
    """The present state of a process."""

    exit_code: int | None = None  # None while it runs; minus the signal that killed it.
    endpoint: str = ""  # HOST:PORT, from its READY line.
    tail: tuple[str, ...] = ()  # The last lines of its stderr.


class Process:
    """Its stderr is also written to `log`. The process ends with this object, as its node's other processes do."""

    def __init__(self, host: str = "127.0.0.1"):
        self._host = host
        self._child: subprocess.Popen[str] | None = None
        self._endpoint = ""
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)

    def free_port(self) -> int:
        """A port that is free on this node now."""
        with socket.socket() as probe:
            probe.bind(("", 0))
            return int(probe.getsockname()[1])

    def meeting_point(self) -> str:
        return f"{self._host}:{self.free_port()}"

    def start(self, argv: Sequence[str], environment: Mapping[str, str], log: str, directory: str) -> None:
        """`directory`: the working directory, to which the paths of a config are relative."""
        path = Path(log)
        path.parent.mkdir(parents=True, exist_ok=True)
        # The address of a node is known on that node.
        words = [word.replace("{host}", self._host) for word in argv]
        self._child = subprocess.Popen(words, env={**os.environ, **environment}, stdin=subprocess.DEVNULL,
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", cwd=directory,
                                       preexec_fn=_die_with_parent)
        threading.Thread(target=self._read_ready, args=(self._child.stdout,), daemon=True).start()
        threading.Thread(target=self._read_log, args=(self._child.stderr, path), daemon=True).start()

    def health(self) -> Health:
        if self._child is None:
            return Health()
        return Health(self._child.poll(), self._endpoint, tuple(self._tail))

    def stop(self, patience: float = DRAIN_SECONDS) -> Health:
        """SIGTERM, which is an orderly end, and SIGKILL when that takes too long."""
        if self._child is not None and self._child.poll() is None:
            self._child.send_signal(signal.SIGTERM)
            try:
                self._child.wait(patience)
            except subprocess.TimeoutExpired:
                self._child.kill()
                self._child.wait()
        return self.health()

    def _read_ready(self, lines: Any) -> None:
        for line in lines:
            if line.startswith("READY "):
                told = dict(part.split("=", 1) for part in line.split()[1:])
                self._endpoint = self._endpoint or told.get("grpc", "")

    def _read_log(self, lines: Any, path: Path) -> None:
        with path.open("a", encoding="utf-8") as file:
            for line in lines:
                self._tail.append(line.rstrip("\n"))
                file.write(line)
                file.flush()
