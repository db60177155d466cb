#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Golden scores of ImageReward on small random models, and ids of BERT's tokenizer.

    make_imagereward_goldens.py [--out DIR] [--seed N]

Writes, under tests/golden/scorers/imagereward unless told otherwise:

    0/, 1/, ..          a model each: config.json, graph.json.gz, vocab.txt, model.safetensors (exact in float16 and stored
                        so) under the names of ImageReward.pt, with tensors that the reward does not read
    items.safetensors   images [H, W, 3] and one grey; `prompts` in the metadata
    scores.json         model -> scores of all items
    tokens.json         difficult prompts, and their ids in the vocabulary of 0/

The network is written here a second time, as BLIP's and BERT's papers have it and over the checkpoint's names, so that
graph, names and conventions are checked against something other than themselves. Images are prepared by torchvision,
prompts by transformers. Another seed is another test: OXBOW_SCORER_GOLDENS=DIR/.. rewards_test.
Needs tools/export_model/requirements.txt, torchvision and Pillow before 13.
"""
import argparse
import json
import pathlib
import random

import torch
import torch.nn.functional as F
from PIL import Image
from safetensors.torch import save_file
from torchvision.transforms import CenterCrop, Compose, InterpolationMode, Normalize, Resize, ToTensor
from transformers import BertTokenizer

from export_model.graph_file import exported_graph, write_graph
from export_model.tracing import full_config, make_transformer
from export_model.wrappers.image_reward import LENGTH, ImageRewardNetwork
from make_text_goldens import CURATED, TROUBLE, WORDS

MODELS, ITEMS, PROMPTS = 6, 6, 160
MEAN, STD = 0.16717362830052426, 1.0333394966054072
PIXEL_MEAN, PIXEL_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
ADDED = ["[DEC]", "[ENC]"]


def vocabulary(rng):
    """Special tokens, letters alone and inside words, and pieces of words."""
    letters = [chr(c) for c in range(ord("a"), ord("z") + 1)] + list("0123456789!?.,'\"-()$+\u00e6\u00f8\u0131\u03c3\u0434\u4e2d\u4f60\uac00")
    pieces = sorted({word.lower()[:rng.randint(2, 6)] for word in WORDS if word.isascii() and word.isalnum()})
    ends = sorted({word.lower()[rng.randint(1, 3):] for word in WORDS if word.isascii() and word.isalnum() and len(word) > 3})
    tokens = [*SPECIAL, *letters, *("##" + letter for letter in letters), *pieces, *("##" + end for end in ends)]
    return list(dict.fromkeys(tokens))


def tokenizer_of(folder):
    tokenizer = BertTokenizer(vocab=str(folder / "vocab.txt"), do_lower_case=True)
    tokenizer.add_special_tokens({"bos_token": ADDED[0]})
    tokenizer.add_special_tokens({"additional_special_tokens": [ADDED[1]]})
    return tokenizer


def prompts(rng, count):
    """Curated ones, then random mixtures of words, trouble and special tokens."""
    drawn = [*CURATED, "[CLS] x [SEP]y[MASK]", "[DEC] and [ENC]", "[cls] [Unk]", "a[PAD]b", "\U0001fae0 new", "\u0378 none",
             "\u039f\u0394\u039f\u03a3 \u0130stanbul", "x" * 100, "x" * 101, "$5 + 3 = 8 ~ ^ ` | <>"]
    while len(drawn) < count:
        parts = [rng.choice([*WORDS, *TROUBLE, *SPECIAL, *ADDED]) for _ in range(rng.randint(1, 14))]
        drawn.append(rng.choice(["", " "]).join(parts))
    return drawn


def random_config(rng, words):
    patch, heads, text_heads = rng.choice([4, 7, 8]), rng.choice([1, 2, 4]), rng.choice([1, 2, 3])
    return dict(
        image_size=patch * rng.randint(2, 5), patch_size=patch, vision_width=heads * rng.choice([4, 6]), vision_heads=heads,
        vision_layers=rng.randint(1, 3), vocab_size=words, text_width=text_heads * rng.choice([4, 7]), text_heads=text_heads,
        text_layers=rng.randint(1, 3), text_mlp=rng.randint(9, 30), text_positions=rng.randint(LENGTH, 60),
        head=[rng.randint(5, 12) for _ in range(4)])


def attention(x, seen, state, q, k, v, heads, mask=None):
    """Softmax attention of x over `seen`: projections by name."""
    def split(t):
        return t.unflatten(-1, (heads, -1)).transpose(1, 2)
    query, key, value = (split(linear(t, state, name)) for t, name in ((x, q), (seen, k), (seen, v)))
    weights = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
    if mask is not None:
        weights = weights + (1 - mask[:, None, None]) * -10000.0
    return (weights.softmax(-1) @ value).transpose(1, 2).flatten(2)


def linear(x, state, name):
    return F.linear(x, state[name + ".weight"], state[name + ".bias"])


def norm(x, state, name, eps):
    return F.layer_norm(x, x.shape[-1:], state[name + ".weight"], state[name + ".bias"], eps)


def image_tokens(pixels, state, config):
    """ViT (arXiv:2010.11929): every token after the last norm."""
    at = "blip.visual_encoder."
    patches = F.conv2d(pixels, state[at + "patch_embed.proj.weight"], state[at + "patch_embed.proj.bias"], stride=config["patch_size"])
    x = torch.cat([state[at + "cls_token"].expand(len(pixels), -1, -1), patches.flatten(2).transpose(1, 2)], 1) + state[at + "pos_embed"]
    for layer in range(config["vision_layers"]):
        block = f"{at}blocks.{layer}."
        h = norm(x, state, block + "norm1", 1e-6)
        split = {f"{n}.{kind}": part for kind in ("weight", "bias") for n, part in zip("qkv", state[f"{block}attn.qkv.{kind}"].chunk(3))}
        x = x + linear(attention(h, h, split, "q", "k", "v", config["vision_heads"]), state, block + "attn.proj")
        x = x + linear(F.gelu(linear(norm(x, state, block + "norm2", 1e-6), state, block + "mlp.fc1")), state, block + "mlp.fc2")
    return norm(x, state, at + "norm", 1e-6)


def reward(pixels, ids, mask, state, config):
    """BERT (arXiv:1810.04805) with attention over the image in each layer, and the head on its first token."""
    at, seen, heads, eps = "blip.text_encoder.", image_tokens(pixels, state, config), config["text_heads"], 1e-12
    embed = at + "embeddings."
    x = state[embed + "word_embeddings.weight"][ids] + state[embed + "position_embeddings.weight"][:ids.shape[1]]
    x = norm(x, state, embed + "LayerNorm", eps)
    for number in range(config["text_layers"]):
        layer = f"{at}encoder.layer.{number}."
        for kind, keys, seen_mask in (("attention", x, mask), ("crossattention", seen, None)):
            names = [f"{layer}{kind}.self.{n}" for n in ("query", "key", "value")]
            h = attention(x, x if kind == "attention" else keys, state, *names, heads, seen_mask)
            x = norm(linear(h, state, f"{layer}{kind}.output.dense") + x, state, f"{layer}{kind}.output.LayerNorm", eps)
        h = F.gelu(linear(x, state, layer + "intermediate.dense"))
        x = norm(linear(h, state, layer + "output.dense") + x, state, layer + "output.LayerNorm", eps)
    value = x[:, 0]
    for number in (0, 2, 4, 6, 7):
        value = linear(value, state, f"mlp.layers.{number}")
    return (value[:, 0] - MEAN) / STD


def random_state(config, generator):
    """Weights under the checkpoint's names. Exact in float16."""
    module = make_transformer(ImageRewardNetwork, config)
    state = {}
    for name, tensor in module.state_dict().items():
        scale = 0.3 if tensor.dim() == 1 else tensor[0].numel() ** -0.5
        mean = 1.0 if "norm" in name.lower() and name.endswith("weight") else 0.0
        state[ImageRewardNetwork.published_name(name)] = (torch.randn(tensor.shape, generator=generator) * scale + mean).half().float()
    return module, state


def prepared(images, side):
    transform = Compose([Resize(side, interpolation=InterpolationMode.BICUBIC), CenterCrop(side), lambda image: image.convert("RGB"),
                         ToTensor(), Normalize(PIXEL_MEAN, PIXEL_STD)])
    return torch.stack([transform(Image.fromarray(image.squeeze(2).numpy() if image.shape[2] == 1 else image.numpy())) for image in images])


def stored(path, tensors, metadata=None):
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, str(path), metadata=metadata)
    path.chmod(0o644)


def model(folder, tokens, images, texts, rng, generator):
    """Writes a model; returns the scores of its items."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("".join(token + "\n" for token in tokens))
    tokenizer = tokenizer_of(folder)
    module, state = random_state(random_config(rng, len(tokenizer)), generator)
    config = full_config(module)
    (folder / "config.json").write_text(json.dumps({"_class_name": "ImageReward"} | config) + "\n")
    write_graph(exported_graph(ImageRewardNetwork, make_transformer(ImageRewardNetwork, config, fake=True)), folder / "graph.json.gz")
    unread = {"blip.vision_proj.weight": torch.ones(2, 3), "blip.text_encoder.embeddings.position_ids": torch.arange(3)[None]}
    stored(folder / "model.safetensors", {k: v.half() if v.is_floating_point() else v for k, v in (state | unread).items()})
    given = tokenizer(texts, padding="max_length", truncation=True, max_length=LENGTH, return_tensors="pt")
    with torch.no_grad():
        return reward(prepared(images, config["image_size"]), given["input_ids"], given["attention_mask"].float(), state, config)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("tests/golden/scorers/imagereward"))
    parser.add_argument("--seed", type=int, default=20261123)
    args = parser.parse_args()
    torch.set_num_threads(1)
    rng, generator = random.Random(args.seed), torch.Generator().manual_seed(args.seed)
    tokens = vocabulary(rng)
    images = []
    for index in range(ITEMS):
        size = (rng.randint(9, 70), rng.randint(9, 70), 1 if index == 3 else 3)
        smooth = F.interpolate(torch.rand(1, size[2], 5, 5, generator=generator), size[:2], mode="bilinear")[0].permute(1, 2, 0)
        images.append((smooth * 200 + torch.rand(size, generator=generator) * 55).to(torch.uint8))
    texts = ["a photo of the cat", "", "[DEC] Caf\u00e9 \u4e2d running!", "the quick brown fox " * 9, "red house", "text 473"]
    scores = {str(index): model(args.out / str(index), tokens, images, texts, rng, generator).tolist() for index in range(MODELS)}
    stored(args.out / "items.safetensors", {f"image.{i}": image for i, image in enumerate(images)}, {"prompts": json.dumps(texts)})
    (args.out / "scores.json").write_text(json.dumps(scores, indent=1) + "\n")
    tokenizer = tokenizer_of(args.out / "0")
    cases = [{"prompt": p, "ids": tokenizer(p, truncation=True, max_length=LENGTH)["input_ids"]} for p in prompts(rng, PROMPTS)]
    (args.out / "tokens.json").write_text(json.dumps({"length": LENGTH, "added": ADDED, "cases": cases}, indent=1) + "\n")


if __name__ == "__main__":
    main()
