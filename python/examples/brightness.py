# SPDX-License-Identifier: Apache-2.0
"""The mean brightness of a picture, and a groupwise reward: a picture's rank in its group.

    oxbow-reward check brightness.py
    python brightness.py
"""
from oxbow.reward import Score, reward, serve


@reward("brightness", range=(0, 1), batch_max=32)
def brightness(items):
    """Mean of all pixels."""
    return [item.picture.mean() / 255 for item in items]


@reward("brightness_rank", range=(0, 1), groupwise=True)
def brightness_rank(items):
    """Share of the group that is darker."""
    means = [item.picture.mean() for item in items]
    return [Score(sum(other < mean for other in means) / len(means), note=f"mean {mean:.1f}")
            for mean in means]


serve(brightness, brightness_rank, listen="127.0.0.1:7072")
