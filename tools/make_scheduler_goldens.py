#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Noise levels of FluxPipeline as tests/golden/flux_sigmas.json: make_scheduler_goldens.py [OUT.json]

diffusers' own functions work them out for pictures of several sizes, with the scheduler_config.json of FLUX.1-dev.
"""
import json
import pathlib
import sys

import numpy as np
from diffusers import FlowMatchEulerDiscreteScheduler
from diffusers.pipelines.flux.pipeline_flux import calculate_shift, retrieve_timesteps

SCHEDULER = dict(num_train_timesteps=1000, shift=3.0, use_dynamic_shifting=True, base_shift=0.5, max_shift=1.15,
                 base_image_seq_len=256, max_image_seq_len=4096)
SIZES = [(256, 256, 4), (512, 512, 6), (720, 720, 16), (1024, 1024, 28), (384, 1280, 10)]  # Pixels and steps.


def sigmas(height, width, steps):
    """As FluxPipeline.__call__ sets its scheduler: a token is 16 pixels square."""
    scheduler = FlowMatchEulerDiscreteScheduler(**SCHEDULER)
    mu = calculate_shift(height // 16 * (width // 16), *(SCHEDULER[key] for key in (
        "base_image_seq_len", "max_image_seq_len", "base_shift", "max_shift")))
    retrieve_timesteps(scheduler, steps, "cpu", sigmas=np.linspace(1.0, 1 / steps, steps), mu=mu)
    return [float(sigma) for sigma in scheduler.sigmas]


def main():
    default = pathlib.Path(__file__).resolve().parent.parent / "tests/golden/flux_sigmas.json"
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else default
    cases = [dict(height=height, width=width, steps=steps, sigmas=sigmas(height, width, steps))
             for height, width, steps in SIZES]
    out.write_text(json.dumps(dict(scheduler=SCHEDULER, cases=cases), indent=1) + "\n")


if __name__ == "__main__":
    main()
