#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Golden outputs, boxes and texts of PP-OCRv5 and PP-OCRv6 on small random models.

    make_ppocr_goldens.py [--out DIR] [--seed N] [--models KIND/INDEX ...] [--keep]

Writes rewards/text_boxes.json under tests/golden unless told otherwise (sizes, corners, outlines and orders of boxes, which
reward_rules_test reads), and under scorers/ppocr:

    mobile/0/det, mobile/0/rec, .., v6_medium/1/rec   models: config.json, graph.json.gz, model.safetensors (exact in float16 and
                                                   stored so), and a recogniser's preprocessor_config.json with its characters
    pictures.safetensors                           pictures [H, W, 3], one of them grey
    mobile/0/golden.json.gz, ..                    per model: maps and probabilities in float64, what float32 rounds of them,
                                                   boxes, lines of text
    boxes.json.gz                                  maps with drawn regions, and boxes, lines that are cut out of pictures,
                                                   and masks of boxes

The networks are transformers' modules; what is around them is ppocr_upstream.py. Numbers are millionths. Models are drawn
again where a result hangs on a rounding, or where float32 itself is further than 3e-5 from a map. Another seed is another test: OXBOW_SCORER_GOLDENS=DIR/scorers ppocr_test,
OXBOW_REWARD_GOLDENS=DIR/rewards reward_rules_test.
Needs tools/export_model/requirements.txt, opencv-python-headless (4.10.0.84 is what PaddleX takes) and pyclipper.
"""
import argparse
import copy
import gzip
import json
import pathlib
import random

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

import ppocr_upstream as upstream
from export_model.graph_file import exported_graph, write_graph
from export_model.published import INTRACLASS_BLOCK
from export_model.tracing import full_config, make_transformer
from export_model.wrappers.pp_ocr import MobileDetector, MobileRecogniser, ServerDetector, ServerRecogniser
from export_model.wrappers.pp_ocr_v6 import V6MediumDetector, V6SmallDetector, V6SmallRecogniser, V6TinyRecogniser

MODELS = {"mobile": 6, "server": 6, "v6_small": 2, "v6_medium": 2}
MAPS, CASES = 40, 150
ROUNDING = 3e-5  # Error that float32 adds to a map: one that is summed in another order is to be within 1e-4.
SIZES = [(96, 128, 3), (75, 110, 3), (64, 64, 1), (20, 90, 3)]
CLASSES = {"mobile": (MobileDetector, MobileRecogniser), "server": (ServerDetector, ServerRecogniser),
           "v6_small": (V6SmallDetector, V6TinyRecogniser), "v6_medium": (V6MediumDetector, V6SmallRecogniser)}
NORMS = (torch.nn.BatchNorm1d, torch.nn.BatchNorm2d)
UNIT = ("norm.weight", "norm1.weight", "norm2.weight", "normalization.weight", "identity.weight", "scale")  # About 1.
LETTERS = list("abcdefghijklmnopqrstuvwxyzABCDEFGHIJ0123456789!?.,'\"-/\u00e9\u4f60\u597d\u754c")
SURE = 1e-4  # Difference that no kept result may hang on.


def lcnet(rng, strides):
    width = [4 * rng.randint(1, 3) for _ in range(5)] + [4 * rng.randint(4, 6)]
    stages = [[[3, width[0], width[1], 1, False]]]
    for stage, stride in enumerate(strides):
        stages.append([[rng.choice([3, 5]), width[stage + 1], width[stage + 2] if stage < 4 else width[5], stride, stage == 3]])
    stages[3].append([5, width[4], width[4], 1, rng.random() < 0.5])
    stages[4].append([3, width[5], width[5], strides[3] if strides[3] != 2 else 1, False])
    return dict(model_type="pp_lcnet_v3", scale=1.0, divisor=4, stem_channels=width[0], reduction=rng.choice([2, 4]),
                conv_symmetric_num=rng.randint(1, 3), block_configs=stages, out_features=["stage2", "stage3", "stage4", "stage5"])


def hgnet(rng, **keys):
    widths = [2 * rng.randint(3, 6) for _ in range(4)] + [2 * rng.randint(8, 11)]
    return dict(model_type="hgnet_v2", stem_channels=[3, rng.choice([4, 6]), widths[0]], stage_in_channels=widths[:4],
                stage_mid_channels=[rng.randint(3, 6) for _ in range(4)], stage_out_channels=widths[1:],
                stage_num_blocks=[1, 1, rng.randint(1, 2), 1], stage_numb_of_layers=[rng.randint(1, 2) for _ in range(4)],
                use_learnable_affine_block=rng.random() < 0.5, out_features=["stage1", "stage2", "stage3", "stage4"], **keys)


def lcnet_v4(rng, strides, **keys):
    """Four stages of 1 to 2 blocks, some of which squeeze; `strides` are those of the stages."""
    before, stages = 4 * rng.randint(1, 3), []
    stem = [3, 2 * rng.randint(2, 4), before]
    for stride in strides:
        width = before if stride == 1 else before + 4
        stages.append([[3, width if block else before, width, 1 if block else stride, rng.random() < 0.5] for block in range(rng.randint(1, 2))])
        before = width
    return dict(model_type="pp_lcnet_v4", stem_channels=stem, reduction=rng.choice([2, 4]), block_configs=stages,
                use_learnable_affine_block=rng.random() < 0.5, out_features=["stage1", "stage2", "stage3", "stage4"], **keys)


def random_v6(kind, rng, line):
    """(configuration of a detector, of a recogniser)."""
    found, read = lcnet_v4(rng, [1, 2, 2, 2]), lcnet_v4(rng, [1, 1, [2, 1], [2, 1]], stem_type="small" if kind == "v6_small" else "large")
    neck = rng.choice([16, 24])
    if kind == "v6_small":
        detector = dict(neck_out_channels=neck, reduction=rng.choice([2, 4]), dilated_kernel_size=rng.choice([5, 7]),
                        layer_list_out_channels=[stage[-1][2] for stage in found["block_configs"]])
        return detector | dict(backbone_config=found), dict(hidden_size=line["hidden_size"], backbone_config=read)
    detector = dict(neck_out_channels=neck, reduce_factor=rng.choice([1, 2]), intraclass_block_config=INTRACLASS_BLOCK,
                    scale_factor_list=[1, 2, 4, 8], kernel_list=[3, 2, 2])
    return detector | dict(backbone_config=found), line | dict(backbone_config=read)


def random_configs(kind, rng):
    heads = rng.choice([1, 2, 3])
    line = dict(hidden_size=heads * rng.choice([4, 6]), num_attention_heads=heads, depth=rng.randint(1, 2),
                mlp_ratio=rng.choice([1.5, 2.0]), qkv_bias=rng.random() < 0.7)
    if kind.startswith("v6"):
        return random_v6(kind, rng, line)
    neck = rng.choice([16, 24])
    if kind == "mobile":
        detector = dict(backbone_config=lcnet(rng, [2, 2, 2, 2]), neck_out_channels=neck, reduction=rng.choice([2, 4]),
                        layer_list_out_channels=[rng.randint(4, 9) for _ in range(4)])
        return detector, line | dict(backbone_config=lcnet(rng, [1, [2, 1], [1, 2], [2, 1]]))
    detector = dict(backbone_config=hgnet(rng), neck_out_channels=neck, reduce_factor=rng.choice([1, 2]),
                    intraclass_block_config=INTRACLASS_BLOCK, scale_factor_list=[1, 2, 4, 8], kernel_list=[3, 2, 2])
    return detector, line | dict(backbone_config=hgnet(
        rng, stem_strides=[2, 1, 1, 1, 1], stage_downsample=[True] * 4, stage_downsample_strides=[[2, 1], [1, 2], [2, 1], [2, 1]]))


def drawn_module(wrapper, config, pixels, generator):
    """A module with random weights, exact in float16, whose batch norms have seen the pixels."""
    module = make_transformer(wrapper, config)
    for name, tensor in module.named_parameters():
        scale = 0.3 if tensor.dim() == 1 else tensor[0].numel() ** -0.5
        if name == "network.head.head.weight":
            scale = 2.0
        mean = 1.0 if tensor.dim() == 1 and name.endswith(UNIT) else 0.0
        tensor.data = (torch.randn(tensor.shape, generator=generator) * scale + mean).half().float()
    see(module, [part for part in module.modules() if isinstance(part, NORMS)], pixels)
    return module.eval()


def see(module, norms, pixels):
    """Sets what batch norms know of their inputs."""
    for norm in norms:
        norm.momentum = 1.0
        norm.train()
    with torch.no_grad():
        module(pixels)
    for norm in norms:
        norm.eval()
        norm.running_mean, norm.running_var = norm.running_mean.half().float(), norm.running_var.clamp(0.01).half().float()


def aim(module, last, pixels, share, spread):
    """Sets the last convolution such that a share of the pixels is above one half, and the logits spread."""
    last.weight.data, last.bias.data = last.weight.data * 1.0, torch.zeros_like(last.bias)
    seen = []
    hook = last.register_forward_hook(lambda _, __, out: seen.append(out))
    with torch.no_grad():
        module(pixels)
        scale = spread / seen[0].std()
        last.weight.data = (last.weight.data * scale).half().float()
        module(pixels)
    hook.remove()
    last.bias.data = (-seen[1].quantile(1 - share)).reshape(1).half().float()


def drawn_detector(wrapper, config, pixels, generator):
    module = drawn_module(wrapper, config, pixels, generator)
    head = module.network.head
    if hasattr(head, "conv_final"):
        aim(module, head.conv_final, pixels, 0.2, 6.0)
        return module
    # With random weights the server's map would have no regions, and its refinement would not agree with it.
    binarize, local = head.binarize_head, head.local_refinement_module
    for convolution in (binarize.conv_up.convolution, binarize.conv_final, local.convolution_backbone.convolution):
        convolution.weight.data = convolution.weight.mean((2, 3), keepdim=True).expand_as(convolution.weight).half().float()
    local.convolution_backbone.convolution.weight.data[:, 0] *= 16
    see(module, [binarize.conv_up.norm], pixels)
    aim(module, binarize.conv_final, pixels, 0.2, 6.0)
    see(module, [local.convolution_backbone.norm], pixels)
    aim(module, local.convolution_final, pixels, 0.2, 6.0)
    return module


def picture(rng, generator, height, width, channels=3):
    smooth = F.interpolate(torch.rand(1, channels, rng.randint(3, 9), rng.randint(3, 9), generator=generator), (height, width),
                           mode="bilinear")[0].permute(1, 2, 0)
    return (smooth * 200 + torch.rand(smooth.shape, generator=generator) * 55).to(torch.uint8).contiguous()


def colour(image):
    return image.expand(-1, -1, 3).contiguous().numpy()


def millionths(tensor):
    return (torch.as_tensor(tensor, dtype=torch.float64) * 1e6).round().to(torch.int64).flatten().tolist()


def reading(image, detector, recogniser, characters):
    """The text read in a picture, or None where that hangs on a rounding."""
    sure = True

    def seen(probabilities):
        nonlocal sure
        top = probabilities.topk(2, dim=-1).values
        sure &= bool((top[..., 0] - top[..., 1]).min() > SURE)
        return probabilities

    with torch.no_grad():
        found = detector(upstream.detection_input(image))
        sure &= bool((found - upstream.THRESHOLD).abs().min() > SURE / 20)
        scored = upstream.boxes_of(found[0, 0].numpy(), *image.shape[:2])
        sure &= all(abs(score - upstream.BOX_THRESHOLD) > SURE for _, score in scored)
        lines = upstream.read(image, detector, lambda pixels: seen(recogniser(pixels)), characters)
    return [dict(box=box.flatten().tolist(), text=text, confidence=confidence) for box, text, confidence in lines] if sure else None


def stored_weights(folder, wrapper, module):
    """config.json with the keys of transformers, and the weights."""
    folder.mkdir(parents=True, exist_ok=True)
    header = {"architectures": [wrapper.class_name()], "model_type": module.network.config.model_type, "transformers_version": "5.23.0"}
    (folder / "config.json").write_text(json.dumps(header | full_config(module)) + "\n")
    tensors = {wrapper.published_name(name): tensor.half() for name, tensor in module.state_dict().items()}
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, str(folder / "model.safetensors"))
    (folder / "model.safetensors").chmod(0o644)


def stored(folder, wrapper, module):
    stored_weights(folder, wrapper, module)
    write_graph(exported_graph(wrapper, make_transformer(wrapper, full_config(module), fake=True)), folder / "graph.json.gz")


def draw(folder, kind, images, rng, generator):
    """Writes a detector and a recogniser; returns them with their characters and what is read."""
    wrappers = CLASSES[kind]
    pixels = torch.cat([upstream.detection_input(colour(images[0]))] * 2) + torch.randn(2, 3, 1, 1, generator=generator) * 0.1
    lines = torch.rand(3, 3, 48, 320, generator=generator) * 2 - 1
    while True:
        configs = random_configs(kind, rng)
        characters = ["blank", *rng.sample(LETTERS, rng.randint(12, len(LETTERS))), " "]
        detector = drawn_detector(wrappers[0], configs[0], pixels, generator)
        recogniser = drawn_module(wrappers[1], configs[1] | dict(head_out_channels=len(characters)), lines, generator)
        read = [reading(colour(image), detector, recogniser, characters) for image in images]
        told_apart = all(lines is not None for lines in read) and sum(map(len, read)) > 4 and len({l["text"] for r in read for l in r}) > 3
        if told_apart and exact(copy.deepcopy(detector), upstream.detection_input(colour(images[0])))[1] < ROUNDING:
            break
    stored(folder / "det", wrappers[0], detector)
    stored(folder / "rec", wrappers[1], recogniser)
    (folder / "rec/preprocessor_config.json").write_text(json.dumps({"character_list": characters}, ensure_ascii=False) + "\n")
    return detector, recogniser, read


def kept(folder, kind, images):
    """As `draw`, of a model that is there."""
    modules = []
    for part, wrapper in zip(("det", "rec"), CLASSES[kind]):
        module = make_transformer(wrapper, json.loads((folder / part / "config.json").read_text()))
        tensors = load_file(str(folder / part / "model.safetensors"))
        # Not strict: batch norms add a count of batches to what has none.
        loaded = module.load_state_dict({f"network.{name}": tensor.float() for name, tensor in tensors.items()}, strict=False)
        assert not loaded.missing_keys, loaded.missing_keys
        modules.append(module.eval())
    characters = json.loads((folder / "rec/preprocessor_config.json").read_text())["character_list"]
    return *modules, [reading(colour(image), *modules, characters) for image in images]


def model(folder, kind, images, seed, keep):
    """Writes a model, unless it is kept, and what it says of the pictures."""
    rng, generator = random.Random(f"{seed} {kind} {folder.name}"), torch.Generator().manual_seed(seed + int(folder.name))
    detector, recogniser, read = kept(folder, kind, images) if keep else draw(folder, kind, images, rng, generator)
    line = cv2.resize(colour(images[1]), (100, 48)).astype(np.float32).transpose(2, 0, 1) / 127.5 - 1
    found, found_rounding = exact(detector, upstream.detection_input(colour(images[0])))
    told, told_rounding = exact(recogniser, torch.from_numpy(line)[None])
    write_json(folder / "golden.json.gz", dict(map=millionths(found), map_rounding=found_rounding, line=millionths(told),
                                               line_rounding=told_rounding, read=read))


def exact(module, pixels):
    """(what a module says in float64, how far from that it is in float32)."""
    with torch.no_grad():
        single = module(pixels).double()
        double = module.double()(pixels.double())
    return double, (single - double).abs().max().item()


def drawn_map(rng, height, width):
    """Rotated rectangles, round blobs and dots over a low ground, as bytes."""
    drawn = np.full((height, width), rng.randint(0, 60), np.uint8)
    for _ in range(rng.randint(0, 9)):
        centre = (rng.randint(-5, width + 5), rng.randint(-5, height + 5))
        size = (rng.randint(1, 70), rng.randint(1, 24))
        if rng.random() < 0.7:
            corners = cv2.boxPoints((centre, size, rng.choice([0, 0, 90, rng.uniform(-60, 60)])))
            cv2.fillPoly(drawn, [corners.astype(np.int32)], rng.randint(120, 255))
        else:
            cv2.ellipse(drawn, centre, size, rng.uniform(0, 180), 0, 360, rng.randint(120, 255), -1)
    return drawn


def map_cases(rng, image):
    cases = []
    while len(cases) < MAPS:
        height, width = 32 * rng.randint(1, 5), 32 * rng.randint(1, 6)
        drawn = drawn_map(rng, height, width)
        size = rng.choice([(height, width), (rng.randint(20, 200), rng.randint(20, 300))])
        scored = upstream.boxes_of(drawn.astype(np.float32) / 255, *size)
        if any(abs(score - upstream.BOX_THRESHOLD) < SURE for _, score in scored):
            continue
        boxes = upstream.reading_order([box for box, _ in scored])
        cases.append(dict(height=height, width=width, map=drawn.flatten().tolist(), picture=size, boxes=[b.flatten().tolist() for b in boxes]))
    lines = []
    for case in cases:
        for flat in case["boxes"][:1]:
            box = np.clip(np.array(flat, np.int16).reshape(4, 2), 0, [image.shape[1], image.shape[0]])
            line = upstream.crop(image, box)
            if line is not None and line.size < 6000:
                lines.append(dict(box=box.flatten().tolist(), height=line.shape[0], width=line.shape[1], pixels=line.flatten().tolist()))
    return dict(maps=cases, lines=lines, masks=mask_cases(rng))


def mask_cases(rng):
    """Boxes that a mask is drawn of, most of them partly outside of it; rows as text."""
    cases = []
    while len(cases) < CASES:
        width, height = rng.randint(1, 24), rng.randint(1, 16)
        centre = (rng.uniform(-2, width + 2), rng.uniform(-2, height + 2)) if rng.random() < 0.6 else (width / 2, height / 2)
        size = (rng.uniform(1, 20), rng.uniform(1, 10))
        box = upstream.in_order(cv2.boxPoints((centre, size, rng.choice([0, 90, rng.uniform(-90, 90), rng.uniform(-90, 90)]))))
        mask = np.zeros((height, width), np.uint8)
        cv2.fillPoly(mask, box.reshape(1, -1, 2).astype(np.int32), 1)
        if mask.any():
            cases.append(dict(box=box.flatten().tolist(), rows=["".join(map(str, row)) for row in mask]))
    return cases


def geometry(rng):
    boxes, outlines, orders = [], [], []
    for _ in range(CASES):
        size = (rng.uniform(3, 90), rng.uniform(3, 90))
        box, side = upstream.rectangle(cv2.boxPoints(((rng.uniform(0, 200), rng.uniform(0, 200)), size, rng.choice([0, 90, rng.uniform(-90, 90)]))))
        corners = box.tolist()
        rng.shuffle(corners)
        boxes.append(dict(corners=corners, box=box.tolist()))
        if side >= 3:
            outlines.append(dict(box=box.tolist(), outline=upstream.unclipped(box, 1.5).tolist()))
    for _ in range(40):
        drawn = [np.array([[rng.randint(0, 200), rng.choice([rng.randint(0, 100), 10 * rng.randint(0, 9)])]] * 4) for _ in range(rng.randint(0, 14))]
        orders.append(dict(boxes=[b[0].tolist() for b in drawn], order=[b[0].tolist() for b in upstream.reading_order(drawn)]))
    sizes = [[h, w] for h in (1, 8, 31, 32, 40, 48, 63, 64, 80, 112, 144, 512, 1000, 4000) for w in (1, 31, 33, 63, 64, 100, 176, 720, 3999)]
    return dict(boxes=boxes, outlines=outlines, orders=orders, sizes=[dict(size=s, detection=upstream.detection_size(*s)) for s in sizes],
                lines=[dict(size=s, widths=upstream.line_widths(*s)) for s in sizes])


def write_json(path, value):
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False) + "\n"
    path.write_bytes(gzip.compress(text.encode(), compresslevel=9, mtime=0) if path.suffix == ".gz" else text.encode())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("tests/golden"))
    parser.add_argument("--seed", type=int, default=20261123)
    parser.add_argument("--models", nargs="+", help="only these, such as mobile/0")
    parser.add_argument("--keep", action="store_true", help="models that are there stay; only what they say is written")
    args = parser.parse_args()
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    rng, generator = random.Random(args.seed), torch.Generator().manual_seed(args.seed)
    out, rewards = args.out / "scorers/ppocr", args.out / "rewards"
    out.mkdir(parents=True, exist_ok=True)
    rewards.mkdir(parents=True, exist_ok=True)
    images = [picture(rng, generator, *size) for size in SIZES]
    save_file({f"image.{i}": image for i, image in enumerate(images)}, str(out / "pictures.safetensors"))
    (out / "pictures.safetensors").chmod(0o644)
    write_json(rewards / "text_boxes.json", geometry(rng))
    write_json(out / "boxes.json.gz", map_cases(rng, colour(images[0])))
    for kind in CLASSES:
        for index in range(MODELS[kind]):
            if not args.models or f"{kind}/{index}" in args.models:
                model(out / kind / str(index), kind, images, args.seed, args.keep)


if __name__ == "__main__":
    main()
