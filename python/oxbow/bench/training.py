# SPDX-License-Identifier: Apache-2.0
"""The runs of a comparison on the disk: which of them are finished, and the others trained as child processes."""
from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any, Callable, Iterable, Sequence

import yaml

from ..config_file import flat, parse_config, read_config
from ..metrics_file import numbers_of, read_lines
from ..run import CONFIG, METRICS
from . import EXIT_DATA, EXIT_FAILURE, EXIT_UNAVAILABLE, Refused
from .curve import Curve, curve_of
from .plan import RATE, Run
from .runs_line import RunsLine

POLL_SECONDS, TAIL_LINES = 0.1, 5
# Values that leave a choice to the run, which writes the chosen one.
LEFT_OPEN: dict[str, Any] = {"model.memory": "auto", "model.lora.targets": []}


class Trainer:
    """Knows runs by `program`, the oxbow command, which resolves their configs and trains them in this environment, else in that
    of environment_of_runs(). `resumes`: a run that was stopped goes on; else it begins again, so that
    its times are those of one training."""

    def __init__(self, program: Path, resumes: bool = False, environment: dict[str, str] | None = None):
        self._program, self._resumes = program, resumes
        self._environment = environment_of_runs() if environment is None else environment
        self._resolved: dict[tuple[str, ...], dict[str, Any]] = {}
        self._finished: set[Run] = set()

    def resolve(self, runs: Iterable[Run]) -> None:
        """The first error in any run's config, before an hour was spent on the others. Runs of one recipe differ in name, place,
        seed and rate alone, and are resolved once."""
        recipes = {(run.file, *run.settings): run.recipe for run in runs}
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for key, config in zip(recipes, pool.map(self._config, recipes)):
                if isinstance(config, Refused):
                    raise Refused(config.code, f"recipe {recipes[key]}: {_placed(str(config), key[1:])}")
                self._resolved[key] = config

    def config_of(self, run: Run) -> dict[str, Any]:
        """As resolve() found it, by dotted keys, or resolved now; name, place, seed and rate are the recipe's."""
        key = (run.file, *run.settings)
        if key not in self._resolved:
            self.resolve([run])
        return self._resolved[key]

    def is_finished(self, run: Run) -> bool:
        """Whether it has the same config, wherever it was moved, and as many steps as the config asks for. After resolve()."""
        if run not in self._finished and self._is_finished(run):
            self._finished.add(run)
        return run in self._finished

    def train(self, runs: Sequence[Run], jobs: int, ended: Callable[[], None] = lambda: None) -> None:
        """Trains those that are not finished, and calls `ended` behind each. The first that fails ends all."""
        training: dict[Run, subprocess.Popen[bytes]] = {}
        shown = RunsLine()
        waiting = deque(enumerate(runs, 1))
        try:
            while waiting or training:
                while waiting and len(training) < jobs and waiting[0][1].start not in {run.directory for run in training}:
                    number, run = waiting.popleft()
                    finished = self.is_finished(run)
                    shown.clear()
                    print(f"{number}/{len(runs)}  {run.recipe}, seed {run.seed}{': is there' if finished else ''}", file=sys.stderr, flush=True)
                    if not finished:
                        training[run] = self._started(run)
                for run, process in list(training.items()):
                    if process.poll() is not None:
                        del training[run]
                        _look_at_end(run, process.returncode)
                        shown.ended += 1
                        ended()
                if training:
                    shown.show(training, len(waiting) + len(training))
                    time.sleep(POLL_SECONDS)
        finally:
            shown.clear()
            for process in training.values():
                process.kill()
                process.wait()

    def _is_finished(self, run: Run) -> bool:
        wanted = {**self._resolved[run.file, *run.settings], "run.seed": run.seed, "run.name": run.directory.name}
        if run.rate:
            wanted[RATE] = float(f"{run.rate:.15g}")
        try:
            done = flat(read_config(run.directory / CONFIG))
            lines = read_lines(run.directory / METRICS)
        except (OSError, ValueError, AttributeError, yaml.YAMLError):
            return False
        if wanted.keys() - done.keys():  # A key that an older version did not write had its default.
            done = {**self._defaults, **done}
        wanted["run.directory"] = done.get("run.directory")
        for key, left_open in LEFT_OPEN.items():
            if wanted.get(key) == left_open:
                wanted[key] = done.get(key)
        return done == wanted and any(line["step"] >= wanted["run.steps"] for line in lines)

    def _config(self, key: tuple[str, ...]) -> dict[str, Any] | Refused:
        """As `oxbow train` resolves it."""
        words = [word for one in key[1:] for word in ("--set", one)]
        try:
            said = subprocess.run([self._program, "config", "show", *filter(None, key[:1]), *words, "--resolved"], env=self._environment,
                                  stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
        except OSError as why:
            return Refused(EXIT_UNAVAILABLE, f"cannot start: {why.strerror}: {self._program}")
        if said.returncode != 0:
            return Refused(said.returncode if said.returncode > 0 else EXIT_FAILURE, said.stderr.strip().removeprefix("oxbow config: "))
        return flat(parse_config(said.stdout))

    @cached_property
    def _defaults(self) -> dict[str, Any]:
        config = self._config(("",))
        if isinstance(config, Refused):
            raise config
        return config

    def _started(self, run: Run) -> subprocess.Popen[bytes]:
        """In a process group of its own, and it dies with this process, as the services of `oxbow train` do with that."""
        words = [word for one in run.overrides for word in ("--set", one)]
        spawner = self._program.with_name("oxbow_spawn")
        tie = [spawner, str(os.getpid())] if spawner.exists() else []
        if run.start and not (self._resumes and (run.directory / CONFIG).exists()):  # A run that goes on has its start.
            words += ["--from", str(run.start)]
        again = "--resume-if-any" if self._resumes else "--overwrite"
        try:
            with open(_log(run), "ab") as log:
                return subprocess.Popen([*tie, self._program, "train", run.file, again, "--no-progress", *words], env=self._environment,
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log, start_new_session=True)
        except OSError as why:
            raise Refused(EXIT_UNAVAILABLE, f"cannot start a run: {why.strerror}: {why.filename or self._program}") from None


def environment_of_runs() -> dict[str, str]:
    """Without OXBOW__*: a comparison does not depend on the environment."""
    return {name: value for name, value in os.environ.items() if not name.startswith("OXBOW__")}


def lines_of(run: Run) -> list[dict[str, float]]:
    """The numbers of a finished run, a line for each step. Refused: its metrics are damaged."""
    try:
        lines = read_lines(run.directory / METRICS)
    except ValueError as why:
        raise Refused(EXIT_DATA, str(why)) from None
    return [{name: value for name, value in numbers_of(line).items() if isinstance(value, (int, float))} for line in lines]


def curve_at(run: Run) -> Curve:
    """Requires a finished run. Refused: its metrics are damaged."""
    return curve_of(lines_of(run))


def _placed(said: str, settings: Sequence[str]) -> str:
    """The words of the oxbow command on these settings, each with its place in the plan."""
    for setting in reversed(settings):  # The last of two is the one that counts.
        about = f"{setting.partition('=')[0]}: "
        said = said.replace(f"--set: {about}", f"{getattr(setting, 'place', '--set')}: {about}")
    return said


def _log(run: Run) -> Path:
    return run.directory.with_name(run.directory.name + ".log")


def _look_at_end(run: Run, code: int) -> None:
    if code != 0:
        tail = _log(run).read_text(encoding="utf-8", errors="replace").splitlines()[-TAIL_LINES:]
        raise Refused(EXIT_FAILURE, f"run {run.recipe}, seed {run.seed}, ended with exit code {code if code > 0 else 128 - code}; "
                                    f"its log: {_log(run)}\n" + "\n".join(tail))
