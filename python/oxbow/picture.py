# SPDX-License-Identifier: Apache-2.0
"""The pictures of an evaluation: files of samples/step_NNNNNN, and what eval.jsonl says of each (docs/formats.md)."""
from __future__ import annotations

import io
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Sequence

ROWS = "eval.jsonl"


@dataclass(frozen=True)
class Picture:
    """`rewards` has NaN where a reward has no finite value."""

    step: int
    prompt: str
    reward: float
    rewards: dict[str, float]
    path: Path | None  # A PNG or JPEG file, of a video animated or its first frame; None: it was scored only.
    seed: int | None = None  # With group and sample: what its noise was drawn from.
    group: int | None = None
    sample: int | None = None
    frames: int = 1
    film: Path | None = None  # Up to 24 frames of a video whose `path` is its first one.

    @property
    def caption(self) -> str:
        """The whole prompt, a line of its rewards, and of a video that stands still how many frames it has."""
        rewards = ", ".join(f"{name} {value:.4g}" for name, value in self.rewards.items())
        still = f"\nthe first of {self.frames} frames" if self.film else ""
        return f"{self.prompt}\nreward {self.reward:.4g} ({rewards}){still}"

    def image(self) -> Any:
        """A PIL.Image, or None for a picture that was scored only. ImportError without Pillow."""
        return None if self.path is None else image_of(self.path)


def image_of(path: Path) -> Any:
    """A PIL.Image that keeps no file open. ImportError without Pillow."""
    try:
        from PIL import Image
    except ImportError:
        raise ImportError("pictures take Pillow: pip install './python[run]' in oxbow's sources") from None
    return Image.open(io.BytesIO(path.read_bytes()))


def step_folder(samples: Path, step: int) -> Path:
    return samples / f"step_{step:06d}"


def pictures_of(folder: Path, step: int) -> list[Picture]:
    """In the order of the evaluation, those with files first; empty if its rows are not there (yet).

    ValueError names a row that cannot be read.
    """
    path, found = folder / ROWS, []
    if not path.exists():
        return []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            found.append(_picture(json.loads(line), folder, step))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{path}:{number}: no row of an evaluation ({error}): {line[:80]}") from None
    return found


def picture_table(pictures: Sequence[Picture]) -> Any:
    """A DataFrame with a row for each; without pandas a dict of lists."""
    columns = {"image": [one.image() for one in pictures], "prompt": [one.prompt for one in pictures],
               "reward": [one.reward for one in pictures], "rewards": [one.rewards for one in pictures],
               "seed": [one.seed for one in pictures], "group": [one.group for one in pictures],
               "sample": [one.sample for one in pictures], "path": [one.path for one in pictures]}
    try:
        import pandas
    except ImportError:
        return columns
    # Numbers of 64 bits stay as they are, beside None.
    return pandas.DataFrame({name: pandas.Series(values, dtype="float64" if name == "reward" else "object")
                             for name, values in columns.items()})


def _picture(row: dict[str, Any], folder: Path, step: int) -> Picture:
    name, film = row.get("picture"), row.get("film")
    return Picture(step, row["prompt"], _number(row["reward"]),
                   {reward: _number(value) for reward, value in row.get("rewards", {}).items()},
                   folder / Path(name).name if name else None, _whole(row.get("seed")), _whole(row.get("group")),
                   _whole(row.get("sample")), int(row.get("frames", 1)), folder / Path(film).name if film else None)


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


def _whole(value: Any) -> int | None:
    return None if value is None else int(value)
