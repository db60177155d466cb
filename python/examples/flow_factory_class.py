# SPDX-License-Identifier: Apache-2.0
"""A reward class as Flow-Factory defines them, served unchanged.

A class of Flow-Factory itself is served the same way, where its packages are installed:

    from flow_factory.rewards.ocr import OCRRewardModel
    ocr = flow_factory("ocr", OCRRewardModel, range=(0, 1), device="cuda")
"""
from types import SimpleNamespace

from oxbow.reward.adapters import flow_factory


class Contrast:
    """Difference between the lightest and the darkest pixel."""

    required_fields = ("prompt", "image")
    use_tensor_inputs = False

    def __init__(self, config, accelerator):
        self.scale = config.scale

    def __call__(self, prompt, image=None, **kwargs):
        extremes = [picture.convert("L").getextrema() for picture in image]
        return SimpleNamespace(rewards=[(high - low) / self.scale for low, high in extremes], extra_info={})


contrast = flow_factory("contrast", Contrast, range=(0, 1), config={"scale": 255})
