# SPDX-License-Identifier: Apache-2.0
"""A judge that takes its time and has no opinion: 0.1 s a picture, one picture at a time, as a vision-language model on one GPU.

    oxbow-reward serve configs/bench/slow_judge.py --listen 127.0.0.1:7079

configs/bench/dear-reward.yaml waits for it with every picture that it trains on. Held-out pictures cost nothing: times of
evaluations are no part of the comparison.
"""
import threading
import time
from pathlib import Path

from oxbow.reward import reward

SECONDS = 0.1
HELD_OUT = set()
for name in ("digits_eval.txt", "digits_tune.txt"):
    HELD_OUT |= set((Path(__file__).parents[1] / "prompts" / name).read_text().splitlines())
busy = threading.Lock()


@reward("judge", range=(0, 1))
def judge(items):
    """0 for each."""
    with busy:
        time.sleep(SECONDS * sum(item.prompt not in HELD_OUT for item in items))
    return [0.0] * len(items)
