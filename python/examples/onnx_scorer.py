# SPDX-License-Identifier: Apache-2.0
"""A network in an ONNX file that scores pictures, by onnxruntime on one thread of the CPU.

Change what stands in capitals: the file, what it was trained on, and which of its numbers is the score. Needs
`pip install onnxruntime pillow`.

    ONNX_MODEL=model.onnx oxbow-reward serve onnx_scorer.py --listen 127.0.0.1:7072
"""
import os
from pathlib import Path

import numpy as np

from oxbow.reward import fingerprint, reward

MODEL = os.environ.get("ONNX_MODEL", "model.onnx")
SIDE = 224  # Pixels of a side, if the file does not fix them.
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # Red, green and blue in 0 to 1.
COLUMN = -1  # The number of its first output that is the score.


@reward("onnx", range=(0, 1), batch_max=16)
class OnnxScorer:
    """The score that an ONNX network gives the picture."""

    def load(self):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(MODEL, options, providers=["CPUExecutionProvider"])
        first = self.session.get_inputs()[0]
        self.name, self.channels_last = first.name, first.shape[-1] == 3
        sides = first.shape[1:3] if self.channels_last else first.shape[2:4]
        self.size = tuple(side if isinstance(side, int) else SIDE for side in reversed(sides))
        self.identity = f"onnx/1 {fingerprint(Path(MODEL))} {self.size} {MEAN} {STD} {COLUMN}"

    def score(self, items):
        # A picture at a time: its score is the same in any company, and files with one row fixed are common.
        return [self.score_one(item) for item in items]

    def score_one(self, item):
        picture = item.pil().convert("RGB").resize(self.size, resample=2)  # Bilinear.
        pixels = ((np.asarray(picture, np.float32) / 255 - MEAN) / STD).astype(np.float32)
        pixels = pixels if self.channels_last else pixels.transpose(2, 0, 1)
        return float(self.session.run(None, {self.name: pixels[None]})[0].reshape(-1)[COLUMN])
