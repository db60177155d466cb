# SPDX-License-Identifier: Apache-2.0
"""Rewards of your own, in Python, served to oxbow.

    from oxbow.reward import reward, serve

    @reward("darkness", range=(0, 1))
    def darkness(items):
        return [1 - item.picture.mean() / 255 for item in items]

    serve(darkness, listen="127.0.0.1:7072")
"""
from .definition import Failed, Reward, Score, fingerprint, reward
from .item import Item
from .server import serve
from .tls import Tls

__all__ = ["Failed", "Item", "Reward", "Score", "Tls", "fingerprint", "reward", "serve"]
