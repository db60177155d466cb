# SPDX-License-Identifier: Apache-2.0
"""MLflow. Where its runs go is MLFLOW_TRACKING_URI, or --directory: a local store."""
from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Sequence

from mlflow.entities import Metric, Param, RunTag
from mlflow.tracking import MlflowClient

from ..config_file import flat
from ..picture import ROWS, Picture
from ..run import Run
from .tracker import Where

_MARK = "oxbow.step"  # Logged last in a step's batch: with it, the step is whole.
_PARAM_CHARACTERS_MAX = 6000


class Mlflow:
    remedy = "look at MLFLOW_TRACKING_URI, or take --directory, a local store"

    def open(self, run: Run, where: Where, tracker_run: str) -> str:
        uri = None
        if where.directory:
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # The store that needs no database.
            uri = Path(where.directory).absolute().as_uri()
        self._client = MlflowClient(uri)
        if tracker_run:
            self._run = tracker_run
            self._client.update_run(self._run, status="RUNNING")
            return tracker_run
        found = self._client.get_experiment_by_name(where.project)
        experiment = found.experiment_id if found else self._client.create_experiment(where.project)
        self._run = str(self._client.create_run(experiment, run_name=run.name).info.run_id)
        settings = [Param(name, json.dumps(value)[:_PARAM_CHARACTERS_MAX]) for name, value in flat(run.config).items()]
        for first in range(0, len(settings), 100):  # MLflow takes 100 at once.
            self._client.log_batch(self._run, params=settings[first:first + 100])
        tags = [RunTag("oxbow.run_uid", run.uid), *(RunTag(tag, "") for tag in where.tags)]
        self._client.log_batch(self._run, tags=tags)
        return self._run

    def last_step(self) -> int | None:
        return max((mark.step for mark in self._client.get_metric_history(self._run, _MARK)), default=-1)

    def log(self, step: int, numbers: dict[str, float], pictures: Sequence[Picture]) -> None:
        """Files have no captions there: the rows of the evaluation lie beside them."""
        paths = [one.path for one in pictures if one.path is not None]
        for path in [*paths, *([paths[0].with_name(ROWS)] if paths else [])]:
            self._client.log_artifact(self._run, str(path), f"samples/step_{step:06d}")
        now = int(time.time() * 1000)
        metrics = [Metric(name, value, now, step) for name, value in [*numbers.items(), (_MARK, step)]]
        for first in range(0, len(metrics), 1000):  # MLflow takes 1000 at once.
            self._client.log_batch(self._run, metrics=metrics[first:first + 1000])

    def close(self) -> None:
        self._client.set_terminated(self._run)
