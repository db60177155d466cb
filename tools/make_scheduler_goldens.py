#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Noise levels of FluxPipeline and Flux2Pipeline: make_scheduler_goldens.py [DIR], by default tests/golden

Writes flux_sigmas.json and flux2_sigmas.json. diffusers' own functions work them out for pictures of several sizes, with the
scheduler_config.json of FLUX.1-dev, which FLUX.2-dev has as well.
"""
import json
import pathlib
import sys

import numpy as np
from diffusers import FlowMatchEulerDiscreteScheduler
from diffusers.pipelines.flux.pipeline_flux import calculate_shift, retrieve_timesteps
from diffusers.pipelines.flux2.pipeline_flux2 import compute_empirical_mu

SCHEDULER = dict(num_train_timesteps=1000, shift=3.0, use_dynamic_shifting=True, base_shift=0.5, max_shift=1.15,
                 base_image_seq_len=256, max_image_seq_len=4096)
SIZES = [(256, 256, 4), (512, 512, 6), (720, 720, 16), (1024, 1024, 28), (384, 1280, 10)]  # Pixels and steps.
LARGE = [(1024, 1024, 50), (1088, 1024, 28), (2048, 2048, 50)]


def flux(tokens, steps):
    return calculate_shift(tokens, *(SCHEDULER[key] for key in ("base_image_seq_len", "max_image_seq_len", "base_shift", "max_shift")))


def sigmas(mu, steps):
    """As the pipelines set their scheduler."""
    scheduler = FlowMatchEulerDiscreteScheduler(**SCHEDULER)
    retrieve_timesteps(scheduler, steps, "cpu", sigmas=np.linspace(1.0, 1 / steps, steps), mu=mu)
    return [float(sigma) for sigma in scheduler.sigmas]


def write(path, mu_of, sizes):
    """A token is 16 pixels square."""
    cases = [dict(height=height, width=width, steps=steps, sigmas=sigmas(mu_of(height // 16 * (width // 16), steps), steps))
             for height, width, steps in sizes]
    path.write_text(json.dumps(dict(scheduler=SCHEDULER, cases=cases), indent=1) + "\n")


def main():
    default = pathlib.Path(__file__).resolve().parent.parent / "tests/golden"
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else default
    write(out / "flux_sigmas.json", flux, SIZES)
    write(out / "flux2_sigmas.json", compute_empirical_mu, SIZES + LARGE)


if __name__ == "__main__":
    main()
