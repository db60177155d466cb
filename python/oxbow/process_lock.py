# SPDX-License-Identifier: Apache-2.0
"""Whether a process works on a run, by the file LOCK (docs/formats.md, locks)."""
from __future__ import annotations

import json
import socket
from enum import Enum
from pathlib import Path


class State(Enum):
    LIVE = "live"
    ENDED = "ended"
    ELSEWHERE = "elsewhere"  # Started on another machine: nobody can tell from here.


def state_of(lock: Path) -> State:
    """The file names its last holder. Nothing is locked here: that could keep a run from starting."""
    try:
        holder = json.loads(lock.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return State.ENDED
    if holder.get("host") != socket.gethostname():
        return State.ELSEWHERE
    return State.LIVE if _started(holder.get("pid")) == holder.get("process_start") else State.ENDED


def _started(pid: object) -> int | None:
    """When a live process started, in clock ticks after boot."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(") ")[2]
    except OSError:
        return None
    fields = after_name.split()
    return None if fields[0] in "ZX" else int(fields[19])
