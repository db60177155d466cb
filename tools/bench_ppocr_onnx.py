#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pictures per second and memory of PP-OCR with published weights: oxbow against ONNX Runtime, one thread each.

    bench_ppocr_onnx.py --model DIR --det det.onnx --rec rec.onnx [--oxbow build/release/bin/oxbow] [--pictures N] [--side PIXELS]
                        [--repeats N]

Both have the same weights (tools/ppocr_from_onnx.py made DIR of the two files) and the same pictures: pages of typeset lines, each
of another width. Around ONNX Runtime is ppocr_upstream.py, PaddleX's pipeline by cv2 and pyclipper; its memory includes torch, which
that file uses for arrays. Seconds are those of the processor; of oxbow, `oxbow score` of N + 1 pictures less that of one. Sides take
turns; medians of the repeats. Memory is the peak of each process. Texts must be equal. Needs onnxruntime, opencv-python-headless,
pyclipper, torch, Pillow and DejaVu's fonts.
"""
import argparse
import json
import os
import pathlib
import random
import resource
import subprocess
import sys
import tempfile
import time
from statistics import median

import numpy as np
from PIL import Image, ImageDraw, ImageFont

FONT = "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf"
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
BOUNDS = {"LRU_CACHE_CAPACITY": "256", "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "256"}  # As reward_server sets them.


def page(rng, side):
    """Two to four lines of random words, some of them turned."""
    image = Image.new("RGB", (side, side), tuple(rng.randint(170, 255) for _ in range(3)))
    count = rng.randint(2, 4)
    for number in range(count):
        words = " ".join("".join(rng.choices(LETTERS, k=rng.randint(2, 8))) for _ in range(rng.randint(1, 3)))
        font = ImageFont.truetype(FONT, side // rng.randint(14, 24))
        _, _, right, bottom = font.getbbox(words)
        drawn = Image.new("L", (right + 4, bottom + 4))
        ImageDraw.Draw(drawn).text((2, 2), words, fill=255, font=font)
        drawn = drawn.rotate(rng.choice([0, 0, rng.uniform(-6, 6)]), Image.Resampling.BICUBIC, expand=True)
        image.paste(tuple(rng.randint(0, 90) for _ in range(3)), (side // 20, side * (2 * number + 1) // (2 * count) - side // 16), drawn)
    return image


def onnx_side(args, paths):
    """In a process of its own, for its memory: prints seconds, bytes and texts."""
    import cv2
    import onnxruntime
    import torch
    import ppocr_upstream as upstream
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    characters = json.loads((args.model / "rec/preprocessor_config.json").read_text())["character_list"]

    def network(path):
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        name = session.get_inputs()[0].name
        return lambda pixels: torch.from_numpy(session.run(None, {name: pixels.numpy()})[0])

    det, rec = network(args.det), network(args.rec)
    images = [np.asarray(Image.open(path)) for path in paths]
    upstream.read(images[0], det, rec, characters)
    begin = time.process_time()
    read = [upstream.read(image, det, rec, characters) for image in images[1:]]
    seconds = time.process_time() - begin
    print(json.dumps(dict(seconds=seconds, peak=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
                          texts=["\n".join(text for _, text, _ in lines if text) for lines in read], lines=sum(map(len, read)))))


def oxbow_side(args, paths):
    """(seconds, bytes, texts)."""
    command = [args.oxbow, "score", *map(str, paths), "--reward", "ocr", "--set", "engine=ppocr", "--model", str(args.model),
               "--prompt", '"x"', "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=ENVIRONMENT | BOUNDS)
    out = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"oxbow score ended with {status}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, [row.get("note", "") for row in json.loads(out)["scores"]]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--oxbow", default="oxbow")
    for name in ("model", "det", "rec"):
        parser.add_argument(f"--{name}", type=pathlib.Path, required=True)
    parser.add_argument("--pictures", type=int, default=42)
    parser.add_argument("--side", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--onnx-side", nargs="+", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.onnx_side:
        return onnx_side(args, args.onnx_side)
    with tempfile.TemporaryDirectory() as folder:
        rng, rates, peaks = random.Random(1), ([], []), ([], [])
        paths = [pathlib.Path(folder, f"{i}.png") for i in range(args.pictures + 1)]
        for path in paths:
            page(rng, args.side).save(path)
        for _ in range(args.repeats):
            run = subprocess.run([sys.executable, __file__, *sys.argv[1:], "--onnx-side", *map(str, paths)], check=True,
                                 stdout=subprocess.PIPE, env=ENVIRONMENT)
            theirs = json.loads(run.stdout)
            start, _, _ = oxbow_side(args, paths[:1])
            seconds, peak, texts = oxbow_side(args, paths)
            rates[0].append(args.pictures / (seconds - start))
            rates[1].append(args.pictures / theirs["seconds"])
            peaks[0].append(peak / 2 ** 20)
            peaks[1].append(theirs["peak"] / 2 ** 20)
        (ours, others), (peak, their_peak) = ([median(side) for side in pair] for pair in (rates, peaks))
        print(f"{theirs['lines']} lines in {args.pictures} pictures; pictures/s {ours:.2f} against {others:.2f}, {ours / others:.2f}x; "
              f"peak {peak:.0f} MiB against {their_peak:.0f}, {peak / their_peak:.2f}x; "
              f"{sum(a == b for a, b in zip(texts[1:], theirs['texts']))} of {args.pictures} texts equal")


if __name__ == "__main__":
    main()
