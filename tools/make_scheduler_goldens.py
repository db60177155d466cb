#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Noise levels of pipelines of diffusers: make_scheduler_goldens.py [DIR], by default tests/golden

Writes flux_sigmas.json, flux2_sigmas.json and pipeline_sigmas.json. diffusers' own functions work out the first two for pictures of
several sizes, with the scheduler_config.json of FLUX.1-dev, which FLUX.2-dev has as well. The third has, for each kind of
pipeline, the levels that the pipeline itself set while it drew with a network of zeros.
"""
import contextlib
import dataclasses
import json
import pathlib
import sys
from unittest import mock

import diffusers
import numpy as np
from diffusers import FlowMatchEulerDiscreteScheduler
from diffusers.pipelines.flux.pipeline_flux import calculate_shift, retrieve_timesteps
from diffusers.pipelines.flux2.pipeline_flux2 import compute_empirical_mu

from export_model.pipeline_check import PIPELINES, recorded
from export_model.self_check import randomised
from export_model.tracing import example_inputs, full_config, make_transformer, shapes_at
from export_model.wrappers import TINY, WRAPPERS

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


def pipeline_levels(name, pipeline, shift_terminal):
    """The scheduler's state after the pipeline's own call, for a tiny model of its kind."""
    class_name, config = TINY[name]
    wrapper = WRAPPERS[class_name]
    transformer = randomised(make_transformer(wrapper, config), 0)
    inputs = example_inputs(wrapper, shapes_at(wrapper, full_config(transformer), 1), 1)
    scheduler = pipeline.scheduler()
    if shift_terminal:
        scheduler.register_to_config(shift_terminal=shift_terminal)
    module = sys.modules[getattr(diffusers, pipeline.name).__module__]
    rules = [rule for rule in ("compute_empirical_mu", "calculate_shift") if hasattr(module, rule)]
    tokens = []

    def counting(rule):
        def called(image_seq_len, *others, **named):
            tokens.append(image_seq_len)
            return rule(image_seq_len, *others, **named)
        return called

    with contextlib.ExitStack() as patches:
        for rule in rules:
            patches.enter_context(mock.patch.object(module, rule, counting(getattr(module, rule))))
        recorded(dataclasses.replace(pipeline, scheduler=lambda: scheduler), transformer, inputs)
    config = {key: value for key, value in scheduler.config.items() if not key.startswith("_")}
    return dict(pipeline=pipeline.name, transformer=class_name, scheduler_class=type(scheduler).__name__, scheduler=config,
                tokens=tokens[0] if tokens else 1, steps=len(scheduler.timesteps), sigmas=scheduler.sigmas.tolist())


def all_pipelines():
    """Each kind of pipeline, and where its scheduler knows it, with levels stretched as LTX-Video's and Qwen-Image's are."""
    for name, pipelines in PIPELINES.items():
        for pipeline in pipelines:
            yield pipeline_levels(name, pipeline, None)
            if isinstance(pipeline.scheduler(), FlowMatchEulerDiscreteScheduler):
                yield pipeline_levels(name, pipeline, 0.02 if pipeline.name == "QwenImagePipeline" else 0.1)


def main():
    default = pathlib.Path(__file__).resolve().parent.parent / "tests/golden"
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else default
    write(out / "flux_sigmas.json", flux, SIZES)
    write(out / "flux2_sigmas.json", compute_empirical_mu, SIZES + LARGE)
    (out / "pipeline_sigmas.json").write_text(json.dumps(list(all_pipelines()), indent=1) + "\n")


if __name__ == "__main__":
    main()
