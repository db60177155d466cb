#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Golden video autoencoders of Wan2.1 and Qwen-Image from diffusers, as safetensors under tests/golden/models.

Each file holds one small random model: `weight.*` its checkpoint, and for every length T in latent frames the latents
`in.z{T}` as a transformer makes them, with `out.videos{T}`, what diffusers decodes them to before rounding. `published_wan.json`
has the tensors of the published sizes. `--random N --seed S --out DIR` writes N other configurations.
"""
import argparse
import hashlib
import json
import pathlib
import random

import torch
from diffusers import AutoencoderKLQwenImage, AutoencoderKLWan

import make_model_goldens as goldens

LENGTHS = (1, 2, 3, 5)
BATCH = 2
ERROR_MAX = 4e-6  # The largest of diffusers' float32 against float64: beyond it a random model multiplies roundings.


def config(dim_mult, downsample, z_dim=3, base_dim=4, **keys):
    return dict(base_dim=base_dim, z_dim=z_dim, dim_mult=list(dim_mult), temperal_downsample=list(downsample),
                scale_factor_temporal=2 ** sum(downsample), scale_factor_spatial=2 ** (len(dim_mult) - 1)) | keys


CONFIGS = {
    # name: (class, config, height, width)
    "wanvae_like_wan": (AutoencoderKLWan, config((1, 2, 4, 4), (False, True, True), num_res_blocks=2), 1, 1),
    "wanvae_one_level": (AutoencoderKLWan, config((2,), (), num_res_blocks=1), 5, 3),
    "wanvae_still_time": (AutoencoderKLWan, config((1, 3), (False,), num_res_blocks=1, out_channels=1), 3, 4),
    "wanvae_twice_the_frames": (AutoencoderKLWan, config((1, 2), (True,), num_res_blocks=2, in_channels=1), 4, 2),
    "wanvae_four_times": (AutoencoderKLWan, config((2, 1, 3), (True, True), num_res_blocks=1, z_dim=5), 2, 3),
    "wanvae_wide_decoder": (AutoencoderKLWan, config((1, 2, 2), (True, False), decoder_base_dim=6, num_res_blocks=1), 3, 2),
    "wanvae_eight_times": (AutoencoderKLWan, config((1, 1, 1, 1), (True, True, True), num_res_blocks=1), 1, 1),
    "wanvae_qwen_image": (AutoencoderKLQwenImage, config((1, 2, 2), (False, True), num_res_blocks=1), 2, 2),
}


def random_configs(count, rng):
    configs = {}
    for i in range(count):
        levels = rng.randint(1, 4)
        drawn = config([rng.randint(1, 3) for _ in range(levels)], [rng.random() < .5 for _ in range(levels - 1)],
                       z_dim=rng.randint(1, 6), base_dim=rng.randint(2, 6), num_res_blocks=rng.randint(1, 2),
                       in_channels=rng.randint(1, 3), out_channels=rng.randint(1, 3))
        if rng.random() < .3:
            drawn["decoder_base_dim"] = rng.randint(2, 6)
        configs[f"wanvae_random_{i}"] = (AutoencoderKLWan, drawn, rng.randint(1, 4), rng.randint(1, 4))
    return configs


def randomise(model, g):
    """Weights that keep activations near one, exact in float16."""
    for name, p in model.named_parameters():
        noise = torch.randn(p.shape, generator=g)
        if name.endswith("gamma"):
            p.data = 1 + .3 * noise
        elif name.endswith("bias"):
            p.data = .2 * noise
        else:
            p.data = noise * p[0].numel() ** -.5 * (.4 if "conv_out" in name else 1)
        p.data = p.data.half().float()


def write(out, seed, configs):
    for name, (cls, keys, height, width) in configs.items():
        g = torch.Generator().manual_seed(seed)
        draw = lambda *shape: torch.randn(*shape, generator=g)
        keys = dict(keys)
        if cls is AutoencoderKLQwenImage:
            for key in ("scale_factor_temporal", "scale_factor_spatial"):
                del keys[key]
        keys["latents_mean"] = draw(keys["z_dim"]).tolist()
        keys["latents_std"] = (.5 + torch.rand(keys["z_dim"], generator=g)).tolist()
        model = cls(**keys)
        randomise(model, g)
        mean, std = (torch.tensor(keys[k]).view(1, -1, 1, 1, 1) for k in ("latents_mean", "latents_std"))
        tensors = {"weight." + k: w for k, w in model.state_dict().items()}
        error = 0
        for length in LENGTHS:
            z = draw(BATCH, keys["z_dim"], length, height, width)
            with torch.no_grad():
                videos = model.float().decode(z * std + mean).sample
                error = max(error, (model.double().decode(z.double() * std + mean).sample - videos).abs().max().item())
            inside = (videos.abs() < 1).float().mean().item()
            assert inside > .3, (name, inside, "most of it is clamped")
            tensors |= {f"in.z{length}": z, f"out.videos{length}": videos}
        if error > ERROR_MAX:
            print(f"{name} is left out: its float32 is {error:.1e} from its float64")
            continue
        text = json.dumps({"_class_name": cls.__name__} | dict(model.config))
        goldens.save(out / f"{name}.safetensors", tensors, text, seed)


def write_published(out):
    table = {}
    for cls in (AutoencoderKLWan, AutoencoderKLQwenImage):
        with torch.device("meta"):
            state = cls().state_dict()
        lines = "".join(f"{k} {','.join(map(str, v.shape))}\n" for k, v in sorted(state.items()))
        table[cls.__name__] = {"tensors": len(state), "elements": sum(v.numel() for v in state.values()),
                               "sha256": hashlib.sha256(lines.encode()).hexdigest()}
    (out / "published_wan.json").write_text(json.dumps(table, indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("tests/golden/models"))
    parser.add_argument("--seed", type=int, default=20260101)
    parser.add_argument("--random", type=int, default=0, help="so many configurations, drawn from the seed")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    write(args.out, args.seed, random_configs(args.random, random.Random(args.seed)) if args.random else CONFIGS)
    write_published(args.out)


if __name__ == "__main__":
    main()
