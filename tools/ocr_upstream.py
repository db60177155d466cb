# SPDX-License-Identifier: Apache-2.0
"""OCR rewards of flow_grpo and Flow-Factory, run from checkouts: their own scorers over an engine that reads what it is told.

Needs torch, numpy, Pillow and Levenshtein. A stand-in replaces PaddleOCR, and a few names replace what Flow-Factory's
scorer imports of accelerate and of its own package.
"""
import importlib.util
import pathlib
import sys
import types

import numpy


class TellingEngine:
    """PaddleOCR 2 (`ocr`) and 3 (`predict`) that read `text`, in two lines if it is long."""

    text = ""

    def __init__(self, **_):
        pass

    def lines(self):
        half = len(self.text) // 2
        return [part for part in (self.text[:half], self.text[half:]) if part]

    def ocr(self, _, cls):
        assert cls is False
        lines = [[None, (line, 0.9)] for line in self.lines()]
        return [lines + [[None, ("not seen", 0.0)]] if lines else None]

    def predict(self, _):
        return [{"rec_texts": [line]} for line in self.lines()]


class BaseModel:
    """The part of Flow-Factory's base class that the scorer needs."""

    def __init__(self, config, accelerator):
        self.config, self.accelerator, self.device = config, accelerator, "cpu"


def _load(name, path, stand_ins):
    """The module of a file, for which these modules stand in while it loads."""
    kept = dict(sys.modules)
    for stand_in, names in (stand_ins | {"paddleocr": {"PaddleOCR": TellingEngine}}).items():
        sys.modules[stand_in] = types.ModuleType(stand_in)
        sys.modules[stand_in].__dict__.update(names)
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for stand_in in {"paddleocr", *stand_ins}:
        del sys.modules[stand_in]
    sys.modules.update(kept)
    return module


def _reward_of(scorer):
    picture = numpy.zeros((4, 4, 3), numpy.uint8)

    def reward(prompt, read):
        TellingEngine.text = read
        rewards = scorer([prompt], [picture])
        assert len(rewards) == 1
        return float(rewards[0])
    return reward


def flow_grpo(checkout):
    """reward(prompt, read) of flow_grpo. IndexError if the prompt has no quotation mark."""
    scorer = _load("flow_grpo_ocr", pathlib.Path(checkout, "flow_grpo/ocr.py"), {}).OcrScorer()
    return _reward_of(lambda prompts, pictures: scorer(pictures, prompts))


def flow_factory(checkout):
    """reward(prompt, read) of Flow-Factory."""
    class Output:
        def __init__(self, rewards, extra_info):
            self.rewards = rewards

    module = _load("flow_factory.rewards.ocr", pathlib.Path(checkout, "src/flow_factory/rewards/ocr.py"), {
        "accelerate": {"Accelerator": object}, "flow_factory": {"__path__": []}, "flow_factory.rewards": {"__path__": []},
        "flow_factory.utils": {"__path__": []}, "flow_factory.hparams": {"RewardArguments": object},
        "flow_factory.utils.logger_utils": {"setup_logger": lambda _: None},
        "flow_factory.rewards.abc": {"GroupwiseRewardModel": BaseModel, "PointwiseRewardModel": BaseModel,
                                     "RewardModelOutput": Output}})
    scorer = module.OCRRewardModel(types.SimpleNamespace(), types.SimpleNamespace(local_process_index=0))
    return _reward_of(lambda prompts, pictures: scorer(prompts, image=pictures).rewards)
