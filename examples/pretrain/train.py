#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small model of a small world from nothing, in minutes on one core, and writes it as a diffusers directory.

    tools/install_deps.sh --export      # or a Python with tools/export_model/requirements.txt
    .deps/export/bin/python examples/pretrain/train.py --task digits --out DIR
    oxbow eval --model DIR --prompts configs/prompts/digits_eval.txt

Transformer and text encoders train together:

    x = (1 - t) x0 + t eps        loss = mean |v(x, t, prompt) - (eps - x0)|^2

A world of your own is a row of worlds.py. These settings are for models like those of models/, with the reward of the
shipped model and, where it was measured, of one that was made so (1,600 pictures of held-out prompts, +- .007, seed 0):

    digits         .528  .520  --task digits
    digits_flux    .516  .506  --task digits --caption-noise .47 --steps 8000 --transformer models/digits_flux/transformer
    digits_sparse  .250  .235  --task digits --caption-noise .78
    plates         .509  .491  --task plates
    clip           .402  .387  --task clip
"""
import argparse
import copy
import json
import shutil
import sys
import time
from pathlib import Path

import diffusers
import numpy as np
import torch

import families
import text
import worlds

sys.path.insert(0, str(worlds.ROOT / "tools"))
from export_model.model_directory import write_graphs  # noqa: E402


def new_transformer(family, config):
    """diffusers' own weights, but AdaLN starts as the identity, and the velocity at 0."""
    network = family.transformer.from_config(config)
    for name, module in network.named_modules():
        parent, _, own = name.rpartition(".")
        if name == "proj_out" or own == "linear" and "norm" in parent.rpartition(".")[2]:
            torch.nn.init.zeros_(module.weight)
            torch.nn.init.zeros_(module.bias)
    return network.eval()


def rate(step, steps):
    """Factor of the learning rate: a warm-up over 100 steps, and a linear decay to .02 over the last 60 %."""
    into = max(0, (step / steps - 0.4) / 0.6)
    return min(1, (step + 1) / 100) * (1 - 0.98 * into)


def times_of(step, size, random):
    """Noise levels: uniform in even steps, logit-normal(.2, 1.2) in odd ones."""
    return random.random(size) if step % 2 == 0 else 1 / (1 + np.exp(-(0.2 + 1.2 * random.standard_normal(size))))


def train(args, world, side, networks, prompts):
    """The running average of the weights."""
    parameters = list(networks.parameters())
    average = copy.deepcopy(networks)
    optimizer = torch.optim.AdamW(parameters, lr=2e-3, betas=(0.9, 0.99), weight_decay=1e-4, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate(step, args.steps))
    start = shown = time.monotonic()
    for step in range(args.steps):
        random = np.random.default_rng((args.seed, step))
        captions, pictures = world.batch(prompts, 64, args.caption_noise, random)
        times = torch.tensor(times_of(step, len(captions), random), dtype=torch.float32)
        data = torch.from_numpy(pictures)
        noise = torch.from_numpy(random.standard_normal(data.shape, np.float32))
        t = times.view(-1, *[1] * (data.dim() - 1))
        velocity = side.velocity(networks["transformer"], (1 - t) * data + t * noise, times, side.encode(networks, captions))
        loss = torch.nn.functional.mse_loss(velocity, noise - data)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0, error_if_nonfinite=True)
        optimizer.step()
        schedule.step()
        with torch.no_grad():
            torch._foreach_lerp_(list(average.parameters()), parameters, 1 - 0.995)
        now = time.monotonic()
        if now > shown + 10 or step + 1 == args.steps:
            shown, each = now, (now - start) / (step + 1)
            print(f"step {step + 1}/{args.steps}  loss {loss.item():.4f}  {1000 * each:.0f} ms/step  "
                  f"{each * (args.steps - step - 1):.0f} s left", file=sys.stderr)
    return average


def write(folder, given, side, average):
    """The directory's other files; config.json as given, without the values that every class has by default."""
    for name, (_, config) in side.encoders.items():
        average[name].save_pretrained(folder / name)
        text.write_json(folder / name / "config.json", config)
    average["transformer"].save_pretrained(folder / "transformer")
    for path in (given / "config.json", given / "graph.json.gz"):  # oxbow runs a transformer from its graph.
        if path.exists():
            shutil.copy(path, folder / "transformer")
    version = {"_diffusers_version": diffusers.__version__}
    scheduler = "FlowMatchEulerDiscreteScheduler"
    text.write_json(folder / "scheduler/scheduler_config.json",
                    {"_class_name": scheduler} | version | {"num_train_timesteps": 1000, "shift": 1.0})
    index = side.index | version | {"transformer": ["diffusers", side.transformer.__name__]}
    index |= {name: ["transformers", config["architectures"][0]] for name, (_, config) in side.encoders.items()}
    index |= {name: ["transformers", kind] for name, kind in side.tokenizers.items()}
    text.write_json(folder / "model_index.json", index | {"scheduler": ["diffusers", scheduler]})
    write_graphs(folder, "text_encoder")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=sorted(worlds.WORLDS), default="digits")
    parser.add_argument("--transformer", type=Path, help="folder with config.json of an SD3, FLUX.1 or Wan transformer, "
                        "and its graph.json.gz (tools/export_model); default: models/TASK/transformer")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--prompts", type=Path, help="one a line; default: configs/prompts/TASK_train.txt")
    parser.add_argument("--steps", type=int, help="default: as the shipped model")
    parser.add_argument("--caption-noise", type=float, default=0.5, help="share of a caption's numbers that are random")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    if args.out.exists():
        sys.exit(f"--out exists: {args.out}")
    world = worlds.WORLDS[args.task]
    args.steps = args.steps or world.steps
    prompts = (args.prompts or worlds.ROOT / f"configs/prompts/{args.task}_train.txt").read_text().split("\n")
    prompts = [prompt for prompt in prompts if prompt]
    given = args.transformer or worlds.ROOT / f"models/{args.task}/transformer"
    config = json.loads((given / "config.json").read_text())
    family = families.FAMILIES.get(config["_class_name"])
    if family is None:
        sys.exit(f"no small text encoders for {config['_class_name']}; there are some for {', '.join(families.FAMILIES)}")
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)

    partial = args.out.with_name(args.out.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    side = family(partial, config, world.word, prompts)
    networks = torch.nn.ModuleDict({name: encoder for name, (encoder, _) in side.encoders.items()})
    networks["transformer"] = new_transformer(family, config)
    write(partial, given, side, train(args, world, side, networks, prompts))
    partial.rename(args.out)
    print(f"written to {args.out}; measure it: oxbow eval --model {args.out} --prompts configs/prompts/{args.task}_eval.txt")


if __name__ == "__main__":
    main()
