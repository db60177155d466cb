# SPDX-License-Identifier: Apache-2.0
"""Asks `oxbow validate` for what a comparison needs, before the first hour is spent: weights, prompts, rewards, memory, disk."""
from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Iterable, Mapping

from ..bench import EXIT_FAILURE, EXIT_FULL, EXIT_UNAVAILABLE, Refused
from ..bench.comparison import table
from ..bench.plan import Run

EXIT_GPU = 7  # As `oxbow validate` has it.
_UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_DISK = re.compile(r"(?m)^on the disk, at most +([\d.]+) (\w+)")
_PROCESS = re.compile(r"(?m)^(learner rank|rollout worker|reward server) .* ([\d.]+) (\w+)$")
_HOURS = re.compile(r"(?m)^# hours on (\d+) GPUs? at \S+ TFLOP/s each: ([\d.]+)$")


@dataclass(frozen=True)
class Needs:
    """The answer of `oxbow validate` for one run."""

    run: Run
    code: int
    said: str  # Its reasons, a line each, or the plan.
    disk: float = 0  # Bytes at most.
    largest: float = 0  # Bytes of the largest process.


def gpus_here(environment: Mapping[str, str]) -> int:
    """How many GPUs a run started with this environment would see, as nvidia-smi counts them."""
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([one for one in visible.split(",") if one.strip()])
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False).stdout
    except OSError:
        return 0
    return sum(line.startswith("GPU ") for line in listed.splitlines())


def take_gpus(count: int, environment: dict[str, str]) -> None:
    """Lets runs see the first `count` GPUs alone. Refused where there are fewer."""
    here = gpus_here(environment)
    if here < count:
        raise Refused(EXIT_GPU, f"--gpus {count}: this machine shows {here}; give that number, or plan for another machine with --check "
                                f"--gpus {count}x80, its GPUs and the GiB of each")
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    devices = visible.split(",") if visible else [str(i) for i in range(count)]
    environment["CUDA_VISIBLE_DEVICES"] = ",".join(devices[:count])


def needs_of(program: Path, run: Run, machine: str, environment: Mapping[str, str]) -> Needs:
    """Asks `oxbow validate`. `machine`: NUMBERxGIB of another machine's GPUs, or empty for this one."""
    words = [word for one in run.overrides for word in ("--set", one)] + (["--gpus", machine] if machine else [])
    try:
        said = subprocess.run([program, "validate", run.file, *words], env=dict(environment), stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, errors="replace", check=False)
    except OSError as why:
        raise Refused(EXIT_UNAVAILABLE, f"cannot start: {why.strerror}: {program}") from None
    if said.returncode != 0:
        return Needs(run, said.returncode if said.returncode > 0 else EXIT_FAILURE, said.stderr.strip())
    return Needs(run, 0, said.stdout, max((_bytes(*of) for of in _DISK.findall(said.stdout)), default=0),
                 max((_bytes(number, unit) for _, number, unit in _PROCESS.findall(said.stdout)), default=0))


def _bytes(number: str, unit: str) -> float:
    return float(number) * _UNITS[unit]


def hours_of(run: Run, steps: int, own_steps: int, gpus: int) -> float | None:
    """By the header of its recipe, which counts for the recipe's own steps; None without such a header."""
    try:
        found = _HOURS.search(Path(run.file).read_text(encoding="utf-8"))
    except OSError:
        return None
    return float(found[2]) * int(found[1]) / gpus * steps / own_steps if found and gpus and own_steps else None


def needs_table(needs: Iterable[Needs], hours: Mapping[str, float | None]) -> str:
    """A row for each recipe."""
    rows = []
    for of in needs:
        took = hours.get(of.run.recipe)
        rows.append([of.run.recipe, "valid" if of.code == 0 else "not valid", f"{of.largest / 2**30:.1f}" if of.largest else "-",
                     f"{of.disk / 1e9:.1f}" if of.disk else "-", f"{took:.2g}" if took else "-"])
    return table(["recipe", "", "GiB of the largest process", "GB on the disk", "hours, about"], rows)


def refuse_what_is_missing(of_all: list[Needs], left: Mapping[str, int], out: Path) -> None:
    """Refused with every reason, each once, where a recipe is not valid or the disk has no room for all the runs that are left. `left`:
    their number by recipe."""
    needs = [of for of in of_all if left.get(of.run.recipe)]
    reasons = dict.fromkeys(line for of in needs if of.code for line in of.said.splitlines())
    if reasons:
        raise Refused(next(of.code for of in needs if of.code), "\n".join(["the plan cannot run:", *reasons]))
    place = next(folder for folder in (out.absolute(), *out.absolute().parents) if folder.exists())
    room, wanted = shutil.disk_usage(place).free, sum(of.disk * left[of.run.recipe] for of in needs)
    if wanted > room:
        raise Refused(EXIT_FULL, f"{sum(left.values())} runs take {wanted / 1e9:.1f} GB and {place} has {room / 1e9:.1f}; name a larger disk "
                                 "with --out")

