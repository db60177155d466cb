# SPDX-License-Identifier: Apache-2.0
"""A run's directory as Python values. Reading changes nothing there; a live run may be read at any time.

    from oxbow import Run

    run = Run("runs/digits")
    run.metrics()["train/reward_mean"].plot()     # a DataFrame, one row per learner step
    run.pictures().loc[0, "image"]                # the first held-out picture of the newest evaluation
    run.config["optimizer"]["learning_rate"]
"""
from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

from .config_file import read_config
from .endpoints import endpoint_of
from .metrics_file import numbers_of, read_lines
from .picture import Picture, picture_table, pictures_of, step_folder
from .process_lock import State, state_of
from .sheet import Sheet, sheets_of
from .table import table_of

CONFIG, METRICS, SAMPLES, LOCK, UID = "config.resolved.yaml", "metrics.jsonl", "samples", "LOCK", "run_uid"


class Run:
    """The run in `directory`. FileNotFoundError if there is none."""

    def __init__(self, directory: str | Path):
        self.directory = Path(directory)
        if not (self.directory / CONFIG).exists():
            raise FileNotFoundError(f"no run there ({CONFIG} is missing): {self.directory}")

    def __repr__(self) -> str:
        return f"Run({str(self.directory)!r})"

    @property
    def name(self) -> str:
        return self.directory.resolve().name

    @cached_property
    def config(self) -> dict[str, Any]:
        """Every setting, in sections as in configs/defaults.yaml. Needs PyYAML."""
        return read_config(self.directory / CONFIG)

    @property
    def uid(self) -> str:
        """The run's own id, whatever its directory is called; empty before its learner's first start."""
        path = self.directory / UID
        return path.read_text(encoding="utf-8").strip() if path.exists() else ""

    @property
    def state(self) -> State:
        """Whether a process works on the run now."""
        return state_of(self.directory / LOCK)

    @property
    def steps(self) -> int:
        """Committed learner steps."""
        lines = self._lines()
        return int(lines[-1]["step"]) if lines else 0

    def metrics(self) -> Any:
        """The lines of metrics.jsonl, indexed by `step`. A number that a line does not have is NaN.

        A pandas.DataFrame; without pandas a dict of numpy arrays, `step` among them. docs/formats.md has the names.
        """
        return table_of(self._lines())

    def evaluations(self) -> Any:
        """As metrics(), only the steps with an evaluation and only `eval/` numbers and the wall time."""
        lines = [line for line in self._lines() if any(name.startswith("eval/") for name in line)]
        return table_of([{name: value for name, value in line.items()
                          if name in ("step", "time/wall_s") or name.startswith("eval/")} for line in lines])

    def sheets(self) -> list[Sheet]:
        """The contact sheets, by step."""
        return sheets_of(self.directory / SAMPLES)

    def evaluated(self, step: int) -> list[Picture]:
        """The pictures of the evaluation at `step`, with their prompts, rewards and seeds; empty if there was none."""
        samples = self.directory / SAMPLES
        return pictures_of(step_folder(samples, step), step)

    def pictures(self, step: int | None = None) -> Any:
        """The same as a table, a row for each picture: `image`, `prompt`, `reward`, `rewards` (by name), `seed` and more.

        Without `step` the newest evaluation. A picture that was scored only has no image (None). A pandas.DataFrame;
        without pandas a dict of lists. ValueError if there was no evaluation. Needs Pillow.
        """
        if step is None:
            step = max((sheet.step for sheet in self.sheets()), default=0)
        found = self.evaluated(step)
        if not found:
            raise ValueError(f"no evaluation at step {step} of {self.directory}")
        return picture_table(found)

    def replay(self, shard: int = 0, **options: Any) -> Any:
        """A live replay buffer of the run (oxbow.replay.Replay): with services.replay_shards the one of this number.
        FileNotFoundError if the run has none."""
        from .replay import Replay

        alone = "replay_buffer" if shard == 0 else None
        return Replay(endpoint_of(self.directory, f"replay_buffer-{shard:02d}", alone), **options)

    def _lines(self) -> list[dict[str, float]]:
        return [numbers_of(line) for line in read_lines(self.directory / METRICS)]
