# SPDX-License-Identifier: Apache-2.0
"""A reward function as flow_grpo defines them, fn(images, prompts, metadata), served unchanged.

Functions of flow_grpo itself are served the same way, where its packages are installed:

    from flow_grpo.rewards import pickscore_score
    pickscore = flow_grpo("pickscore", lambda: pickscore_score("cuda"), range=(0, 1.5))
"""
import io

import numpy as np
from PIL import Image

from oxbow.reward.adapters import flow_grpo


def small_files():
    def fn(images, prompts, metadata):
        sizes = []
        for image in images:
            file = io.BytesIO()
            Image.fromarray(image).save(file, format="JPEG", quality=95)
            sizes.append(file.tell())
        return -np.array(sizes) / 500_000, {}

    return fn


small = flow_grpo("small_file", small_files, range=(-100, 0), torch=False)
