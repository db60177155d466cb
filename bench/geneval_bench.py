#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""GenEval's detector in oxbow and in Python: seconds of processor time of a picture of 512 px, and peaks of memory.

    bench/geneval_bench.py build/release/bin/oxbow [--repeats 3] [--pictures 4] [--threads 1]

Both score the same pictures with a Mask2Former of the published size and random weights, from a file to detections: here
`oxbow score --reward geneval`, there transformers' Mask2FormerForUniversalSegmentation with OpenCV's resizing and
mmdetection's way to instances, as tools/make_geneval_goldens.py has them. A process with one picture and one with more run
in turn; the difference is a picture's time without loading. CLIP is tests/golden/scorers/clip, which costs nothing and has
nothing to do, since random weights find nothing. Needs tools/export_model/requirements.txt, OpenCV before 5, Pillow.
"""
import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))
METADATA = '{"include": [{"class": "dog", "count": 1}]}'


def make_model(folder):
    """Random weights under the names of a converted checkpoint, and the module's own file for Python."""
    import torch
    from safetensors.torch import save_file
    from export_model.wrappers.mask2former import Mask2Former
    generator = torch.Generator().manual_seed(0)
    state = {}
    for name, tensor in Mask2Former().state_dict().items():
        scale = 0.3 if tensor.dim() == 1 else tensor[0].numel() ** -0.5
        state[name.removeprefix("detector.")] = torch.randn(tensor.shape, generator=generator) * scale + (
            1.0 if "norm" in name and name.endswith("weight") else 0.0)
    save_file(state, str(folder / "model.safetensors"))


def in_python(folder, pictures, threads):
    import numpy
    import torch
    from PIL import Image
    from safetensors.torch import load_file
    from export_model.wrappers.mask2former import Mask2Former
    from make_geneval_goldens import instances, prepared
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    config = dict(height=800, width=800, shorter=800, longer=1333)
    model = Mask2Former().eval()
    model.load_state_dict({"detector." + name: tensor for name, tensor in load_file(folder / "model.safetensors").items()})
    for path in pictures:
        array = numpy.array(Image.open(path))
        pixels, size = prepared(array, config)
        classes, masks = model(pixels)
        print(len(instances(classes[0], masks[0], size, config, array.shape[:2])))


def cost(command, threads):
    """(seconds of processor time, peak MiB) of a process."""
    environment = os.environ | {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    error = process.stderr.read().decode()
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{' '.join(map(str, command))}: {error[-2000:]}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss // 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("oxbow", nargs="?")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--pictures", type=int, default=4)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        return in_python(pathlib.Path(args.child[0]), args.child[1:], args.threads)
    import numpy
    from PIL import Image
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        make_model(folder)
        paths = []
        for number in range(args.pictures):
            paths.append(folder / f"{number}.png")
            Image.fromarray(numpy.random.default_rng(number).integers(0, 256, (512, 512, 3), dtype=numpy.uint8)).save(paths[-1])
        ours = [args.oxbow, "score", "--reward", "geneval", "--model", folder, "--set", f"head={ROOT / 'tests/golden/scorers/clip'}",
                "--set", "variant=official", "--prompt", "a dog", "--metadata", METADATA]
        theirs = [sys.executable, __file__, "--threads", str(args.threads), "--child", folder]
        runs = {"oxbow": [], "Python": []}
        for _ in range(args.repeats):
            for side, command in (("oxbow", ours), ("Python", theirs)):
                (one, _), (more, peak) = (cost([*command, *given], args.threads) for given in (paths[:1], paths))
                runs[side].append(((more - one) / (args.pictures - 1), peak))
                print(f"{side}: {one:.2f} s with one picture, {more:.2f} s with {args.pictures}, peak {peak} MiB", flush=True)
        seconds = {side: statistics.median(run[0] for run in found) for side, found in runs.items()}
        peaks = {side: max(run[1] for run in found) for side, found in runs.items()}
        print(f"a picture: oxbow {seconds['oxbow']:.2f} s of processor time, Python {seconds['Python']:.2f} s: "
              f"{seconds['Python'] / seconds['oxbow']:.2f} times; peak {peaks['oxbow']} and {peaks['Python']} MiB: "
              f"{peaks['oxbow'] / peaks['Python']:.2f}")


if __name__ == "__main__":
    main()
