# SPDX-License-Identifier: Apache-2.0
"""Runs of comparisons with known numbers, for tests of oxbow.bench."""
import json
import math
import zlib

import numpy as np

from oxbow.bench.comparison import Arm
from oxbow.bench.curve import curve_of


def jump(step, before=0.2, after=0.9, every=5, **more):
    """Reward `before` until a step and `after` from it on, over 100 steps of 8 images; other numbers at each evaluation."""
    return [{"step": i, "train/samples": 8, "time/step_s": 0.5,
             **({"eval/reward_mean": before if i < step else after, **more} if i % every == 0 else {})} for i in range(101)]


def arm(name, lines, seeds=None, **more):
    return Arm(name, [curve_of(one) for one in lines], list(seeds or range(len(lines))), **more)


def written(run, steps, every):
    """metrics.jsonl of a run. Recipes learn at paces of their own, some forget again, some do not count their rows."""
    recipe, seed = (zlib.crc32(of.encode()) for of in (run.recipe, f"{run.recipe}/{run.seed}"))
    pace = 20 + recipe % 60 + seed % 41 - 20 + int(run.rate * 1e4) % 13
    top, side = 0.7 + (recipe >> 8) % 25 / 100, (seed >> 3) % 17 / 32
    lines = []
    for i in range(steps + 1):
        line = {"step": i, "time/wall_s": i * 0.5}
        if i:
            line |= {"time/step_s": 0.5 + (seed >> 5) % 7 / 16, "train/samples": 64, "train/loss": None}
            line |= {"rollout/samples": 64 + (seed + i) % 5} if recipe % 3 else {}
            line |= {"rollout/rows_forward": 640, "train/rows_forward": 5, "train/rows_backward": 320 + (seed >> 7) % 64} if recipe % 4 else {}
        if i % every == 0:
            noise = zlib.crc32(f"{run.recipe}/{run.seed}/{i}".encode()) % 1000 / 1000 - 0.5
            reward = max(0, min(1, top * min(i, pace) / pace + noise * 0.1)) * (0.3 if recipe % 11 == 3 and i > pace + 20 else 1)
            line |= {"eval/reward_mean": round(reward, 6), "time/eval_s": 0.125, "eval/reward_digits_strict_mean": round(reward**2, 6),
                     "eval/speckle_mean": round(0.05 * (1 - reward), 6), "eval/minority_share": round(side * reward, 6)}
            line |= {f"eval/by_{hard}_mean": round(max(0, reward - 0.1 * hard * (1 - i / steps)), 6) for hard in range(4)}
        lines.append(json.dumps(line, separators=(",", ":")))
    return "\n".join(lines) + "\n"


def is_left_out(run):
    """Some runs are not finished."""
    return zlib.crc32(run.directory.name.encode()) % 19 == 5


def philox_drawn(bound, count, n):
    """As oxbow.bench.paired.drawn, by the generator that the goldens were made with: Philox4x32-10 (Salmon et al., SC 2011)."""
    def mixed(value):
        value = (value + 0x9E3779B97F4A7C15) % 2**64
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            value = (value ^ (value >> shift)) * factor % 2**64
        return value ^ (value >> 31)

    u64, low, half = np.uint64, np.uint64(2**32 - 1), np.uint64(32)
    key = [part % 2**32 for part in (mixed(mixed(1) ^ n), mixed(mixed(1) ^ n) >> 32)]
    blocks = math.ceil(count * n / 2)  # Four words each, which are two draws.
    word = [np.arange(blocks, dtype=u64), *(np.full(blocks, one, u64) for one in (0, 0xffff0006, 0))]
    for _ in range(10):
        first, second = word[0] * u64(0xD2511F53), word[2] * u64(0xCD9E8D57)
        word = [(second >> half) ^ word[1] ^ u64(key[0]), second & low, (first >> half) ^ word[3] ^ u64(key[1]), first & low]
        key = [(key[0] + 0x9E3779B9) % 2**32, (key[1] + 0xBB67AE85) % 2**32]
    draws = np.stack([word[0] << half | word[1], word[2] << half | word[3]], axis=1).ravel()[:count * n]
    return (draws % u64(bound)).astype(np.int64).reshape(count, n)
