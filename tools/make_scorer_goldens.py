#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Golden scores of rewards over CLIP, from transformers, open_clip and torchvision, on tiny random models.

    make_scorer_goldens.py [--out DIR] [--seed N]

Writes, under tests/golden/scorers unless told otherwise:

    clip/        a CLIPModel as transformers saves it, with a tokenizer
    open_clip/   another one under open_clip's names, as HPSv2's checkpoints have them
    head.pt, head.safetensors   an aesthetic head of five linear layers
    items.safetensors           images [H, W, 3]; `prompts` in the metadata
    scores.json                 scores of every item by reward

The formulas are those of the projects that each header in src/rewards names. Another seed is another test:
OXBOW_SCORER_GOLDENS=DIR rewards_test. Needs torch, transformers, torchvision, open_clip and Pillow before 13.
"""
import argparse
import json
import pathlib
import shutil

import open_clip
import torch
import torchvision.transforms.functional as F
from PIL import Image
from safetensors.torch import save_file
from torchvision.transforms import InterpolationMode
from transformers import CLIPConfig, CLIPModel, CLIPTokenizer
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

from make_vision_goldens import MEAN, STD, longest_and_padded, randomise

TOKENIZER = pathlib.Path(__file__).resolve().parent.parent / "tests/golden/models/tokenizer"
SIDE = 28
PROMPTS = ["text 473", "A photo of a CAT", "", "the quick brown fox " * 9, "caf\u00e9 \u4f60\u597d \U0001f600", "text 473"]
SIZES = [(40, 40), (33, 57), (61, 22), (9, 12), (28, 28), (50, 31)]


def copy_tokenizer(folder):
    for file in TOKENIZER.iterdir():
        shutil.copyfile(file, folder / file.name)


def half_file(path, state):
    save_file({k: (v.half() if v.is_floating_point() and v.dim() else v).contiguous() for k, v in state.items()}, str(path),
              metadata={"format": "pt"})
    path.chmod(0o644)


def config_of(tokenizer, act):
    return CLIPConfig(
        projection_dim=24, logit_scale_init_value=2.6592,
        text_config=dict(hidden_size=24, intermediate_size=48, num_hidden_layers=3, num_attention_heads=3, hidden_act=act,
                         vocab_size=len(tokenizer), max_position_embeddings=16, eos_token_id=tokenizer.eos_token_id,
                         bos_token_id=tokenizer.bos_token_id, projection_dim=7),
        vision_config=dict(hidden_size=32, intermediate_size=64, num_hidden_layers=3, num_attention_heads=4, hidden_act=act,
                           image_size=SIDE, patch_size=7, projection_dim=9))


def texts(tokenizer, prompts):
    return tokenizer(prompts, padding="max_length", truncation=True, max_length=16, return_tensors="pt")


def unit(x):
    x = getattr(x, "pooler_output", x)
    return x / x.norm(p=2, dim=-1, keepdim=True)


def processed(images):
    processor = CLIPImageProcessorPil(size={"shortest_edge": SIDE}, crop_size={"height": SIDE, "width": SIDE})
    return torch.cat([processor(Image.fromarray(i.numpy()), return_tensors="pt")["pixel_values"] for i in images])


def bilinear(images):
    units = [i.permute(2, 0, 1).float() / 255 for i in images]
    return torch.stack([F.normalize(F.center_crop(F.resize(u, SIDE, InterpolationMode.BILINEAR, antialias=True), [SIDE, SIDE]), MEAN, STD)
                        for u in units])


def padded(images):
    return torch.stack([F.normalize(longest_and_padded(i.permute(2, 0, 1).float() / 255, SIDE), MEAN, STD) for i in images])


def clip_scores(out, g, images):
    folder = out / "clip"
    folder.mkdir(exist_ok=True)
    copy_tokenizer(folder)
    tokenizer = CLIPTokenizer.from_pretrained(str(folder))
    config = config_of(tokenizer, "quick_gelu")
    model = CLIPModel(config).eval()
    randomise(model, g)
    with torch.no_grad():
        model.logit_scale.fill_(2.6592)
    (folder / "config.json").write_text(config.to_json_string())
    half_file(folder / "model.safetensors", model.state_dict())
    head = torch.nn.Sequential(torch.nn.Linear(24, 16), torch.nn.Dropout(), torch.nn.Linear(16, 8), torch.nn.Dropout(),
                               torch.nn.Linear(8, 6), torch.nn.Dropout(), torch.nn.Linear(6, 4), torch.nn.Linear(4, 1)).eval()
    randomise(head, g)
    state = {f"layers.{k}": v for k, v in head.state_dict().items()}
    torch.save(state, out / "head.pt")
    save_file(state, str(out / "head.safetensors"))
    (out / "head.safetensors").chmod(0o644)
    with torch.no_grad():
        text = unit(model.get_text_features(**texts(tokenizer, PROMPTS)))
        depicts = unit(model.get_text_features(**texts(tokenizer, ["A photo depicts " + p for p in PROMPTS])))
        image = unit(model.get_image_features(pixel_values=processed(images)))
        floats = unit(model.get_image_features(pixel_values=bilinear(images)))
        scale = model.logit_scale.exp()
        return {"pickscore": scale * (text * image).sum(-1) / 26, "clipscore_flow_factory": (text * image).sum(-1),
                "clipscore_flow_grpo": scale * (text * floats).sum(-1) / 30,
                "clipscore_hessel": 2.5 * (depicts * image).sum(-1).clamp(min=0), "aesthetic": head(image).squeeze(1)}


def hpsv2_scores(out, g, images):
    folder = out / "open_clip"
    folder.mkdir(exist_ok=True)
    copy_tokenizer(folder)
    tokenizer = CLIPTokenizer.from_pretrained(str(folder))
    vision = open_clip.CLIPVisionCfg(image_size=SIDE, patch_size=7, layers=3, width=32, head_width=8, mlp_ratio=2)
    text = open_clip.CLIPTextCfg(context_length=16, vocab_size=len(tokenizer), width=24, heads=3, layers=3, mlp_ratio=2)
    model = open_clip.model.CLIP(24, vision, text, quick_gelu=False).eval()
    randomise(model, g)
    (folder / "config.json").write_text(config_of(tokenizer, "gelu").to_json_string())
    half_file(folder / "model.safetensors", {k: v for k, v in model.state_dict().items() if k != "attn_mask"})
    ids = texts(tokenizer, PROMPTS)["input_ids"]
    with torch.no_grad():
        return {"hpsv2": (model.encode_image(padded(images), normalize=True) * model.encode_text(ids, normalize=True)).sum(-1)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("tests/golden/scorers"))
    parser.add_argument("--seed", type=int, default=20261122)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    g = torch.Generator().manual_seed(args.seed)
    images = []
    for height, width in SIZES:
        smooth = F.resize(torch.rand(3, 5, 5, generator=g), [height, width], antialias=True) * 200
        images.append((smooth + torch.rand(3, height, width, generator=g) * 55).to(torch.uint8).permute(1, 2, 0).contiguous())
    save_file({f"image.{i}": image for i, image in enumerate(images)}, str(args.out / "items.safetensors"),
              metadata={"prompts": json.dumps(PROMPTS)})
    (args.out / "items.safetensors").chmod(0o644)
    scores = clip_scores(args.out, g, images) | hpsv2_scores(args.out, g, images)
    (args.out / "scores.json").write_text(json.dumps({k: v.tolist() for k, v in scores.items()}, indent=1) + "\n")


if __name__ == "__main__":
    main()
