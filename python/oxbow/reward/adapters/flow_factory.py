# SPDX-License-Identifier: Apache-2.0
"""Runs a reward class of Flow-Factory: Class(config, accelerator), called with lists of prompts and media.

The class decides what it gets: `required_fields`, the parameters of `__call__`, and `use_tensor_inputs`
(float tensors [C, H, W] in 0..1; otherwise PIL images). A class that derives from GroupwiseRewardModel is
groupwise. Metadata comes as Flow-Factory gives it: one JSON text per item.
"""
from __future__ import annotations

import inspect
import json
from types import SimpleNamespace
from typing import Any, Mapping, Sequence

from ..definition import Reward
from ..item import Item
from .parts import rgb, scored_in_parts, tensor

_FIELDS = ("prompt", "image", "video", "metadata")


def flow_factory(name: str, model: type, *, range: tuple[float, float], device: str = "cpu", dtype: str = "float32",
                 config: Mapping[str, Any] | None = None, batch_max: int = 16, media: Sequence[str] = ("image",),
                 metadata_keys: Sequence[str] = (), help: str = "", identity: str = "") -> Reward:
    """A reward from `model`. `config` has further settings of its arguments, such as `ocr_lang`."""
    groupwise = any(base.__name__ == "GroupwiseRewardModel" for base in model.__mro__)

    class FlowFactory:
        def load(self) -> None:
            own_device, own_dtype = _torch(device, dtype)
            settings = SimpleNamespace(device=own_device, dtype=own_dtype, batch_size=batch_max, name=name,
                                       **(config or {}))
            self._model = model(settings, _accelerator(own_device))
            self._takes = _fields(self._model)

        def score(self, items: Sequence[Item]) -> list[Any]:
            if groupwise:
                return list(self._score(list(items)))
            return scored_in_parts(items, lambda item: item.is_video, self._score)

        def _score(self, items: list[Item]) -> Any:
            tensors = bool(getattr(self._model, "use_tensor_inputs", False))
            fields: dict[str, list[Any]] = {
                "prompt": [item.prompt for item in items],
                "metadata": [json.dumps(dict(item.metadata)) for item in items],
            }
            if items[0].is_video:
                fields["video"] = [tensor(rgb(item)) if tensors else item.pil_frames() for item in items]
            else:
                fields["image"] = [tensor(rgb(item)[0]) if tensors else item.pil() for item in items]
            return self._model(**{key: value for key, value in fields.items() if key in self._takes}).rewards

    return Reward(name, range, FlowFactory, batch_max=0 if groupwise else batch_max, groupwise=groupwise,
                  media=tuple(media), metadata_keys=tuple(metadata_keys),
                  help=help or (inspect.getdoc(model) or "").split("\n")[0], identity=identity)


def _fields(model: Any) -> set[str]:
    """The arguments to call a model with. ValueError if it needs what no reward server has."""
    foreign = [one for one in getattr(model, "required_fields", ()) if one not in _FIELDS]
    if foreign:
        raise ValueError(f"{type(model).__name__} needs {', '.join(foreign)}, which oxbow does not send")
    parameters = inspect.signature(model.__call__).parameters.values()
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters):
        return set(_FIELDS)
    return {one.name for one in parameters} & set(_FIELDS)


def _torch(device: str, dtype: str) -> tuple[Any, Any]:
    """torch's own objects; the plain words where torch is not installed."""
    try:
        import torch
    except ImportError:
        return device, dtype
    return torch.device(device), getattr(torch, dtype)


def _accelerator(device: Any) -> Any:
    """The part of Accelerate's Accelerator that reward classes use, for a process of its own."""
    return SimpleNamespace(device=device, process_index=0, local_process_index=0, num_processes=1,
                           is_main_process=True, is_local_main_process=True, wait_for_everyone=lambda: None,
                           print=print)
