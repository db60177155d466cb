# SPDX-License-Identifier: Apache-2.0
"""Cuts batches into parts that foreign code can take as one array."""
from __future__ import annotations

from typing import Any, Callable, Hashable, Iterable, Sequence

import numpy as np

from ..item import Item


def scored_in_parts(items: Sequence[Item], key: Callable[[Item], Hashable],
                    score: Callable[[list[Item]], Iterable[Any]]) -> list[Any]:
    """Scores items of equal key together and returns the scores in the order of the items.

    ValueError if `score` returns another number of scores than it got items.
    """
    parts: dict[Hashable, list[int]] = {}
    for index, item in enumerate(items):
        parts.setdefault(key(item), []).append(index)
    scores: list[Any] = [None] * len(items)
    for indices in parts.values():
        part = list(score([items[index] for index in indices]))
        if len(part) != len(indices):
            raise ValueError(f"{len(part)} scores returned for {len(indices)} items")
        for index, value in zip(indices, part):
            scores[index] = value
    return scores


def rgb(item: Item) -> np.ndarray:
    """[F, H, W, 3] uint8: grey becomes RGB."""
    return np.repeat(item.frames, 3, axis=3) if item.frames.shape[3] == 1 else item.frames

def tensor(images: np.ndarray) -> Any:
    """[..., H, W, 3] uint8 to [..., 3, H, W] float in 0..1; times 255 and rounded it is the same again."""
    import torch

    return torch.from_numpy(np.ascontiguousarray(np.moveaxis(images, -1, -3))).float() / 255
