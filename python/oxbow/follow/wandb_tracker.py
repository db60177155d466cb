# SPDX-License-Identifier: Apache-2.0
"""Weights & Biases. Offline (`--offline`, WANDB_MODE=offline) it writes a directory for `wandb sync`."""
from __future__ import annotations

import secrets
from typing import Any, Sequence

import wandb

from ..picture import Picture
from ..run import Run
from .tracker import EVALUATION, Where


class Wandb:
    remedy = "`wandb login`, or --offline, which writes files for `wandb sync`"

    def open(self, run: Run, where: Where, tracker_run: str) -> str:
        settings = wandb.Settings(console="off", disable_git=True, x_disable_stats=True)
        self._run: Any = wandb.init(
            project=where.project, id=tracker_run or secrets.token_hex(8), resume="allow", name=run.name,
            config={**run.config, "oxbow": {"run_uid": run.uid}}, dir=where.directory or None,
            mode="offline" if where.offline else None, tags=list(where.tags) or None, settings=settings)
        return str(self._run.id)

    def last_step(self) -> int | None:
        """W&B counts the next step; offline it does not know the run's earlier files."""
        return None if self._run.offline else int(self._run.step) - 1

    def log(self, step: int, numbers: dict[str, float], pictures: Sequence[Picture]) -> None:
        """The files go as they are. W&B shows 108 images of a step (wandb.Image.MAX_ITEMS) and leaves out the others."""
        images = [wandb.Image(str(one.path), caption=one.caption) for one in pictures[:wandb.Image.MAX_ITEMS]]
        self._run.log({**numbers, **({EVALUATION: images} if images else {})}, step=step)

    def close(self) -> None:
        self._run.finish()
