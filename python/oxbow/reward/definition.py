# SPDX-License-Identifier: Apache-2.0
"""The definition of a reward: a function of items, or a class with `score(items)`, and what Describe says of it."""
from __future__ import annotations

import hashlib
import inspect
import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Iterable, Sequence, Union

from .item import Item
from .status import SetupError

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,79}")
MEDIA = ("image", "video")


@dataclass(frozen=True)
class Score:
    """A value with a word about how it came to be. The note travels with the value."""

    value: float
    note: str = ""


class Failed(Exception):
    """This item has no score, for this reason. Return it in the item's place, or raise it for all."""


Result = Union[float, Score, BaseException]
ScoreItems = Callable[[Sequence[Item]], Iterable[Any]]


@dataclass(eq=False)
class Reward:
    """One reward. Calling it scores items as the server would, without the server's checks."""

    name: str
    range: tuple[float, float]
    target: Any  # A function of items, or a class.
    batch_max: int = 0
    groupwise: bool = False
    media: tuple[str, ...] = ("image",)
    metadata_keys: tuple[str, ...] = ()
    help: str = ""
    identity: str = ""
    wait_ms: float = 5.0
    frames_every: int = 1
    _score: ScoreItems | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise SetupError(f"reward's name is not made of letters, digits, _ . and -: {self.name!r}")
        low, high = self.range
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise SetupError(f"{self.name}: range is not (least, greatest) of two numbers: {self.range}")
        if not self.media or any(medium not in MEDIA for medium in self.media):
            raise SetupError(f"{self.name}: media are image and video, not {self.media}")
        if self.batch_max < 0 or self.wait_ms < 0:
            raise SetupError(f"{self.name}: batch_max and wait_ms are not below 0")
        if self.frames_every < 1:
            raise SetupError(f"{self.name}: frames_every is 1 or more, not {self.frames_every}")

    @property
    def reads(self) -> tuple[str, ...]:
        """The media that items may be. A reward of pictures reads a clip frame by frame (shown.py), unless it compares."""
        clips = "video" in self.media or not self.groupwise
        return tuple(medium for medium in MEDIA if medium in self.media or (medium == "video" and clips))

    def load(self) -> None:
        """Makes the reward ready; the server calls it once, in the thread that scores afterwards."""
        if not inspect.isclass(self.target):
            self._score = self.target
            return
        scorer: Any = self.target()
        if hasattr(scorer, "load"):
            scorer.load()
        self.identity = self.identity or getattr(scorer, "identity", "")
        self._score = scorer.score

    def __call__(self, items: Sequence[Item]) -> Iterable[Any]:
        if self._score is None:
            self.load()
        assert self._score is not None
        return self._score(items)


def reward(name: str, *, range: tuple[float, float], batch_max: int = 0, groupwise: bool = False,
           media: Sequence[str] = ("image",), metadata_keys: Sequence[str] = (), help: str = "",
           identity: str = "", wait_ms: float = 5.0, frames_every: int = 1) -> Callable[[Any], Reward]:
    """Makes a function `f(items)`, or a class with `score(items)` and perhaps `load()`, a reward.

    It returns one number per item. `Score(value, note=...)` adds a note. An exception in an item's
    place, such as `Failed("why")`, is that item's error; a raised one is the error of every item.

    range          least and greatest value
    batch_max      most items of one call; 0: the server's batch_max
    groupwise      each call has the whole group of one prompt
    media          "image", "video" or both. Without "video" the score of a clip is the mean over its frames
    frames_every   it reads the frames 0, n, 2n, ... of a clip; the others need not travel
    metadata_keys  keys that the prompt's metadata must have
    help           one line; default: the first line of the docstring
    identity       equal identities promise comparable scores; default: a hash of a function's source, and
                   for a class its attribute `identity` after load()
    wait_ms        how long a batch waits for items of other calls
    """

    def define(target: Any) -> Reward:
        if inspect.isclass(target) and not callable(getattr(target, "score", None)):
            raise SetupError(f"{name}: the class {target.__name__} has no method score(items)")
        doc = (inspect.getdoc(target) or "").strip()
        return Reward(name=name, range=(float(range[0]), float(range[1])), target=target,
                      batch_max=batch_max, groupwise=groupwise, media=tuple(media),
                      metadata_keys=tuple(metadata_keys), help=help or doc.split("\n")[0],
                      identity=identity or _source_hash(target), wait_ms=wait_ms, frames_every=frames_every)

    return define


def _source_hash(target: Any) -> str:
    if not inspect.isfunction(target):
        return ""
    try:
        return fingerprint(inspect.getsource(target))
    except OSError:
        return ""


def fingerprint(*parts: str | bytes | Path) -> str:
    """An identity: a hash over texts, bytes and the contents of files (given as Path)."""
    whole = hashlib.sha256()
    for part in parts:
        one = hashlib.sha256()
        if isinstance(part, Path):
            with part.open("rb") as file:
                while block := file.read(1 << 20):
                    one.update(block)
        else:
            one.update(part.encode() if isinstance(part, str) else part)
        whole.update(one.digest())
    return whole.hexdigest()[:32]
