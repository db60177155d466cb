#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Golden image encoders of CLIP, from transformers and open_clip, and their preprocessing.

    make_vision_goldens.py [--out DIR] [--seed N]

Writes, under tests/golden/vision unless told otherwise:

    clip_*.safetensors        one small random encoder each: `weight.*`, `in.pixels`, `out.embeds` in float32, and of
                              the same weights in bfloat16 and float16; config.json in the metadata
    open_clip_*.safetensors   both towers under open_clip's names: `in.ids`, `out.image`, `out.text`
    pixels_*.safetensors      an 8-bit image [H, W, 3] and what each preprocessing makes of it, for `side`

Tests read every file of that shape, so another seed is another test: OXBOW_VISION_GOLDENS=DIR vision_golden_test.
Needs torch, transformers, torchvision, open_clip and Pillow before 13.
"""
import argparse
import copy
import json
import pathlib

import open_clip
import torch
import torchvision.transforms.functional as F
from PIL import Image
from safetensors.torch import save_file
from torchvision.transforms import InterpolationMode
from transformers import CLIPVisionConfig, CLIPVisionModelWithProjection
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

MEAN, STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)

# The proportions of ViT-B/32, B/16, L/14 and H/14, and odd ones.
CLIP = {
    "clip_like_b32": (dict(hidden_size=24, intermediate_size=96, projection_dim=16, num_hidden_layers=3, num_attention_heads=3,
                           image_size=64, patch_size=32), 3),
    "clip_like_b16": (dict(hidden_size=24, intermediate_size=96, projection_dim=16, num_hidden_layers=2, num_attention_heads=3,
                           image_size=64, patch_size=16), 2),
    "clip_like_l14": (dict(hidden_size=32, intermediate_size=128, projection_dim=24, num_hidden_layers=4, num_attention_heads=4,
                           image_size=56, patch_size=14), 2),
    "clip_like_h14_gelu": (dict(hidden_size=40, intermediate_size=160, projection_dim=32, num_hidden_layers=4,
                                num_attention_heads=2, image_size=42, patch_size=14, hidden_act="gelu"), 9),
    "clip_one_patch": (dict(hidden_size=12, intermediate_size=20, projection_dim=5, num_hidden_layers=1, num_attention_heads=1,
                            image_size=8, patch_size=8), 1),
    "clip_odd_eps": (dict(hidden_size=18, intermediate_size=50, projection_dim=7, num_hidden_layers=2, num_attention_heads=6,
                          image_size=15, patch_size=3, layer_norm_eps=1e-3, hidden_act="gelu"), 4),
    "clip_wide_projection": (dict(hidden_size=16, intermediate_size=64, projection_dim=48, num_hidden_layers=6,
                                  num_attention_heads=4, image_size=28, patch_size=7), 5),
}


def randomise(model, g):
    """Weights that are exact in float16, so that files are half as large."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            scale = 0.3 if p.dim() < 2 else 1.2 / p[0].numel() ** 0.5
            p.copy_((torch.randn(p.shape, generator=g) * scale + (1 if "norm.weight" in name or "ln_" in name and "weight" in name else 0)).half())


def save(path, tensors, metadata):
    save_file({k: (v.half() if k.startswith("weight.") and v.is_floating_point() else v).contiguous() for k, v in tensors.items()},
              str(path), metadata=metadata | {"format": "pt"})
    path.chmod(0o644)


def clip(out, seed):
    for name, (config, batch) in CLIP.items():
        g = torch.Generator().manual_seed(seed)
        config = CLIPVisionConfig(**config)
        model = CLIPVisionModelWithProjection(config).eval()
        randomise(model, g)
        pixels = torch.randn(batch, 3, config.image_size, config.image_size, generator=g)
        t = {"weight." + k: w.clone() for k, w in model.state_dict().items()} | {"in.pixels": pixels}
        with torch.no_grad():
            t["out.embeds"] = model(pixel_values=pixels).image_embeds
            for kind, dtype in (("bf16", torch.bfloat16), ("fp16", torch.float16)):
                t[f"out.embeds_{kind}"] = copy.deepcopy(model).to(dtype)(pixel_values=pixels.to(dtype)).image_embeds.float()
        save(out / f"{name}.safetensors", t, {"config": config.to_json_string(), "seed": str(seed)})


OPEN_CLIP = {
    "open_clip_gelu": (20, dict(image_size=42, patch_size=14, layers=3, width=40, head_width=20), dict(context_length=12, vocab_size=60, width=24, heads=3, layers=2), False),
    "open_clip_like_b16": (16, dict(image_size=32, patch_size=8, layers=2, width=24, head_width=8), dict(context_length=20, vocab_size=40, width=16, heads=4, layers=2), False),
    "open_clip_mlp_ratio": (9, dict(image_size=20, patch_size=5, layers=4, width=16, head_width=16, mlp_ratio=3), dict(context_length=6, vocab_size=30, width=20, heads=5, layers=1, mlp_ratio=2), False),
    "open_clip_one_patch": (5, dict(image_size=8, patch_size=8, layers=1, width=12, head_width=12), dict(context_length=4, vocab_size=20, width=8, heads=1, layers=1), True),
    "open_clip_wide_projection": (48, dict(image_size=28, patch_size=7, layers=5, width=16, head_width=4), dict(context_length=16, vocab_size=50, width=12, heads=2, layers=4), True),
    "open_clip_quick_gelu": (12, dict(image_size=32, patch_size=16, layers=2, width=24, head_width=8), dict(context_length=9, vocab_size=50, width=16, heads=2, layers=3), True),
}


def open_clip_models(out, seed):
    for name, (embed, vision, text, quick) in OPEN_CLIP.items():
        g = torch.Generator().manual_seed(seed)
        model = open_clip.model.CLIP(embed, open_clip.CLIPVisionCfg(**vision), open_clip.CLIPTextCfg(**text), quick_gelu=quick).eval()
        randomise(model, g)
        act = "quick_gelu" if quick else "gelu"
        end = text["vocab_size"] - 1
        config = {"projection_dim": embed,
                  "vision_config": {"hidden_size": vision["width"], "intermediate_size": vision.get("mlp_ratio", 4) * vision["width"], "hidden_act": act,
                                    "num_hidden_layers": vision["layers"], "num_attention_heads": vision["width"] // vision["head_width"],
                                    "image_size": vision["image_size"], "patch_size": vision["patch_size"], "projection_dim": embed},
                  "text_config": {"hidden_size": text["width"], "intermediate_size": text.get("mlp_ratio", 4) * text["width"], "hidden_act": act,
                                  "num_hidden_layers": text["layers"], "num_attention_heads": text["heads"], "vocab_size": text["vocab_size"],
                                  "max_position_embeddings": text["context_length"], "eos_token_id": 2, "projection_dim": embed}}
        pixels = torch.randn(3, 3, vision["image_size"], vision["image_size"], generator=g)
        ids = torch.randint(1, end - 1, (3, text["context_length"]), generator=g)
        for row, at in enumerate(torch.randint(1, text["context_length"], (3,), generator=g).tolist()):
            ids[row, at:] = 0
            ids[row, at] = end
        t = {"weight." + k: w for k, w in model.state_dict().items() if k != "attn_mask"} | {"in.pixels": pixels, "in.ids": ids}
        with torch.no_grad():
            t |= {"out.image": model.encode_image(pixels), "out.text": model.encode_text(ids)}
        save(out / f"{name}.safetensors", t, {"config": json.dumps(config), "seed": str(seed)})


def longest_and_padded(x, side):
    """HPSv2's image transform of a tensor, before it normalises."""
    height, width = x.shape[1:]
    scale = side / float(max(height, width))
    if scale == 1.0:
        return x
    size = [round(n * scale) for n in (height, width)]
    x = F.resize(x, size, InterpolationMode.BICUBIC, antialias=True)
    down, across = side - size[0], side - size[1]
    return F.pad(x, [across // 2, down // 2, across - across // 2, down - down // 2], fill=0)


def pixels(out, seed):
    for i, (height, width, side) in enumerate([(40, 40, 16), (33, 57, 14), (61, 22, 21), (9, 12, 20), (24, 24, 24), (50, 31, 7)]):
        g = torch.Generator().manual_seed(seed + i)
        smooth = F.resize(torch.rand(3, 5, 5, generator=g), [height, width], antialias=True) * 200
        image = (smooth + torch.rand(3, height, width, generator=g) * 55).to(torch.uint8)
        unit = image.float() / 255
        processor = CLIPImageProcessorPil(size={"shortest_edge": side}, crop_size={"height": side, "width": side})
        interleaved = image.permute(1, 2, 0).contiguous()
        processed = processor(Image.fromarray(interleaved.numpy()), return_tensors="pt")["pixel_values"][0]
        bilinear = F.center_crop(F.resize(unit, side, InterpolationMode.BILINEAR, antialias=True), [side, side])
        save(out / f"pixels_{i}.safetensors",
             {"in.image": interleaved, "out.processor": processed, "out.bilinear": F.normalize(bilinear, MEAN, STD),
              "out.padded": F.normalize(longest_and_padded(unit, side), MEAN, STD)}, {"side": str(side), "config": "{}"})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("tests/golden/vision"))
    parser.add_argument("--seed", type=int, default=20261122)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    clip(args.out, args.seed)
    open_clip_models(args.out, args.seed)
    pixels(args.out, args.seed)


if __name__ == "__main__":
    main()
