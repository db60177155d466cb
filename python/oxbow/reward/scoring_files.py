# SPDX-License-Identifier: Apache-2.0
"""Scores picture files with rewards, without a server: the quickest look at a reward of one's own."""
from __future__ import annotations

import io
from pathlib import Path
from typing import Any, Mapping, Sequence

from . import wire
from .assembly import Limits
from .definition import Reward
from .images import declared_bytes, frames_of
from .item import Item
from .outcome import Outcome, outcomes
from .rules import metadata_of, refusals
from .scorer import load_failure
from .status import EXIT_DATA, EXIT_FAILURE, EXIT_OK, SetupError, StatusError, invalid

_ENCODINGS = {".png": "png", ".jpg": "jpeg", ".jpeg": "jpeg"}
_CHANNELS = {"L": 1, "RGB": 3}


def score_files(rewards: Sequence[Reward], paths: Sequence[Path], prompt: str, metadata: str) -> int:
    """Prints `PATH  REWARD  VALUE` a line; the files are one group. Returns the exit code: 1 if an item has no
    score. SetupError for a file that cannot be read or a reward that cannot be loaded."""
    known = checked_metadata(metadata)
    items = [Item(_frames(path), prompt, known, group=1) for path in paths]
    failed = False
    for reward in rewards:
        try:
            reward.load()
        except (Exception, SystemExit) as error:
            raise load_failure(reward.name, error) from None
        for path, outcome in zip(paths, _outcomes(reward, items)):
            print(f"{path}  {reward.name}  {_text(outcome)}")
            failed |= not outcome.ok
    return EXIT_FAILURE if failed else EXIT_OK


def checked_metadata(text: str) -> Mapping[str, Any]:
    try:
        return metadata_of(text)
    except StatusError as error:
        raise SetupError(f"--metadata: {error.message}") from None


def _outcomes(reward: Reward, items: Sequence[Item]) -> list[Outcome]:
    refused = refusals(reward, len(items), True, items)
    taken = [item for item, why in zip(items, refused) if why is None]
    size = len(taken) if reward.groupwise else reward.batch_max or Limits.batch_max
    made = iter([one for start in range(0, len(taken), max(1, size))
                 for one in outcomes(reward.name, reward, taken[start:start + size])])
    return [why or next(made) for why in refused]


def _text(outcome: Outcome) -> str:
    if not outcome.ok:
        return f"no score: {outcome.message}"
    return f"{outcome.value:g}" + (f"  ({outcome.note})" if outcome.note else "")


def _frames(path: Path) -> Any:
    try:
        data = path.read_bytes()
        encoding = _ENCODINGS.get(path.suffix.lower())
        if encoding is None:
            raise SetupError(f"neither a PNG nor a JPEG file by its name: {path}")
        image = _declared(data, encoding)
        declared_bytes(image, Limits.item_bytes_max)
        return frames_of(image, data)
    except OSError as error:
        raise SetupError(f"{error.strerror}: {path}", EXIT_DATA) from None
    except StatusError as error:
        raise SetupError(f"{error.message}: {path}", EXIT_DATA) from None


def _declared(data: bytes, encoding: str) -> Any:
    """The message that a client would send of this file: sizes from its head."""
    try:
        from PIL import Image
    except ImportError:
        raise SetupError("scoring files needs Pillow: pip install './python[images]' in oxbow's sources", EXIT_DATA) from None
    try:
        with Image.open(io.BytesIO(data), formats=[encoding.upper()]) as file:
            (width, height), mode = file.size, file.mode
    except Exception as error:  # Pillow raises errors of many kinds for damaged files.
        raise invalid(f"not a whole {encoding.upper()} file: {type(error).__name__}") from None
    return wire.Image(width=width, height=height, channels=_CHANNELS.get(mode, 0), frames=1, encoding=encoding)
