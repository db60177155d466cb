#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pictures per second and memory of PP-OCRv5: oxbow against transformers with cv2 and pyclipper, one thread each.

    bench_ppocr.py --oxbow build/release/bin/oxbow [--kinds mobile server] [--pictures N] [--side PIXELS] [--repeats N]

Weights are random, sizes are the published ones, and both read the same pictures with the same number of regions in them. oxbow
is timed from outside: `oxbow score` of N + 1 pictures less that of one, which leaves out the start. Seconds are those of the
processor, which a busy machine disturbs less than a clock, and both sides have one thread. Sides take turns; medians of the
repeats. Memory is the peak of each process. Texts must be equal. Needs what make_ppocr_goldens.py needs.
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

import cv2
import numpy as np
import torch
from PIL import Image

import make_ppocr_goldens as goldens
import ppocr_upstream as upstream
from export_model.published import PUBLISHED

SHARE = 0.05  # The part of a map that is text.
CHARACTERS = ["blank", *map(chr, range(0x4E00, 0x4E00 + 18383)), " "]


def page(rng, side):
    """Bars on a flat ground: with random weights, what has more in it has thousands of regions."""
    image = np.full((side, side, 3), [rng.randint(150, 255) for _ in range(3)], np.uint8)
    for _ in range(4):
        size = (rng.randint(side // 6, side // 2), rng.randint(side // 32, side // 12))
        corners = cv2.boxPoints(((rng.uniform(0, side), rng.uniform(0, side)), size, rng.uniform(-8, 8)))
        cv2.fillPoly(image, [corners.astype(np.int32)], [rng.randint(0, 100) for _ in range(3)])
    return image


def smooth(kind, detector, pixels):
    """Makes neighbours in a random detector's map alike, so that it has regions, and its refinement agree with it."""
    head = detector.network.head
    if kind == "mobile":
        for convolution in (head.conv_up.convolution, head.conv_final):
            convolution.weight.data = convolution.weight.mean((2, 3), keepdim=True).expand_as(convolution.weight).half().float()
        goldens.see(detector, [head.conv_up.norm], pixels)
        goldens.aim(detector, head.conv_final, pixels[:1], SHARE, 6.0)
        return
    local = head.local_refinement_module
    local.convolution_backbone.convolution.weight.data[:, 1:] *= 0.01
    for part in (local.convolution_backbone.convolution, local.convolution_backbone.norm, local.convolution_final):
        part.weight.data = part.weight.abs().half().float()
    goldens.aim(detector, head.binarize_head.conv_final, pixels[:1], SHARE, 6.0)
    goldens.see(detector, [local.convolution_backbone.norm], pixels)
    goldens.aim(detector, local.convolution_final, pixels[:1], SHARE, 6.0)


def models(kind, folder, image, generator):
    """Writes both networks, which find graphs that come with oxbow; returns the modules."""
    detector, recogniser = goldens.CLASSES[kind]
    pixels = upstream.detection_input(image)
    det = goldens.drawn_detector(detector, PUBLISHED[f"pp-ocrv5-{kind}-det"][1], pixels.repeat(2, 1, 1, 1), generator)
    smooth(kind, det, pixels.repeat(2, 1, 1, 1))
    rec = goldens.drawn_module(recogniser, PUBLISHED[f"pp-ocrv5-{kind}-rec"][1], torch.rand(3, 3, 48, 320, generator=generator), generator)
    goldens.stored_weights(folder / "det", detector, det)
    goldens.stored_weights(folder / "rec", recogniser, rec)
    (folder / "rec/preprocessor_config.json").write_text(json.dumps({"character_list": CHARACTERS}))
    return det, rec


def python_side(kind, folder, paths):
    """In a process of its own, for its memory: prints seconds, bytes and texts."""
    images = [cv2.cvtColor(cv2.imread(str(path)), cv2.COLOR_BGR2RGB) for path in paths]
    det, rec = models(kind, folder, images[0], torch.Generator().manual_seed(1))
    with torch.no_grad():
        upstream.read(images[0], det, rec, CHARACTERS)
        begin = time.process_time()
        read = [upstream.read(image, det, rec, CHARACTERS) for image in images[1:]]
        seconds = time.process_time() - begin
    texts = ["\n".join(text for _, text, _ in lines if text) for lines in read]
    print(json.dumps(dict(seconds=seconds, peak=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, texts=texts,
                          lines=sum(map(len, read)))))


def oxbow_side(oxbow, folder, paths):
    command = [oxbow, "score", *map(str, paths), "--reward", "ocr", "--set", "engine=ppocr", "--model", str(folder), "--prompt", '"x"', "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"})
    out = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"oxbow score ended with {status}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, [row["note"] for row in json.loads(out)["scores"]]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--oxbow", default="oxbow")
    parser.add_argument("--kinds", nargs="+", default=["mobile", "server"])
    parser.add_argument("--pictures", type=int, default=8)
    parser.add_argument("--side", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--python-side", nargs="+", help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    if args.python_side:
        kind, folder, *paths = args.python_side
        return python_side(kind, pathlib.Path(folder), paths)
    for kind in args.kinds:
        with tempfile.TemporaryDirectory() as name:
            folder, rng = pathlib.Path(name), random.Random(1)
            paths = [folder / f"{i}.png" for i in range(args.pictures + 1)]
            for path in paths:
                Image.fromarray(page(rng, args.side)).save(path)
            environment = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
            rates, peaks = ([], []), ([], [])
            for _ in range(args.repeats):
                run = subprocess.run([sys.executable, __file__, "--python-side", kind, name, *map(str, paths)], check=True,
                                     stdout=subprocess.PIPE, env=environment)
                theirs = json.loads(run.stdout)
                start, _, _ = oxbow_side(args.oxbow, folder, paths[:1])
                seconds, peak, texts = oxbow_side(args.oxbow, folder, paths)
                rates[0].append(args.pictures / (seconds - start))
                rates[1].append(args.pictures / theirs["seconds"])
                peaks[0].append(peak / 2 ** 20)
                peaks[1].append(theirs["peak"] / 2 ** 20)
            (ours, others), (peak, their_peak) = ([median(side) for side in pair] for pair in (rates, peaks))
            print(f"{kind}: {theirs['lines']} lines in {args.pictures} pictures; pictures/s {ours:.2f} against {others:.2f}, "
                  f"{ours / others:.2f}x; peak {peak:.0f} MiB against {their_peak:.0f}, {peak / their_peak:.2f}x; "
                  f"{sum(a == b for a, b in zip(texts[1:], theirs['texts']))} of {args.pictures} texts equal", flush=True)


if __name__ == "__main__":
    main()
