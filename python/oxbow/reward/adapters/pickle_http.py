# SPDX-License-Identifier: Apache-2.0
"""Asks the reward servers of flow_grpo (GenEval, DeQA): an HTTP POST of a pickle with JPEG files.

The pictures are JPEG files of quality 75, as flow_grpo sends them: scores are those of such pictures.
"""
from __future__ import annotations

import io
import pickle
import urllib.error
import urllib.request
from typing import Any, Callable, Sequence

from ..definition import Reward
from ..item import Item
from . import plain_pickle

_ANSWER_BYTES_MAX = 16 << 20


def deqa(url: str = "http://127.0.0.1:18086", *, name: str = "deqa", timeout: float = 120.0) -> Reward:
    """DeQA's quality, 0..1."""
    return _reward(name, url, timeout, range=(0.0, 1.0), help="DeQA's quality of a picture", metadata_keys=(),
                   question=lambda items: {}, answer="outputs")


def geneval(url: str = "http://127.0.0.1:18085", *, name: str = "geneval", strict: bool = False,
            timeout: float = 120.0) -> Reward:
    """GenEval's score of what is in a picture; the prompt's metadata is a row of GenEval.

    `strict`: all or nothing. Otherwise an object too many costs as much as one that is missing: 16 found where
    one was wanted are -14.
    """
    return _reward(name, url, timeout, range=(-15.0, 1.0), help="GenEval's score of flow_grpo",
                   metadata_keys=("tag", "include"),
                   question=lambda items: {"meta_datas": [dict(item.metadata) for item in items],
                                           "only_strict": strict},
                   answer="strict_rewards" if strict else "scores")


def _reward(name: str, url: str, timeout: float, *, range: tuple[float, float], help: str,
            metadata_keys: tuple[str, ...], question: Callable[[Sequence[Item]], dict[str, Any]],
            answer: str) -> Reward:
    def score(items: Sequence[Item]) -> list[Any]:
        said = ask(url, {"images": [_jpeg(item) for item in items], **question(items)}, timeout)
        if not isinstance(said, dict) or not isinstance(said.get(answer), list):
            raise ValueError(f"the answer of {url} has no list {answer}")
        return list(said[answer])

    return Reward(name, range, score, batch_max=64, metadata_keys=metadata_keys, help=help)


def ask(url: str, question: dict[str, Any], timeout: float) -> Any:
    """The answer to one question. ConnectionError with one line if there is none."""
    request = urllib.request.Request(url, data=pickle.dumps(question), method="POST")
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:
            data = response.read(_ANSWER_BYTES_MAX + 1)
    except urllib.error.HTTPError as error:
        # The body is a traceback; its last line is the error.
        lines = error.read(1 << 16).decode("utf-8", "replace").strip().splitlines()
        raise ConnectionError(f"{url} answers {error.code}: {lines[-1][:200] if lines else ''}") from None
    except OSError as error:
        raise ConnectionError(f"{url} does not answer: {error}") from None
    if len(data) > _ANSWER_BYTES_MAX:
        raise ConnectionError(f"the answer of {url} is over {_ANSWER_BYTES_MAX} bytes")
    return plain_pickle.read(data)


def _jpeg(item: Item) -> bytes:
    file = io.BytesIO()
    item.pil().save(file, format="JPEG")
    return file.getvalue()
