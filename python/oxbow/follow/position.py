# SPDX-License-Identifier: Apache-2.0
"""How far a tracker has been filled: RUN/followers/NAME.json."""
from __future__ import annotations

import json
import os
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass
class Position:
    run_uid: str = ""
    tracker_run: str = ""  # The tracker's own id of the run; empty: none yet.
    kept: int = -1  # The last step that the tracker has for certain: written after it closed in order.

    @classmethod
    def read(cls, path: Path, run_uid: str) -> Position:
        """The position of this run; a new one if the file is missing or of an earlier run of the same directory."""
        try:
            found = cls(**json.loads(path.read_text(encoding="utf-8")))
        except (FileNotFoundError, ValueError, TypeError):
            return cls(run_uid)
        return found if found.run_uid == run_uid else cls(run_uid)

    def write(self, path: Path) -> None:
        path.parent.mkdir(exist_ok=True)
        whole = path.with_name(f"{path.name}.tmp.{secrets.token_hex(8)}")
        with open(whole, "w", encoding="utf-8") as file:
            file.write(json.dumps(asdict(self)) + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(whole, path)
