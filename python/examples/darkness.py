# SPDX-License-Identifier: Apache-2.0
"""How dark a picture is, and a groupwise reward: a picture's rank in its group.

    oxbow-reward check darkness.py
    python darkness.py
"""
from oxbow.reward import Score, reward, serve


@reward("darkness", range=(0, 1), batch_max=32)
def darkness(items):
    """1 is black."""
    return [1 - item.picture.mean() / 255 for item in items]


@reward("darkness_rank", range=(0, 1), groupwise=True)
def darkness_rank(items):
    """Share of the group that is brighter."""
    means = [item.picture.mean() for item in items]
    return [Score(sum(other > mean for other in means) / len(means), note=f"mean {mean:.1f}")
            for mean in means]


serve(darkness, darkness_rank, listen="127.0.0.1:7072")
