#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Golden models of the image side of Stable Diffusion 3, from diffusers and peft.

    make_sd3_goldens.py                          the committed files of tests/golden/models
    make_sd3_goldens.py --random 6 --seed 7 --out /tmp/other    others, with configurations drawn from the seed
    OXBOW_MODEL_GOLDENS=/tmp/other build/dev/tests/model_golden_test

sd3_*   a transformer: see make_model_goldens.py for the sections of a file
lora_*  a transformer with a PEFT adapter: adapter.* its matrices as peft names them, out.v with and
        out.base without it, grad.* of the matrices. Metadata: rank, alpha, targets, and the files that diffusers and
        peft write for it: their keys and configs
published_shapes.json   number of tensors and elements, and a SHA-256 of names and shapes, of published sizes
"""
import argparse
import hashlib
import json
import pathlib
import random
import tempfile

import peft
import safetensors.torch
import torch
from diffusers import SD3Transformer2DModel, StableDiffusion3Pipeline
from peft.utils import get_peft_model_state_dict

import make_model_goldens as goldens

TARGETS = [f"attn.{name}" for name in ("add_k_proj", "add_q_proj", "add_v_proj", "to_add_out", "to_k", "to_out.0",
                                       "to_q", "to_v")]


def transformer(heads, head_dim, **others):
    return dict(num_attention_heads=heads, attention_head_dim=head_dim,
                caption_projection_dim=heads * head_dim) | others


SD3 = {
    # name: (config, batch, height, width, tokens)
    "sd3_like_3_medium": (transformer(2, 4, sample_size=8, in_channels=4, out_channels=4, num_layers=2,
                                      joint_attention_dim=12, pooled_projection_dim=10, pos_embed_max_size=9), 2, 6, 10, 5),
    "sd3_like_35_medium": (transformer(2, 4, sample_size=8, in_channels=4, out_channels=4, num_layers=4,
                                       joint_attention_dim=12, pooled_projection_dim=10, pos_embed_max_size=12,
                                       dual_attention_layers=(0, 1), qk_norm="rms_norm"), 3, 10, 6, 7),
    "sd3_like_35_large": (transformer(3, 4, sample_size=8, in_channels=4, out_channels=4, num_layers=3,
                                      joint_attention_dim=12, pooled_projection_dim=10, pos_embed_max_size=6,
                                      qk_norm="rms_norm"), 1, 8, 8, 4),
    "sd3_one_block": (transformer(1, 12, sample_size=4, patch_size=1, in_channels=2, out_channels=2, num_layers=1,
                                  joint_attention_dim=6, pooled_projection_dim=4, pos_embed_max_size=9), 11, 2, 5, 1),
    "sd3_all_dual_without_norms": (transformer(3, 4, sample_size=16, patch_size=4, in_channels=1, out_channels=1,
                                               num_layers=2, joint_attention_dim=10, pooled_projection_dim=6,
                                               pos_embed_max_size=8, dual_attention_layers=(0, 1)), 8, 4, 28, 9),
}


LORA = {
    # name: (transformer's config, batch, height, width, tokens, rank, alpha, targets)
    "lora_default_targets": (transformer(2, 4, sample_size=8, in_channels=4, out_channels=4, num_layers=3,
                                         joint_attention_dim=12, pooled_projection_dim=10, pos_embed_max_size=6,
                                         dual_attention_layers=(0,), qk_norm="rms_norm"), 3, 8, 6, 5, 4, 8, TARGETS),
    "lora_odd_targets": (transformer(2, 6, sample_size=8, in_channels=2, out_channels=2, num_layers=2,
                                     joint_attention_dim=8, pooled_projection_dim=6, pos_embed_max_size=4),
                         9, 4, 8, 3, 3, 1,
                         ["to_q", "ff.net.2", "ff_context.net.0.proj", "proj_out", "norm1.linear", "context_embedder",
                          "transformer_blocks.1.attn.to_k"]),
}


def random_configs(count, generator):
    """`count` random configurations of a transformer."""
    pick, chance = generator.choice, lambda: generator.random() < 0.5
    sd3 = {}
    for i in range(count):
        layers, patch = generator.randint(1, 4), pick((1, 2, 4))
        dual = tuple(j for j in range(layers) if chance())
        channels = generator.randint(1, 5)
        config = transformer(generator.randint(1, 4), pick((4, 8, 12)), patch_size=patch, num_layers=layers,
                             in_channels=channels, out_channels=channels,
                             joint_attention_dim=generator.randint(4, 20), sample_size=patch * generator.randint(2, 6),
                             pooled_projection_dim=generator.randint(4, 20), pos_embed_max_size=generator.randint(6, 12),
                             dual_attention_layers=dual, qk_norm=pick((None, "rms_norm")))
        sd3[f"sd3_random_{i}"] = (config, generator.randint(1, 12), patch * generator.randint(1, 6),
                                  patch * generator.randint(1, 6), generator.randint(1, 12))
    return sd3


def adapter_files(model, lora_config):
    """The files that diffusers and peft write for the adapter of `model`: (diffusers keys, their metadata, peft keys, config)."""
    layers = get_peft_model_state_dict(model)
    with tempfile.TemporaryDirectory() as scratch:
        kept = ("r", "lora_alpha", "target_modules")
        metadata = {k: sorted(v) if isinstance(v, set) else v for k, v in lora_config.to_dict().items() if k in kept}
        StableDiffusion3Pipeline.save_lora_weights(scratch, transformer_lora_layers=layers,
                                                   transformer_lora_adapter_metadata=metadata)
        with safetensors.safe_open(scratch + "/pytorch_lora_weights.safetensors", "pt") as file:
            diffusers = {"keys": sorted(file.keys()), "metadata": file.metadata()}
    fresh = SD3Transformer2DModel.from_config(model.config)
    with tempfile.TemporaryDirectory() as scratch:
        peft.get_peft_model(fresh, lora_config).save_pretrained(scratch)
        with safetensors.safe_open(scratch + "/adapter_model.safetensors", "pt") as file:
            keys = sorted(file.keys())
        config = json.loads(pathlib.Path(scratch, "adapter_config.json").read_text())
    config["target_modules"].sort()  # A set has no order.
    return diffusers, {"keys": keys, "config": config}


def write_lora(out, seed, configs):
    for name, (config, batch, height, width, tokens, rank, alpha, targets) in configs.items():
        g = torch.Generator().manual_seed(seed)
        model = SD3Transformer2DModel(**config)
        goldens.randomise(model, g)
        weights = {"weight." + k: w.clone() for k, w in model.state_dict().items()}
        randn = lambda *shape: torch.randn(*shape, generator=g)
        x, sigma = randn(batch, config["in_channels"], height, width), torch.rand(batch, generator=g)
        ctx, pooled = randn(batch, tokens, config["joint_attention_dim"]), randn(batch, config["pooled_projection_dim"])
        velocity = lambda: model(hidden_states=x, timestep=sigma * 1000, encoder_hidden_states=ctx,
                                 pooled_projections=pooled).sample
        base = velocity()
        lora_config = peft.LoraConfig(r=rank, lora_alpha=alpha, init_lora_weights="gaussian", target_modules=targets)
        model.add_adapter(lora_config)
        for key, p in model.named_parameters():
            if "lora_" in key:
                p.data = (torch.randn(p.shape, generator=g) * p.shape[1] ** -0.5).half().float()
        v = velocity()
        assert (v - base).abs().max() > 0.1, "the adapter must matter"
        direction = randn(*v.shape)
        # A loss that is not linear in v, as for a policy objective.
        ((v * direction).mean().exp() + 0.5 * v.square().mean()).backward()
        matrices = get_peft_model_state_dict(model)
        grads = {k.replace(".default.", "."): p.grad for k, p in model.named_parameters() if "lora_" in k}
        assert matrices.keys() == grads.keys(), (matrices.keys(), grads.keys())
        t = {"in.x": x, "in.sigma": sigma, "in.tokens": ctx, "in.pooled": pooled, "in.direction": direction, "out.v": v,
             "out.base": base} | weights
        t |= {"adapter." + k: p.half() for k, p in matrices.items()} | {"grad." + k: p for k, p in grads.items()}
        diffusers, peft_files = adapter_files(model, lora_config)
        goldens.save(out / f"{name}.safetensors", t, json.dumps(dict(model.config)), seed,
                     {"rank": str(rank), "alpha": str(alpha), "targets": json.dumps(targets),
                      "diffusers": json.dumps(diffusers), "peft": json.dumps(peft_files)})
        goldens.graph(config, out / f"{name}.json.gz")


def published():
    """(name, class, config.json as published, "_" keys left out)."""
    sd3 = dict(sample_size=128, patch_size=2, in_channels=16, out_channels=16, attention_head_dim=64,
               joint_attention_dim=4096, pooled_projection_dim=2048)
    yield "sd3-medium", SD3Transformer2DModel, sd3 | dict(num_layers=24, num_attention_heads=24,
                                                          caption_projection_dim=1536, pos_embed_max_size=192)
    yield "sd3.5-medium", SD3Transformer2DModel, sd3 | dict(
        num_layers=24, num_attention_heads=24, caption_projection_dim=1536, pos_embed_max_size=384, qk_norm="rms_norm",
        dual_attention_layers=list(range(13)))
    yield "sd3.5-large", SD3Transformer2DModel, sd3 | dict(
        num_layers=38, num_attention_heads=38, caption_projection_dim=2432, pos_embed_max_size=192, qk_norm="rms_norm",
        dual_attention_layers=[])


def write_published(out):
    table = {}
    for name, cls, config in published():
        with torch.device("meta"):
            state = cls(**config).state_dict()
        lines = "".join(f"{k} {','.join(map(str, v.shape))}\n" for k, v in sorted(state.items()))
        table[name] = {"config": config, "tensors": len(state), "elements": sum(v.numel() for v in state.values()),
                       "sha256": hashlib.sha256(lines.encode()).hexdigest()}
    (out / "published_shapes.json").write_text(json.dumps(table, indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("tests/golden/models"))
    parser.add_argument("--seed", type=int, default=20260101)
    parser.add_argument("--random", type=int, default=0, help="so many configurations of a transformer, drawn from the seed")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    sd3 = random_configs(args.random, random.Random(args.seed)) if args.random else SD3
    goldens.sd3(args.out, args.seed, sd3, gradients=False)  # The other script has gradients.
    write_lora(args.out, args.seed, LORA)
    write_published(args.out)


if __name__ == "__main__":
    main()
