# SPDX-License-Identifier: Apache-2.0
"""Text in a picture, read by PaddleOCR 3.7: 1 - (edit distance to the quoted text) / (its length).

The networks are named, as PaddleOCR's own choice changes with its version. Pictures are RGB, as flow_grpo and Flow-Factory hand them
over, and as oxbow's `ocr` with `engine: ppocr` reads them.

Not run by oxbow's tests: it needs `pip install paddleocr paddlepaddle` and downloads its models.

    oxbow-reward serve paddle_ocr.py --listen 127.0.0.1:7072
"""
import re

from oxbow.reward import Failed, Score, reward

DETECTOR, RECOGNISER = "PP-OCRv6_medium_det", "PP-OCRv6_medium_rec"  # PaddleOCR 3.7 takes these unless told otherwise.


def edit_distance(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        previous, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (x != y))
    return row[-1]


@reward("paddle_ocr", range=(0, 1), batch_max=8)
class PaddleOcr:
    """How well the text between the prompt's quotes can be read."""

    def load(self):
        import paddleocr

        self.model = paddleocr.PaddleOCR(text_detection_model_name=DETECTOR, text_recognition_model_name=RECOGNISER,
                                         use_doc_orientation_classify=False, use_doc_unwarping=False,
                                         use_textline_orientation=False)
        self.identity = f"paddleocr-{paddleocr.__version__} {DETECTOR} {RECOGNISER} rgb"

    def score(self, items):
        return [self.score_one(item) for item in items]

    def score_one(self, item):
        quoted = re.search(r'"(.+?)"', item.prompt)
        if not quoted:
            return Failed("the prompt has no text in quotes")
        wanted = quoted.group(1).replace(" ", "").lower()
        read = "".join(text for page in self.model.predict(item.picture) for text in page["rec_texts"])
        found = read.replace(" ", "").lower()
        distance = 0 if wanted in found else min(edit_distance(found, wanted), len(wanted))
        return Score(1 - distance / len(wanted), note=read)
