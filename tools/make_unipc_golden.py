#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Noise levels and timesteps of diffusers' UniPCMultistepScheduler with flow sigmas, from 0.37 on.

`make_unipc_golden.py OUT.json` writes the sizes and shifts that published runs use; `--random N --seed S` writes N others.
A shift of 1 is left out: there some levels are whole timesteps but for the last bit, which decides in diffusers.
"""
import argparse
import json
import random

from diffusers import UniPCMultistepScheduler

PUBLISHED = [(steps, shift) for shift in (2.0, 3.0, 5.0, 7.0, 16.0) for steps in (1, 2, 4, 10, 20, 50)]


def record(steps, shift):
    scheduler = UniPCMultistepScheduler(prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=shift)
    scheduler.set_timesteps(steps)
    return dict(steps=steps, shift=shift, sigmas=[float(s) for s in scheduler.sigmas], timesteps=scheduler.timesteps.tolist())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out")
    parser.add_argument("--random", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    drawn = [(rng.randint(1, 100), round(rng.uniform(1.1, 17), 2)) for _ in range(args.random)]
    with open(args.out, "w") as fh:
        rows = (json.dumps(record(*pair)) for pair in (drawn or PUBLISHED))
        fh.write('{"grids": [\n ' + ",\n ".join(rows) + "\n]}\n")


if __name__ == "__main__":
    main()
