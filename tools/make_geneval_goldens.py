#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Golden detections and colours of GenEval's models, on small random ones.

    make_geneval_goldens.py [--out DIR] [--seed N]

Writes, under tests/golden/scorers/geneval unless told otherwise:

    0/, 1/, ..     a detector each, the first one for square images: config.json, graph.json.gz, checkpoint.pth in the
                   form in which mmdetection 2 saves one, by its source (exact in float16 and stored so; every second one in the format of torch before 1.6), and expected.safetensors:
                     image.I           [H, W, 3], one of them grey
                     classes.I masks.I logits of image I as the official evaluator hands it to the detector
    expected.json  model -> image -> variant -> detections above .3: class, box, score, pixels of the mask, colour
    ../../checkpoints/mask2former_mmdet.json.gz   names and shapes of the tensors of GenEval's detector, as the source of
                   mmdetection 2.28 gives them; no checkpoint was seen

Networks are tools/mask2former_paper.py, written over mmdetection's names; masks and boxes follow its MaskFormerFusionHead;
images are prepared by OpenCV and Pillow; colours come from transformers' CLIP with the weights of tests/golden/scorers/clip.
Another seed is another test: OXBOW_SCORER_GOLDENS=DIR/.. rewards_test. Needs tools/export_model/requirements.txt, OpenCV
before 5 and Pillow before 13.
"""
import argparse
import gzip
import io
import json
import pathlib
import random
import re

import cv2
import numpy
import torch
import torch.nn.functional as F
from PIL import Image
from safetensors.torch import save_file
from transformers import CLIPModel, CLIPTokenizer

import mask2former_paper as paper
from export_model.graph_file import exported_graph, write_graph
from export_model.tracing import class_defaults, full_config, make_transformer, plain
from export_model.wrappers.mask2former import Mask2Former, Mask2FormerNetwork

MODELS, IMAGES, THRESHOLD = 6, 3, 0.3
MEAN, STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)
PIXEL_MEAN, PIXEL_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
COLOURS = ["red", "orange", "yellow", "green", "blue", "purple", "pink", "brown", "black", "white"]
NORMS = re.compile(r"(norm\w*|norms\.\d|gn)\.weight$")
THINGS = 80


def rounded_up(size):
    return -(-size // 32) * 32


def random_config(rng, square):
    """A detector, and the size of its images."""
    heads, width, height = rng.choice([2, 4, 8]), rng.randint(34, 90), rng.randint(34, 90)
    height = width if square else height
    shorter, longer = rng.randint(50, 80), rng.randint(80, 120)
    scale = min(longer / max(width, height), shorter / min(width, height))
    return (height, width), dict(
        height=rounded_up(int(height * scale + 0.5)), width=rounded_up(int(width * scale + 0.5)), shorter=shorter, longer=longer,
        classes=THINGS, queries=rng.randint(5, 12), embed_dim=6, depths=[rng.randint(1, 3) for _ in range(4)], heads=[1, 2, 3, 6],
        window=rng.choice([2, 3, 4]), feature_size=32, mask_size=rng.choice([8, 12]), encoder_layers=rng.randint(1, 2),
        encoder_mlp=rng.randint(9, 30), decoder_layers=rng.randint(1, 5), decoder_heads=heads, decoder_mlp=rng.randint(9, 30))


def random_state(config, generator):
    """Weights under mmdetection's names, exact in float16. Classes are as sure as those of a trained network."""
    state = {}
    for name, shape in paper.shapes(config).items():
        scale = 0.3 if len(shape) == 1 else torch.Size(shape[1:]).numel() ** -0.5
        scale *= 6 if name == "panoptic_head.cls_embed.weight" else 1
        state[name] = (torch.randn(shape, generator=generator) * scale + (1.0 if NORMS.search(name) else 0.0)).half().float()
    return state


def prepared(image, config):
    """(input [1, 3, H, W], size before padding) of an RGB image, as mmdetection's config has it."""
    height, width = image.shape[:2]
    scale = min(config["longer"] / max(height, width), config["shorter"] / min(height, width))
    size = int(width * scale + 0.5), int(height * scale + 0.5)
    resized = cv2.resize(image, size, interpolation=cv2.INTER_LINEAR).astype(numpy.float32)
    pixels = torch.from_numpy((resized - numpy.float32(MEAN)) * numpy.float32(1 / numpy.float64(STD))).permute(2, 0, 1)
    return F.pad(pixels, (0, config["width"] - size[0], 0, config["height"] - size[1]))[None], size[::-1]


def instances(classes, masks, size, config, shape):
    """[(class, box, score, mask)] above the threshold."""
    maps = F.interpolate(masks[None], (config["height"], config["width"]), mode="bilinear")[:, :, :size[0], :size[1]]
    maps = F.interpolate(maps, shape, mode="bilinear")[0]
    scores = classes.softmax(-1)[:, :-1]
    best, places = scores.flatten().topk(100, sorted=False)
    found = []
    for score, place in zip(best, places.tolist()):
        query, thing = divmod(place, THINGS)
        inside = maps[query] > 0
        score = score * (maps[query].sigmoid() * inside).sum() / (inside.sum() + 1e-6)
        if score > THRESHOLD:
            ys, xs = (inside.any(axis).nonzero() for axis in (1, 0))
            box = [xs[0].item(), ys[0].item(), xs[-1].item() + 1, ys[-1].item() + 1]
            found.append((thing, box, score.item(), inside.numpy()))
    return found


class Colours:
    """CLIP's colour of a thing, of what an image has inside of a mask."""

    def __init__(self, folder):
        self.clip, self.tokenizer = CLIPModel.from_pretrained(folder).eval(), CLIPTokenizer.from_pretrained(folder)
        self.side, self.words = self.clip.config.vision_config.image_size, self.clip.config.text_config.max_position_embeddings

    def texts(self, thing):
        rows = []
        for colour in COLOURS:
            texts = [f"a photo of a {colour} {thing}", f"a photo of a {colour}-colored {thing}", f"a photo of a {colour} object"]
            given = self.tokenizer(texts, padding="max_length", truncation=True, max_length=self.words, return_tensors="pt")
            embedded = self.clip.get_text_features(**given)
            mean = F.normalize(getattr(embedded, "pooler_output", embedded), dim=-1).mean(0)
            rows.append(mean / mean.norm())
        return torch.stack(rows)

    def pixels(self, image, box, mask):
        """open_clip's preprocessing: the shorter side resized, the middle, borders rounded half to even."""
        grey = Image.new("RGB", image.size, color="#999")
        crop = Image.composite(image, grey, Image.fromarray(mask)).crop(box)
        width, height = crop.size
        longer = int(self.side * max(width, height) / min(width, height))
        width, height = (self.side, longer) if width <= height else (longer, self.side)
        left, top = (int(round((size - self.side) / 2.0)) for size in (width, height))
        crop = crop.resize((width, height), Image.BICUBIC).crop((left, top, left + self.side, top + self.side))
        values = torch.from_numpy(numpy.array(crop)).permute(2, 0, 1) / 255
        return ((values - torch.tensor(PIXEL_MEAN)[:, None, None]) / torch.tensor(PIXEL_STD)[:, None, None])[None]

    def of(self, image, thing, box, mask):
        embedded = self.clip.get_image_features(pixel_values=self.pixels(image, box, mask))
        likeness = self.texts(thing) @ F.normalize(getattr(embedded, "pooler_output", embedded), dim=-1)[0]
        first, second = likeness.topk(2).values
        return COLOURS[likeness.argmax()], (first - second).item()


def as_jpeg(image):
    data = io.BytesIO()
    image.save(data, format="JPEG")
    return Image.open(io.BytesIO(data.getvalue()))


def exact_logits(pixels, state, config):
    """Results of the network in float64, rounded."""
    torch.set_default_dtype(torch.float64)
    logits = paper.detect(pixels.double(), {name: tensor.double() for name, tensor in state.items()}, config)
    torch.set_default_dtype(torch.float32)
    return tuple(tensor.float() for tensor in logits)


def expected_of(image, state, config, colours, things, variant):
    """(detections for expected.json, logits of classes, of masks)"""
    image = image.convert("RGB") if variant == "official" else as_jpeg(image.convert("RGB"))
    array = numpy.array(image)
    pixels, size = prepared(array if variant == "official" else numpy.ascontiguousarray(array[:, :, ::-1]), config)
    classes, masks = exact_logits(pixels, state, config)
    rows = []
    for thing, box, score, mask in instances(classes, masks, size, config, array.shape[:2]):
        colour, margin = colours.of(image, things[thing], box, mask)
        rows.append({"thing": thing, "box": box, "score": score, "area": int(mask.sum()), "colour": colour, "margin": margin})
    return sorted(rows, key=lambda row: row["thing"]), classes, masks


def stored(path, tensors):
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, str(path))
    path.chmod(0o644)


def checkpoint(path, state, config, legacy):
    """With the index tables that mmdetection saves as buffers, and what else is in a checkpoint of its."""
    area = config["window"] ** 2
    tables = {name.replace("_bias_table", "_index"): torch.zeros(area, area, dtype=torch.int64)
              for name in state if name.endswith("relative_position_bias_table")}
    torch.save({"meta": {"CLASSES": ("person", "bicycle"), "mmcv_version": "1.5.0", "time": None, "epoch": 50},
                "state_dict": {name: tensor.half() for name, tensor in state.items()} | tables},
               path, _use_new_zipfile_serialization=not legacy)


def some_image(generator, shape, grey):
    smooth = F.interpolate(torch.rand(1, 1 if grey else 3, 5, 5, generator=generator), shape, mode="bilinear")[0].permute(1, 2, 0)
    return (smooth * 200 + torch.rand(*shape, 1 if grey else 3, generator=generator) * 55).to(torch.uint8)


def model(folder, index, rng, generator, colours, things):
    """Writes a detector; returns its part of expected.json."""
    folder.mkdir(parents=True, exist_ok=True)
    shape, config = random_config(rng, square=index == 0)
    state = random_state(config, generator)
    config = full_config(make_transformer(Mask2FormerNetwork, config))
    (folder / "config.json").write_text(json.dumps({"_class_name": "Mask2Former"} | config) + "\n")
    write_graph(exported_graph(Mask2FormerNetwork, make_transformer(Mask2FormerNetwork, config, fake=True)), folder / "graph.json.gz")
    checkpoint(folder / "checkpoint.pth", state, config, legacy=index % 2 == 1)
    tensors, expected = {}, {}
    for number in range(IMAGES):
        pixels = some_image(generator, shape, grey=number == 2)
        image = Image.fromarray(pixels.squeeze(2).numpy())
        both = {variant: expected_of(image, state, config, colours, things, variant) for variant in ("official", "flow_grpo")}
        expected[str(number)] = {variant: rows for variant, (rows, _, _) in both.items()}
        tensors |= {f"image.{number}": pixels, f"classes.{number}": both["official"][1], f"masks.{number}": both["official"][2]}
    stored(folder / "expected.safetensors", tensors)
    return expected


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("tests/golden/scorers/geneval"))
    parser.add_argument("--seed", type=int, default=20261123)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    rng, generator = random.Random(args.seed), torch.Generator().manual_seed(args.seed)
    golden = pathlib.Path(__file__).parent.parent / "tests/golden"
    things = json.loads(gzip.decompress((golden / "rewards/geneval_rule.json.gz").read_bytes()))["classes"]
    colours = Colours(golden / "scorers/clip")
    expected = {str(index): model(args.out / str(index), index, rng, generator, colours, things) for index in range(MODELS)}
    (args.out / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
    shapes = paper.shapes(plain(class_defaults(Mask2Former)))
    names = args.out.parent.parent / "checkpoints/mask2former_mmdet.json.gz"
    names.parent.mkdir(parents=True, exist_ok=True)
    names.write_bytes(gzip.compress(json.dumps(shapes).encode(), mtime=0))
    rows = [row for images in expected.values() for variants in images.values() for rows in variants.values() for row in rows]
    print(f"{args.out}: {len(rows)} detections, least margin of a colour {min(row['margin'] for row in rows):.1e}")


if __name__ == "__main__":
    main()
