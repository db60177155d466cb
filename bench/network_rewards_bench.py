#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rewards by larger networks, in oxbow and in Python: seconds of processor time of a picture of 512 px, and peaks of memory.

    bench/network_rewards_bench.py build/release/bin/oxbow --reward geneval|imagereward [--repeats 3] [--pictures 4] [--threads 1]

Both score the same pictures with a network of the published size and random weights, from files to results. A process
with one picture and one with more run in turn; the difference is a picture's time without loading.

    geneval       Mask2Former with Swin-S: transformers' module with OpenCV's resizing and mmdetection's way to instances, as
                  tools/make_geneval_goldens.py has them. Random weights find no instance, so neither side cuts masks or asks
                  CLIP for colours: the detector alone is timed. Needs OpenCV before 5
    imagereward   BLIP and its head: transformers' modules, torchvision's preparation, transformers' tokenizer. Both sides
                  take all pictures of a call as one batch

Needs tools/export_model/requirements.txt, torchvision, Pillow.
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


def random_weights(shapes):
    """name -> random tensor: norms around one, matrices that keep the size of what they multiply."""
    import torch
    generator = torch.Generator().manual_seed(0)
    for name, shape in shapes:
        scale = 0.3 if len(shape) == 1 else shape[1:].numel() ** -0.5
        mean = 1.0 if "norm" in name.lower() and name.endswith("weight") else 0.0
        yield name, torch.randn(shape, generator=generator) * scale + mean


class Geneval:
    arguments = ["--set", f"head={ROOT / 'tests/golden/scorers/clip'}", "--set", "variant=official", "--metadata", METADATA]

    @staticmethod
    def make(folder):
        from safetensors.torch import save_file
        from export_model.wrappers.mask2former import Mask2Former
        shapes = [(name, tensor.shape) for name, tensor in Mask2Former().state_dict().items()]
        save_file({name.removeprefix("detector."): tensor for name, tensor in random_weights(shapes)},
                  str(folder / "model.safetensors"))

    @staticmethod
    def in_python(folder, pictures):
        import numpy
        from PIL import Image
        from safetensors.torch import load_file
        from export_model.wrappers.mask2former import Mask2Former
        from make_geneval_goldens import instances, prepared
        config = dict(height=800, width=800, shorter=800, longer=1333)
        model = Mask2Former().eval()
        model.load_state_dict({"detector." + name: tensor for name, tensor in load_file(folder / "model.safetensors").items()})
        for path in pictures:
            array = numpy.array(Image.open(path))
            pixels, size = prepared(array, config)
            classes, masks = model(pixels)
            print(len(instances(classes[0], masks[0], size, config, array.shape[:2])))


class ImageReward:
    arguments = []

    @staticmethod
    def make(folder):
        import json
        import random
        from safetensors.torch import save_file
        from export_model.wrappers.image_reward import ImageReward, ImageRewardNetwork
        from make_imagereward_goldens import vocabulary
        shapes = [(ImageRewardNetwork.published_name(name), tensor.shape) for name, tensor in ImageReward().state_dict().items()]
        save_file(dict(random_weights(shapes)), str(folder / "model.safetensors"))
        (folder / "config.json").write_text(json.dumps({"_class_name": "ImageReward"}))
        tokens = vocabulary(random.Random(0))
        tokens += [f"unread{number}" for number in range(30522 - len(tokens))]  # BERT's vocabulary has so many.
        (folder / "vocab.txt").write_text("".join(token + "\n" for token in tokens))

    @staticmethod
    def in_python(folder, pictures):
        import numpy
        import torch
        from PIL import Image
        from safetensors.torch import load_file
        from export_model.wrappers.image_reward import LENGTH, ImageReward, ImageRewardNetwork
        from make_imagereward_goldens import MEAN, STD, prepared, tokenizer_of
        model, state = ImageReward().eval(), load_file(folder / "model.safetensors")
        model.load_state_dict({name: state[ImageRewardNetwork.published_name(name)] for name in model.state_dict()})
        given = tokenizer_of(folder)(["a dog"] * len(pictures), padding="max_length", truncation=True, max_length=LENGTH,
                                     return_tensors="pt")
        images = [torch.from_numpy(numpy.array(Image.open(path))) for path in pictures]
        values = model(prepared(images, 224), given["input_ids"], given["attention_mask"].float())
        print(*((values - MEAN) / STD).tolist())


REWARDS = {"geneval": Geneval, "imagereward": ImageReward}


def cost(command, threads):
    """(seconds of processor time, peak MiB, standard output) of a process."""
    environment = os.environ | {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    with tempfile.TemporaryFile() as error, tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=error)
        _, status, usage = os.wait4(process.pid, 0)
        output.seek(0), error.seek(0)
        if status:
            sys.exit(f"{' '.join(map(str, command))}: {error.read().decode()[-2000:]}")
        return usage.ru_utime + usage.ru_stime, usage.ru_maxrss // 1024, output.read().decode()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("oxbow", nargs="?")
    parser.add_argument("--reward", choices=REWARDS, required=True)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--pictures", type=int, default=4)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    args = parser.parse_args()
    reward = REWARDS[args.reward]
    if args.child:
        import torch
        torch.set_num_threads(args.threads)
        torch.set_grad_enabled(False)
        return reward.in_python(pathlib.Path(args.child[0]), args.child[1:])
    import numpy
    from PIL import Image
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        reward.make(folder)
        paths = []
        for number in range(args.pictures):
            paths.append(folder / f"{number}.png")
            Image.fromarray(numpy.random.default_rng(number).integers(0, 256, (512, 512, 3), dtype=numpy.uint8)).save(paths[-1])
        ours = [args.oxbow, "score", "--reward", args.reward, "--model", folder, *reward.arguments, "--prompt", "a dog"]
        theirs = [sys.executable, __file__, "--reward", args.reward, "--threads", str(args.threads), "--child", folder]
        runs = {"oxbow": [], "Python": []}
        for _ in range(args.repeats):
            for side, command in (("oxbow", ours), ("Python", theirs)):
                (one, _, _), (more, peak, output) = (cost([*command, *given], args.threads) for given in (paths[:1], paths))
                runs[side].append(((more - one) / (args.pictures - 1), peak))
                print(f"{side}: {one:.2f} s with one picture, {more:.2f} s with {args.pictures}, peak {peak} MiB", flush=True)
                if not runs[side][1:]:
                    print(output.strip())
        seconds = {side: statistics.median(run[0] for run in found) for side, found in runs.items()}
        peaks = {side: max(run[1] for run in found) for side, found in runs.items()}
        print(f"a picture: oxbow {seconds['oxbow']:.2f} s of processor time, Python {seconds['Python']:.2f} s: "
              f"{seconds['Python'] / seconds['oxbow']:.2f} times; peak {peaks['oxbow']} and {peaks['Python']} MiB: "
              f"{peaks['oxbow'] / peaks['Python']:.2f}")


if __name__ == "__main__":
    main()
