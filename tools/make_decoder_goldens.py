#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Golden decoders that are exported graphs: small random autoencoders, run by diffusers' own pipelines.

    make_decoder_goldens.py [NAME...]                       the committed directories of tests/golden/decoders
    make_decoder_goldens.py --seed 7 --out /tmp/other       others: other weights and latents
    make_decoder_goldens.py --random 6 --seed 7 --out /tmp/other      AutoencoderKL in configurations drawn from the seed

Each directory: config.json and graph.json.gz (tools/export_model), and golden.safetensors: `weight.*` the tensors that
decode (exact in float16 and stored so), and for each case N = 0, 1, ... `N.latents`, what the pipeline's scheduler ended
with, and `N.pixels`, what `vae.decode` made of it, before it is clamped and rounded. Metadata: seed, cases.
"""
import argparse
import json
import pathlib
import random

import torch
from safetensors.torch import save_file

from export_model.decoder_check import decoded, drawn, sizes_of
from export_model.graph_file import exported_graph, write_graph
from export_model.tracing import full_config, make_transformer
from export_model.wrappers import TINY, TINY_DECODERS, WRAPPERS
from export_model.wrappers.decoders import levels

# (rows, latent frames, least sides of height, of width). HunyuanVideo's seven latent frames are cut twice along time.
CASES = {"AutoencoderKL": ((2, 1, 2, 1), (1, 1, 1, 3)),
         "AutoencoderKLFlux2": ((2, 1, 2, 1), (1, 1, 1, 3)),
         "AutoencoderKLHunyuanVideo": ((2, 1, 1, 2), (1, 3, 1, 1), (1, 7, 1, 1)),
         "AutoencoderKLLTXVideo": ((2, 1, 1, 1), (1, 2, 1, 1)),
         "AutoencoderKLWan": ((2, 1, 1, 2), (1, 2, 1, 1), (2, 5, 1, 1)),
         "AutoencoderKLQwenImage": ((2, 1, 1, 2), (1, 1, 2, 1))}


def golden(name, class_name, config, out, seed):
    wrapper, directory = WRAPPERS[class_name], out / name
    vae = drawn(wrapper, config, seed)
    graph = exported_graph(wrapper, make_transformer(wrapper, config, fake=True))
    read = {entry["name"] for entry in graph["parameters"] if entry["slot"] is not None}
    tensors = {f"weight.{key}": value.half() for key, value in vae.state_dict().items() if key in read}
    for index, case in enumerate(CASES[class_name]):
        latents, pixels = decoded(vae, sizes_of(vae, wrapper, *case), seed + index)
        tensors |= {f"{index}.latents": latents, f"{index}.pixels": pixels}
    write_graph(graph, directory / "graph.json.gz")
    written = {"_class_name": class_name} | full_config(vae)
    (directory / "config.json").write_text(json.dumps(written, indent=1) + "\n")
    save_file({key: value.detach().contiguous().clone() for key, value in tensors.items()},
              str(directory / "golden.safetensors"),
              metadata={"format": "pt", "seed": str(seed), "cases": str(len(CASES[class_name]))})
    (directory / "golden.safetensors").chmod(0o644)
    largest = max(value.abs().max().item() for key, value in tensors.items() if key.endswith(".pixels"))
    print(name, {path.name: path.stat().st_size for path in sorted(directory.iterdir())}, f"pixels up to {largest:.1f}", flush=True)


def drawn_configs(count, generator):
    """Name -> AutoencoderKL's config."""
    pick, number, chance = generator.choice, generator.randint, lambda: generator.random() < 0.5
    configs = {}
    for index in range(count):
        groups = number(1, 4)
        widths = tuple(groups * number(1, 3) for _ in range(number(1, 4)))
        configs[f"kl_decoder_{index}"] = dict(
            block_out_channels=widths, norm_num_groups=groups, latent_channels=number(1, 6), in_channels=number(1, 4),
            layers_per_block=number(1, 3), scaling_factor=generator.uniform(0.1, 2), shift_factor=pick((None, 0.3)),
            use_quant_conv=chance(), use_post_quant_conv=chance(), mid_block_add_attention=chance(), **levels(len(widths)))
    return configs


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=TINY_DECODERS, help="of " + ", ".join(TINY_DECODERS))
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("tests/golden/decoders"))
    parser.add_argument("--seed", type=int, default=20260101)
    parser.add_argument("--random", type=int, default=0, help="so many drawn configurations of AutoencoderKL instead")
    args = parser.parse_args()
    torch.set_num_threads(1)
    models = {name: TINY[name] for name in args.names}
    if args.random:
        models = {name: ("AutoencoderKL", config) for name, config in drawn_configs(args.random, random.Random(args.seed)).items()}
    for name, (class_name, config) in models.items():
        golden(name, class_name, config, args.out, args.seed)


if __name__ == "__main__":
    main()
