#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Latents that pipelines of diffusers draw with guidance: guided.safetensors in directories of tests/golden/exported.

    make_guided_goldens.py [NAME...]

The transformer is that of the directory's golden.safetensors. A pipeline draws with Euler's steps against a negative prompt,
at each of two scales of its own: `in.*` and `negative.*` (one row) are the prompts, `N.x` the noise, `N.sigmas` the levels,
`N.out` the latents at the end. Metadata: pipeline, scales. GuidedGoldenTest draws the same. Needs torch, diffusers and transformers.
"""
import argparse
import json
import pathlib

import torch
from safetensors.torch import load_file, save_file

from export_model.pipeline_check import GUIDANCE, GUIDED_SCALES, PIPELINES, guided_steps, one_prompt
from export_model.tracing import example_inputs, full_config, make_transformer, shapes_at
from export_model.wrappers import TINY, WRAPPERS

GOLDENS = pathlib.Path(__file__).resolve().parent.parent / "tests/golden/exported"
SEED = 20260601


def prompt_parts(prefix, inputs, rows=None):
    return {f"{prefix}.{name}": part[:rows] for name, part in inputs.items() if name not in ("x", "sigma", "guidance")}


@torch.no_grad()
def golden(name):
    class_name, config = TINY[name]
    wrapper, pipeline = WRAPPERS[class_name], PIPELINES[name][-1]  # The last is Euler's.
    transformer = make_transformer(wrapper, config)
    weights = load_file(GOLDENS / name / "golden.safetensors")
    transformer.load_state_dict({key[len("weight."):]: value.float() for key, value in weights.items() if key.startswith("weight.")})
    shapes = shapes_at(wrapper, full_config(transformer), 1)
    inputs, negative = (example_inputs(wrapper, shapes, seed) for seed in (SEED, SEED + 1))
    negative = one_prompt(negative)
    if "guidance" in inputs:
        inputs["guidance"] = negative["guidance"] = torch.full_like(inputs["guidance"], GUIDANCE)
    tensors = prompt_parts("in", inputs) | prompt_parts("negative", negative, rows=1)
    for index, scale in enumerate(GUIDED_SCALES):
        steps = guided_steps(pipeline, transformer, inputs, negative, scale)
        tensors |= {f"{index}.x": steps[0][0], f"{index}.out": steps[-1][3],
                    f"{index}.sigmas": torch.tensor([sigma[0].item() for _, sigma, _, _ in steps] + [0.0])}
    file = GOLDENS / name / "guided.safetensors"
    save_file({key: value.float().contiguous().clone() for key, value in tensors.items()}, file, metadata={
        "format": "pt", "pipeline": pipeline.name, "scales": json.dumps(GUIDED_SCALES), "embedded_guidance": str(GUIDANCE)})
    file.chmod(0o644)
    print(name, pipeline.name, file.stat().st_size, flush=True)


def main():
    names = [name for name, pipelines in PIPELINES.items() if pipelines[-1].guided]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=names, help="of " + ", ".join(names))
    torch.set_num_threads(1)
    for name in parser.parse_args().names:
        golden(name)


if __name__ == "__main__":
    main()
