# SPDX-License-Identifier: Apache-2.0
"""Runs a reward function of flow_grpo: fn(images, prompts, metadata) -> (scores, information).

Images are what flow_grpo's trainer gives: float tensors [N, 3, H, W] in 0..1, or without `torch` uint8
arrays [N, H, W, 3]; clips have one dimension more, [N, F, ...]. Metadata is a list of dicts.
"""
from __future__ import annotations

from typing import Any, Callable, Iterable, Sequence

import numpy as np

from ..definition import Reward
from ..item import Item
from .parts import rgb, scored_in_parts, tensor

Function = Callable[[Any, list[str], list[dict[str, Any]]], Any]


def flow_grpo(name: str, make: Callable[[], Function], *, range: tuple[float, float], torch: bool = True,
              pick: Callable[[Any], Iterable[Any]] = lambda result: result[0], batch_max: int = 0,
              media: Sequence[str] = ("image",), metadata_keys: Sequence[str] = (), help: str = "",
              identity: str = "") -> Reward:
    """A reward from a function that `make()` returns, as flow_grpo's `ocr_score(device)` does.

    `make` is called once, when the server loads. `pick` takes the scores from what the function returns:
    of `multi_score` it would be `lambda result: result[0]["avg"]`.
    """

    class FlowGrpo:
        def load(self) -> None:
            self._function = make()

        def score(self, items: Sequence[Item]) -> list[Any]:
            return scored_in_parts(items, lambda item: item.frames.shape[:3], self._score)

        def _score(self, items: list[Item]) -> Iterable[Any]:
            frames = np.stack([rgb(item) for item in items])  # [N, F, H, W, 3]
            images: Any = frames if items[0].is_video else frames[:, 0]
            if torch:
                images = tensor(images)
            return pick(self._function(images, [item.prompt for item in items],
                                       [dict(item.metadata) for item in items]))

    return Reward(name, range, FlowGrpo, batch_max=batch_max, media=tuple(media),
                  metadata_keys=tuple(metadata_keys), help=help or f"flow_grpo's {name}", identity=identity)
