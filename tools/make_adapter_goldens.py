#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The modules that PEFT gives an adapter in networks of the published sizes: tests/golden/adapters.json.gz.

    make_adapter_goldens.py [--out FILE]

The networks are made by diffusers without memory for their weights, from the configs of models/graphs. The targets are
those of the published scripts, as far as the network has them: flow_grpo's train_flux.py and train_wan2_1.py, and the
default_target_modules of Flow-Factory's adapters. AdapterModulesTest compares the recipes of configs/recipes with them.
"""
import argparse
import gzip
import json
import pathlib

import diffusers
import peft
import torch

ROOT = pathlib.Path(__file__).resolve().parent.parent
JOINT = ["attn.to_q", "attn.to_k", "attn.to_v", "attn.to_out.0", "attn.add_q_proj", "attn.add_k_proj", "attn.add_v_proj",
         "attn.to_add_out"]
FLOW_FACTORY_WAN = [f"attn{i}.{name}" for i in (1, 2) for name in ("to_q", "to_k", "to_v", "to_out.0")] + ["ffn.net.0.proj", "ffn.net.2"]
CASES = {
    # recipe, or a recipe's targets in another network: (graph, targets)
    "sd35m-pickscore": ("SD3Transformer2DModel-sd3.5-medium", JOINT),
    "sd35l-pickscore": ("SD3Transformer2DModel-sd3.5-large", JOINT),
    "flux-dev-pickscore": ("FluxTransformer2DModel-flux.1-dev",
                           JOINT + ["ff.net.0.proj", "ff.net.2", "ff_context.net.0.proj", "ff_context.net.2"]),
    "wan21-ocr": ("WanTransformer3DModel-wan2.1-t2v-1.3b", ["to_q", "to_k", "to_v", "to_out.0"]),
    "wan21-flow-factory": ("WanTransformer3DModel-wan2.1-t2v-14b", FLOW_FACTORY_WAN),
    "wan21-flow-factory, 1.3b": ("WanTransformer3DModel-wan2.1-t2v-1.3b", FLOW_FACTORY_WAN),
    "qwen-image-flow-factory": ("QwenImageTransformer2DModel-qwen-image",
                                JOINT + ["img_mlp.net.0.proj", "txt_mlp.net.0.proj"]),
    "z-image-flow-factory": ("ZImageTransformer2DModel-z-image",
                             [f"attention.{name}" for name in ("to_q", "to_k", "to_v", "to_out.0")] +
                             [f"feed_forward.w{i}" for i in (1, 2, 3)]),
}


def modules(graph, targets):
    header = json.loads(gzip.decompress((ROOT / f"models/graphs/{graph}.json.gz").read_bytes()))
    with torch.device("meta"):
        model = getattr(diffusers, header["class"]).from_config(header["config"])
        model.add_adapter(peft.LoraConfig(r=1, target_modules=targets))
    names = [name.removesuffix(".lora_A.default") for name, _ in model.named_modules()]
    return sorted(name for name, full in zip(names, (n for n, _ in model.named_modules())) if name != full)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "tests/golden/adapters.json.gz")
    out = parser.parse_args().out
    goldens = {recipe: {"graph": graph, "modules": modules(graph, targets)} for recipe, (graph, targets) in CASES.items()}
    for recipe, golden in goldens.items():
        print(recipe, len(golden["modules"]))
    out.write_bytes(gzip.compress(json.dumps(goldens, indent=0).encode(), mtime=0))


if __name__ == "__main__":
    main()
