#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Golden scores of rewards over CLIP, from transformers, open_clip and torchvision, on tiny random models.

    make_scorer_goldens.py [--out DIR] [--seed N]

Writes, under tests/golden/scorers unless told otherwise:

    clip, clip_1 .. clip_5             CLIPModels as transformers saves them, with a tokenizer; an aesthetic head of five
                                       linear layers for each: head.pt and head.safetensors of the first, and
                                       head.safetensors in the directories of the others
    open_clip, open_clip_1 .. _5       others under open_clip's names, as HPSv2's checkpoints have them
    items.safetensors                  images [H, W, 3]; `prompts` in the metadata
    scores.json                        scores of every item by model and reward
    cleaned_prompts.json               prompts, and what the tokenizers of HPSv2 (open_clip's) and of Hessel's CLIPScore
                                       (CLIP's first) make of them before they look for words: ftfy, HTML twice, spaces,
                                       small letters. Without prompts that need what io::CleanedPrompt leaves out

The formulas are those of the projects that each header in src/rewards names. Another seed is another test:
OXBOW_SCORER_GOLDENS=DIR rewards_test. Needs torch, transformers, torchvision, open_clip, ftfy and Pillow before 13.
"""
import argparse
import dataclasses
import html
import json
import pathlib
import random
import re
import shutil

import ftfy
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
PROMPTS = ["text 473", "A photo of a CAT", "", "the quick brown fox " * 9, "caf\u00e9 \u4f60\u597d \U0001f600", "text 473"]
SIZES = [(40, 40), (33, 57), (61, 22), (9, 12), (28, 28), (50, 31)]


PIECES = ["a sign", " that says ", "\u201cOPEN\u201d", "\u2018don\u2019t\u2019", "it\u2019s", "a caf\u00e9", "cafe\u0301", "Caf&eacute;", "&amp;", "&amp;amp;",
          "&quot;", "&#x1f600;", "&copy", "\uff26\uff35\uff2c\uff2c", "\uff12\uff10\uff12\uff16", "\uff0c", "\u3000", "\ufb01eld", "\ufb03", "\u0133", "\u2026", "\u2014", " \n ", "\t",
          "\u2028", "\ufeff", "\x07", "\u00a0", " ", " ", "\u4f60\u597d", "\uff76\uff9e", "STRASSE", "\u1e9e", "\U0001f600", "3\u20324\u2033", ", 8k"]


def clean(text):
    """basic_clean, whitespace_clean and lower() of openai/CLIP's and open_clip's simple_tokenizer."""
    text = html.unescape(html.unescape(ftfy.fix_text(text))).strip()
    return re.sub(r"\s+", " ", text).strip().lower()


def cleaned_prompts(seed, count=300):
    left_out = ftfy.TextFixerConfig(unescape_html=False, fix_encoding=False, fix_c1_controls=False, remove_terminal_escapes=False)
    rng = random.Random(seed)
    texts = PIECES + ["".join(rng.choice(PIECES) for _ in range(rng.randint(2, 8))) for _ in range(count)]
    return [[text, clean(text)] for text in texts if clean(ftfy.fix_text(text, left_out)) == clean(text)]


def write_prompts(out, seed):
    lines = (json.dumps(one) for one in cleaned_prompts(seed))
    (out / "cleaned_prompts.json").write_text("[" + ",\n ".join(lines) + "]\n")


@dataclasses.dataclass
class Tower:
    """Widths, and factors of the width of hidden layers."""
    width: int
    ratio: int
    layers: int
    heads: int


@dataclasses.dataclass
class Model:
    vision: Tower
    side: int
    patch: int
    text: Tower
    context: int
    projection: int
    act: str = "gelu"
    logit_scale: float = 2.6592
    eps: float = 1e-5


CLIP = [
    Model(Tower(32, 2, 3, 4), 28, 7, Tower(24, 2, 3, 3), 16, 24, "quick_gelu"),
    Model(Tower(24, 4, 2, 3), 32, 16, Tower(16, 4, 2, 2), 20, 16),
    Model(Tower(16, 3, 4, 4), 24, 4, Tower(32, 1, 1, 8), 9, 40, "quick_gelu", 4.6052),
    Model(Tower(40, 2, 1, 5), 30, 15, Tower(12, 2, 4, 1), 77, 8, logit_scale=0.5),
    Model(Tower(12, 2, 5, 1), 21, 3, Tower(20, 4, 2, 5), 12, 12, "quick_gelu"),
    Model(Tower(36, 1, 3, 6), 16, 8, Tower(24, 1, 2, 4), 16, 20, eps=1e-3),
]
OPEN_CLIP = [
    Model(Tower(32, 2, 3, 4), 28, 7, Tower(24, 2, 3, 3), 16, 24),
    Model(Tower(24, 4, 2, 3), 32, 16, Tower(16, 4, 2, 2), 20, 16),
    Model(Tower(16, 3, 4, 4), 24, 4, Tower(32, 1, 1, 8), 9, 40, "quick_gelu", 4.6052),
    Model(Tower(40, 2, 1, 5), 30, 15, Tower(12, 2, 4, 1), 77, 8),
    Model(Tower(12, 2, 5, 1), 21, 3, Tower(20, 4, 2, 5), 12, 12, "quick_gelu"),
    Model(Tower(36, 1, 3, 6), 16, 8, Tower(24, 1, 2, 4), 16, 20),
]


def copy_tokenizer(folder):
    for file in TOKENIZER.iterdir():
        shutil.copyfile(file, folder / file.name)


def half_file(path, state):
    save_file({k: (v.half() if v.is_floating_point() and v.dim() else v).contiguous() for k, v in state.items()}, str(path),
              metadata={"format": "pt"})
    path.chmod(0o644)


def tower_config(tower, shape):
    return dict(hidden_size=tower.width, intermediate_size=tower.ratio * tower.width, num_hidden_layers=tower.layers,
                num_attention_heads=tower.heads, hidden_act=shape.act, layer_norm_eps=shape.eps)


def config_of(tokenizer, shape):
    return CLIPConfig(
        projection_dim=shape.projection, logit_scale_init_value=2.6592,
        text_config=tower_config(shape.text, shape) | dict(
            vocab_size=len(tokenizer), max_position_embeddings=shape.context, eos_token_id=tokenizer.eos_token_id,
            bos_token_id=tokenizer.bos_token_id, projection_dim=7),
        vision_config=tower_config(shape.vision, shape) | dict(image_size=shape.side, patch_size=shape.patch, projection_dim=9))


def texts(tokenizer, prompts, shape):
    return tokenizer(prompts, padding="max_length", truncation=True, max_length=shape.context, return_tensors="pt")


def unit(x):
    x = getattr(x, "pooler_output", x)
    return x / x.norm(p=2, dim=-1, keepdim=True)


def processed(images, side):
    processor = CLIPImageProcessorPil(size={"shortest_edge": side}, crop_size={"height": side, "width": side})
    return torch.cat([processor(Image.fromarray(i.numpy()), return_tensors="pt")["pixel_values"] for i in images])


def bilinear(images, side):
    units = [i.permute(2, 0, 1).float() / 255 for i in images]
    return torch.stack([F.normalize(F.center_crop(F.resize(u, side, InterpolationMode.BILINEAR, antialias=True), [side, side]), MEAN, STD)
                        for u in units])


def padded(images, side):
    return torch.stack([F.normalize(longest_and_padded(i.permute(2, 0, 1).float() / 255, side), MEAN, STD) for i in images])


def make_folder(folder):
    folder.mkdir(exist_ok=True)
    copy_tokenizer(folder)
    return CLIPTokenizer.from_pretrained(str(folder))


def make_head(g, width):
    head = torch.nn.Sequential(torch.nn.Linear(width, 16), torch.nn.Dropout(), torch.nn.Linear(16, 8), torch.nn.Dropout(),
                               torch.nn.Linear(8, 6), torch.nn.Dropout(), torch.nn.Linear(6, 4), torch.nn.Linear(4, 1)).eval()
    randomise(head, g)
    return head


def save_head(head, folder, with_pt):
    state = {f"layers.{k}": v for k, v in head.state_dict().items()}
    if with_pt:
        torch.save(state, folder / "head.pt")
    save_file(state, str(folder / "head.safetensors"))
    (folder / "head.safetensors").chmod(0o644)


def clip_scores(out, name, shape, g, images):
    folder = out / name
    tokenizer = make_folder(folder)
    config = config_of(tokenizer, shape)
    model = CLIPModel(config).eval()
    randomise(model, g)
    with torch.no_grad():
        model.logit_scale.fill_(shape.logit_scale)
    (folder / "config.json").write_text(config.to_json_string())
    half_file(folder / "model.safetensors", model.state_dict())
    head = make_head(g, shape.projection)
    save_head(head, out if name == "clip" else folder, name == "clip")
    with torch.no_grad():
        text = unit(model.get_text_features(**texts(tokenizer, PROMPTS, shape)))
        depicts = unit(model.get_text_features(**texts(tokenizer, ["A photo depicts " + p for p in PROMPTS], shape)))
        image = unit(model.get_image_features(pixel_values=processed(images, shape.side)))
        floats = unit(model.get_image_features(pixel_values=bilinear(images, shape.side)))
        scale = model.logit_scale.exp()
        return {"pickscore": scale * (text * image).sum(-1) / 26, "clipscore_flow_factory": (text * image).sum(-1),
                "clipscore_flow_grpo": scale * (text * floats).sum(-1) / 30,
                "clipscore_hessel": 2.5 * (depicts * image).sum(-1).clamp(min=0), "aesthetic": head(image).squeeze(1)}


def open_clip_model(shape, words):
    vision, text = shape.vision, shape.text
    assert shape.eps == 1e-5
    return open_clip.model.CLIP(
        shape.projection,
        open_clip.CLIPVisionCfg(image_size=shape.side, patch_size=shape.patch, layers=vision.layers, width=vision.width,
                                head_width=vision.width // vision.heads, mlp_ratio=vision.ratio),
        open_clip.CLIPTextCfg(context_length=shape.context, vocab_size=words, width=text.width, heads=text.heads,
                              layers=text.layers, mlp_ratio=text.ratio),
        quick_gelu=shape.act == "quick_gelu").eval()


def hpsv2_scores(out, name, shape, g, images):
    folder = out / name
    tokenizer = make_folder(folder)
    model = open_clip_model(shape, len(tokenizer))
    randomise(model, g)
    (folder / "config.json").write_text(config_of(tokenizer, shape).to_json_string())
    half_file(folder / "model.safetensors", {k: v for k, v in model.state_dict().items() if k != "attn_mask"})
    ids = texts(tokenizer, PROMPTS, shape)["input_ids"]
    with torch.no_grad():
        return {"hpsv2": (model.encode_image(padded(images, shape.side), normalize=True) *
                          model.encode_text(ids, normalize=True)).sum(-1)}


def names(kind, shapes):
    return [kind if i == 0 else f"{kind}_{i}" for i in range(len(shapes))]


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
    scores = {}
    for pair in zip(zip(names("clip", CLIP), CLIP), zip(names("open_clip", OPEN_CLIP), OPEN_CLIP)):
        for (name, shape), score in zip(pair, (clip_scores, hpsv2_scores)):
            scores[name] = {k: v.tolist() for k, v in score(args.out, name, shape, g, images).items()}
    (args.out / "scores.json").write_text(json.dumps(scores, indent=1) + "\n")
    write_prompts(args.out, args.seed)


if __name__ == "__main__":
    main()
