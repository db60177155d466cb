# SPDX-License-Identifier: Apache-2.0
"""SwanLab. Offline it writes a directory for `swanlab sync`."""
from __future__ import annotations

import secrets
from typing import Any, Sequence

import swanlab

from ..picture import Picture
from ..run import Run
from .tracker import EVALUATION, Where


class Swanlab:
    remedy = "`swanlab login`, or --offline, which writes files for `swanlab sync`"

    def open(self, run: Run, where: Where, tracker_run: str) -> str:
        identity = tracker_run or secrets.token_hex(11)[:21]  # SwanLab's ids have 21 characters.
        self._run: Any = swanlab.init(
            project=where.project, experiment_name=run.name, config={**run.config, "oxbow": {"run_uid": run.uid}},
            logdir=where.directory or None, mode="offline" if where.offline else None, id=identity, resume="allow",
            tags=list(where.tags) or None)
        return identity

    def last_step(self) -> int | None:
        return None

    def log(self, step: int, numbers: dict[str, float], pictures: Sequence[Picture]) -> None:
        images = [swanlab.Image(str(one.path), caption=one.caption) for one in pictures]
        self._run.log({**numbers, **({EVALUATION: images} if images else {})}, step=step)

    def close(self) -> None:
        self._run.finish()
