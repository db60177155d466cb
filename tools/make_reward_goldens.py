#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Golden vectors for the parts of rewards that need no model: resizing as Pillow, the text rule of OCR rewards.

    make_reward_goldens.py [--out DIR] [--seed N] [--flow-grpo DIR --flow-factory DIR]

Writes, under tests/golden/rewards unless told otherwise:

    pillow_resize.json   200 random resizings with the SHA-256 of Pillow's bytes, some small ones whole
    opencv_resize.json   200 random resizings with the SHA-256 of OpenCV's bytes
    clip_crop.json       what Hugging Face's CLIPImageProcessor with Pillow cuts out of random sizes
    jpeg.json            digests of Pillow's JPEG bytes of 60 small pictures, and of what it decodes them to
    ocr_rule.json        1,000 pairs of a prompt and a text that was read, and rewards; videos likewise
    html_text.json       every name of a character in HTML, 600 texts with references to characters, and Python's reading of them

The rewards of pictures in ocr_rule.json are those of the two projects' own scorers if checkouts of both are given
(github.com/yifan123/flow_grpo ac4c86e, github.com/X-GenGroup/Flow-Factory a0b2bc5; tools/ocr_upstream.py), and of their rule
as it is written here if not. That flow_grpo scores no videos.

Pictures are made from their seed here and in the tests alike. Tests read these files from a directory, so another
seed is another test: OXBOW_REWARD_GOLDENS=DIR reward_rules_test. Needs numpy, Levenshtein, transformers, OpenCV before 5,
and a Pillow before 13, which resizes some tall pictures along columns first.
"""
import argparse
import hashlib
import html
import html.entities
import io
import json
import pathlib
import random

import cv2
import Levenshtein
import numpy
import PIL
from PIL import Image

import ocr_upstream


def picture(kind, seed, width, height, channels):
    """Bytes [height, width, channels]: noise, or gradients with sharp edges. The tests draw the same."""
    y, x, c = numpy.meshgrid(*(numpy.arange(n, dtype=numpy.uint32) for n in (height, width, channels)), indexing="ij")
    if kind == "noise":
        h = numpy.uint32(seed) + ((y * numpy.uint32(width) + x) * numpy.uint32(channels) + c) * numpy.uint32(0x9E3779B9)
        h ^= h >> numpy.uint32(16)
        h *= numpy.uint32(0x85EBCA6B)
        h ^= h >> numpy.uint32(13)
        h *= numpy.uint32(0xC2B2AE35)
        return (h >> numpy.uint32(24)).astype(numpy.uint8)
    s = numpy.uint32(seed % 17 + 3)
    inside = ((x // s + y // (s + numpy.uint32(2)) + c) % numpy.uint32(3)) == 0
    smooth = (x * s + y * numpy.uint32(5) + c * numpy.uint32(60)) % numpy.uint32(256)
    return numpy.where(inside, 255 - smooth, smooth).astype(numpy.uint8)


def pillow_image(pixels):
    return Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)


def digest(image):
    return hashlib.sha256(numpy.asarray(image).tobytes()).hexdigest()


def some_size(rng, i):
    """Mostly small; strips of one pixel, and what generators paint."""
    if i % 20 == 0:
        return rng.choice([256, 320, 512]), rng.choice([240, 384, 512])
    if i % 20 == 1:
        return rng.choice([(1, rng.randint(1, 90)), (rng.randint(1, 90), 1)])
    return rng.randint(1, 160), rng.randint(1, 160)


def pillow_resize(rng):
    cases = []
    for i in range(200):
        width, height = some_size(rng, i)
        to_width, to_height = (224, 224) if i % 20 == 0 else some_size(rng, i + 7)
        if i % 11 == 0:
            to_width = width
        if i % 13 == 0:
            to_height = height
        case = {"kind": rng.choice(["noise", "scene"]), "seed": rng.getrandbits(32), "width": width, "height": height,
                "channels": rng.choice([1, 3]), "to_width": to_width, "to_height": to_height,
                "kernel": rng.choice(["bilinear", "bicubic"])}
        pixels = picture(case["kind"], case["seed"], width, height, case["channels"])
        resample = Image.Resampling.BICUBIC if case["kernel"] == "bicubic" else Image.Resampling.BILINEAR
        out = pillow_image(pixels).resize((to_width, to_height), resample)
        case["sha256"] = digest(out)
        if to_width * to_height <= 60:
            case["pixels"] = numpy.asarray(out).flatten().tolist()
        cases.append(case)
    return {"pillow": PIL.__version__, "cases": cases}


def opencv_resize(rng):
    cases = []
    for i in range(200):
        width, height = some_size(rng, i)
        to_width, to_height = (800, 800) if i % 40 == 0 else some_size(rng, i + 7)
        if i % 11 == 0:
            width, height = 2 * to_width, 2 * to_height
        case = {"kind": rng.choice(["noise", "scene"]), "seed": rng.getrandbits(32), "width": width, "height": height,
                "channels": rng.choice([1, 3]), "to_width": to_width, "to_height": to_height}
        pixels = picture(case["kind"], case["seed"], width, height, case["channels"])
        out = cv2.resize(pixels, (to_width, to_height), interpolation=cv2.INTER_LINEAR)
        cases.append(case | {"sha256": hashlib.sha256(out.tobytes()).hexdigest()})
    return {"opencv": cv2.__version__, "cases": cases}


def jpeg(rng):
    """Pillow's own JPEG bytes of small pictures, and the digest of what it decodes them to."""
    cases = []
    for i in range(60):
        width, height = rng.randint(1, 70), rng.randint(1, 70)
        case = {"kind": rng.choice(["noise", "scene"]), "seed": rng.getrandbits(32), "width": width, "height": height,
                "channels": rng.choice([1, 3]), "quality": 95 if i % 2 else rng.randint(1, 100)}
        buffer = io.BytesIO()
        pillow_image(picture(case["kind"], case["seed"], width, height, case["channels"])).save(
            buffer, format="JPEG", quality=case["quality"])
        case |= {"bytes": buffer.tell(), "encoded": hashlib.sha256(buffer.getvalue()).hexdigest()}
        case["decoded"] = digest(Image.open(buffer))
        if i < 4:
            progressive = io.BytesIO()
            Image.open(buffer).save(progressive, format="JPEG", quality=80, progressive=True)
            case |= {"progressive": progressive.getvalue().hex(), "progressive_decoded": digest(Image.open(progressive))}
        cases.append(case)
    return {"pillow": PIL.__version__, "cases": cases}


def clip_crop(rng):
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
    cases = []
    for i in range(40):
        width, height = some_size(rng, i)
        side = rng.choice([224, 33, 16, 7]) if max(width, height) < 40 * min(width, height) else 7
        case = {"kind": rng.choice(["noise", "scene"]), "seed": rng.getrandbits(32), "width": width, "height": height,
                "channels": rng.choice([1, 3]), "side": side}
        image = pillow_image(picture(case["kind"], case["seed"], width, height, case["channels"]))
        processor = CLIPImageProcessorPil(size={"shortest_edge": side}, crop_size={"height": side, "width": side},
                                          do_rescale=False, do_normalize=False)
        out = numpy.asarray(processor(image, return_tensors="np")["pixel_values"][0]).transpose(1, 2, 0)
        assert out.shape == (side, side, 3) and out.dtype == numpy.uint8, (out.shape, out.dtype)
        case["sha256"] = digest(out)
        cases.append(case)
    return {"cases": cases}


ALPHABETS = ["abcdefghijklmnop", "ABCDEFXYZ abc ", "0123456789 .,!?-", "Hello World OPEN ", "\u03a3\u03c3\u03c2\u0391\u039f\u03b4 '.", "\u0130I\u0131i\u00df\u1e9e\u00c5\u212b",
             "\u041c\u043e\u0441\u043a\u0432\u0410\u0411", "\u4f60\u597d\u4e16\u754c\u65e5\u672c", "\U0001f600\U0001f44d\U0001d504\U00010400ab", "e\u0301\u0307\u0323Aa\u01c5\ufb01", "\u00a0\u2003 \t\nxY"]


def some_text(rng, longest):
    alphabet = rng.choice(ALPHABETS) if rng.random() < 0.8 else "".join(ALPHABETS)
    return "".join(rng.choice(alphabet) for _ in range(rng.randint(1, longest)))


def misread(rng, text):
    """A text that an OCR might return for an image that should show `text`."""
    if rng.random() < 0.1:
        return some_text(rng, 30) if rng.random() < 0.7 else ""
    letters = list(text)
    for _ in range(rng.choice([0, 0, 1, 2, 5])):
        at = rng.randint(0, len(letters))
        letters[at:at + rng.randint(0, 2)] = some_text(rng, 2) if rng.random() < 0.6 else ""
    read = "".join(letters)
    if rng.random() < 0.3:
        read = some_text(rng, 10) + read + some_text(rng, 10)
    return read.upper() if rng.random() < 0.2 else read


UPSTREAM = {}  # Scorers of checkouts, if they are given.


def plain(text):
    return text.replace(" ", "").lower()


def image_reward(target, read):
    target, read = plain(target), plain(read)
    distance = 0 if target in read else Levenshtein.distance(read, target)
    return 1 - min(distance, len(target)) / len(target)


def video_reward(target, frames):
    """Every fourth frame; frames that score 0 do not count; text that contains the target is not forgiven."""
    target, rewards = plain(target), []
    for read in frames:
        reward = 1.0 - min(Levenshtein.distance(plain(read), target), len(target)) / len(target)
        if reward > 0:
            rewards.append(reward)
    return sum(rewards) / len(rewards) if rewards else 0.0


def some_prompt(rng):
    """A prompt and what upstream takes for its target: after the first quotation mark up to the second or the end."""
    while True:
        text = some_text(rng, 12).replace('"', "")
        prompt = rng.choice(['a sign that says "%s"', '"%s" in neon', 'a cup with "%s" and "more" on it', 'an open "%s',
                             "no quotation but %s"]) % text
        parts = prompt.split('"')
        flow_grpo = parts[1] if len(parts) > 1 else None
        flow_factory = parts[1] if len(parts) > 1 else prompt
        if plain(flow_factory):
            return prompt, flow_grpo, flow_factory


def upstream_reward(prompt, target, read):
    """The reward of both projects' scorers, which agree wherever flow_grpo has a target."""
    reward = UPSTREAM["flow_factory"](prompt, read)
    try:
        assert UPSTREAM["flow_grpo"](prompt, read) == reward, (prompt, read)
    except IndexError:
        assert target is None, prompt
    return reward


def ocr_rule(rng):
    cases, videos = [], []
    for _ in range(1000):
        prompt, flow_grpo, flow_factory = some_prompt(rng)
        read = misread(rng, flow_factory)
        cases.append({"prompt": prompt, "flow_grpo": flow_grpo, "flow_factory": flow_factory, "read": read,
                      "reward": upstream_reward(prompt, flow_grpo, read) if UPSTREAM else image_reward(flow_factory, read)})
    for _ in range(100):
        prompt, _, target = some_prompt(rng)
        frames = [misread(rng, target) for _ in range(rng.randint(0, 6))]
        videos.append({"target": target, "frames": frames, "reward": video_reward(target, frames)})
    return {"cases": cases, "videos": videos}


def some_reference(rng, names):
    """A reference to a character as HTML writes it, or something like one."""
    kind = rng.randint(0, 5)
    number = rng.choice([rng.randint(0, 300), rng.randint(0, 0x110200), 0xD800, 0xFDD0, 0x1FFFE, 10 ** 30, 13, 128])
    if kind == 0:
        return f"&#{number}" + rng.choice([";", "", " ", "x"])
    if kind == 1:
        return rng.choice(["&#x", "&#X"]) + format(number, rng.choice("xX")) + rng.choice([";", "", "g;"])
    if kind == 2:
        return "&" + rng.choice(names) + some_text(rng, 3)
    if kind == 3:
        return "&" + rng.choice(["amp;", "amp;amp;", "ampquot;", "notit;", "", "&", "#", "#;", "#x;", "x" * 40 + ";"])
    name = rng.choice(names)
    return "&" + name[:rng.randint(0, len(name))] + rng.choice([";", "", some_text(rng, 40)])


def html_text(rng):
    names = sorted(html.entities.html5)
    texts = ["&" + name for name in names] + [
        "".join(rng.choice([some_text(rng, 8), some_reference(rng, names)]) for _ in range(rng.randint(1, 6)))
        for _ in range(600)]
    return {"cases": [[text, html.unescape(text)] for text in texts]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("tests/golden/rewards"))
    parser.add_argument("--seed", type=int, default=20261122)
    parser.add_argument("--flow-grpo", type=pathlib.Path)
    parser.add_argument("--flow-factory", type=pathlib.Path)
    args = parser.parse_args()
    if (args.flow_grpo is None) != (args.flow_factory is None):
        parser.error("--flow-grpo and --flow-factory go together")
    if args.flow_grpo:
        UPSTREAM.update(flow_grpo=ocr_upstream.flow_grpo(args.flow_grpo),
                        flow_factory=ocr_upstream.flow_factory(args.flow_factory))
    if int(PIL.__version__.split(".")[0]) >= 13:
        parser.error(f"needs Pillow before 13: {PIL.__version__}")
    args.out.mkdir(parents=True, exist_ok=True)
    for make in (pillow_resize, opencv_resize, clip_crop, jpeg, ocr_rule, html_text):
        content = {"seed": args.seed} | make(random.Random(f"{args.seed} {make.__name__}"))
        lines = [f'"{key}": ' + ("[\n" + ",\n".join(json.dumps(row) for row in value) + "\n]" if isinstance(value, list)
                                 else json.dumps(value)) for key, value in content.items()]
        (args.out / f"{make.__name__}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
