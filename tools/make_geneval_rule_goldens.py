#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Golden verdicts of GenEval's rules: upstream's own code on random metadata and detections.

    make_geneval_rule_goldens.py --geneval DIR --reward-server DIR [--out FILE] [--seed N]

DIR are checkouts of github.com/djghosh13/geneval (af4902f) and github.com/yifan123/reward-server (92ac29f). Their
functions run as they are, from thresholds to verdicts: a detector and a CLIP that know the drawn detections stand in for
the models. Writes 1,000 cases to tests/golden/rewards/geneval_rule.json.gz unless told otherwise:

    {"cases": [{"metadata": {}, "detections": [[class, x0, y0, x1, y1, score, colour]], "official": {}, "flow_grpo": {}}]}

Scores of one class differ, because the order of equal ones is numpy's. A file of another seed is another test:
OXBOW_GENEVAL_RULES=FILE golden_test. Needs numpy, torch, Pillow; Python before 3.12, whose sum() adds from left to right.
"""
import argparse
import gzip
import importlib.util
import json
import os
import pathlib
import random
import re
import sys
import tempfile
import types

import numpy
import torch
from PIL import Image

CASES, SIDE = 1000, 512
TAGS = ["single_object", "two_object", "counting", "colors", "position", "color_attr"]
RELATIONS = ["left of", "right of", "above", "below"]


class Upstream:
    """Both evaluators over one detector and one CLIP that answer from `case`."""

    def __init__(self, geneval, reward_server):
        self.case = None
        for name in ("mmdet", "mmdet.apis", "open_clip", "clip_benchmark", "clip_benchmark.metrics", "pandas"):
            sys.modules[name] = types.ModuleType(name)
        sys.modules["mmdet"].__file__ = str(geneval)
        sys.modules["mmdet.apis"].init_detector = lambda *args, **kwargs: None
        sys.modules["mmdet.apis"].inference_detector = self.detect
        sys.modules["open_clip"].create_model_and_transforms = lambda *args, **kwargs: (None, None, None)
        sys.modules["open_clip"].get_tokenizer = lambda *args: None
        zsc = types.SimpleNamespace(zero_shot_classifier=lambda *args: None, run_classification=self.classify)
        sys.modules["clip_benchmark.metrics"].zeroshot_classification = zsc
        torch.cuda.is_available = lambda: True  # The official script asserts it and moves nothing itself.
        self.official = load("official", geneval / "evaluation/evaluate_images.py")
        self.names = (geneval / "evaluation/object_names.txt").read_text().split("\n")[:80]
        self.colours = self.official.COLORS
        for name, value in dict(THRESHOLD=0.3, COUNTING_THRESHOLD=0.9, MAX_OBJECTS=16, NMS_THRESHOLD=1.0,
                                POSITION_THRESHOLD=0.1).items():
            setattr(self.official, name, value)  # As its main program does.
        self.official.args = argparse.Namespace(options={})
        self.official.classnames, self.official.object_detector = self.names, None
        self.official.clip_model = self.official.tokenizer = self.official.transform = None
        os.chdir(reward_server)
        compute = load("flow_grpo", reward_server / "reward_server/gen_eval.py").load_geneval().__wrapped__
        closure = dict(zip(compute.__code__.co_freevars, (cell.cell_contents for cell in compute.__closure__)))
        self.flow_grpo = closure["evaluate_image"]

    def detect(self, _, images):
        boxes = [[] for _ in self.names]
        for detection in self.case["detections"]:
            boxes[self.names.index(detection[0])].append(detection[1:6])
        result = ([numpy.array(rows, dtype=numpy.float32).reshape(-1, 5) for rows in boxes], None)
        return [result] if isinstance(images, list) else result

    def classify(self, _, __, loader, ___):
        """One-hot rows of the colours of the boxes."""
        colours = {tuple(numpy.float32(d[1:6]).tolist()): d[6] for d in self.case["detections"]}
        found = [self.colours.index(colours[tuple(box.tolist())]) for box, _ in loader.dataset._objects]
        return torch.eye(len(self.colours))[found], None

    def verdicts(self, case, image_path):
        self.case = case
        official = self.official.evaluate_image(image_path, case["metadata"])
        flow_grpo = self.flow_grpo([Image.open(image_path)], [case["metadata"]], False)[0]
        assert flow_grpo["correct"] == official["correct"]
        return {"official": {"correct": official["correct"], "reason": in_order(official["reason"])},
                "flow_grpo": {"correct": flow_grpo["strict_correct"], "score": float(flow_grpo["score"]),
                              "reason": in_order(flow_grpo["reason"])}}


def load(name, path):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def in_order(reason):
    """Relations come from a set: sorts them."""
    return re.sub(r"(target, found )(.*)( target)", lambda m: m[1] + " and ".join(sorted(m[2].split(" and "))) + m[3], reason)


def clauses(rng, names, colours):
    """One to three demands; a class may come twice."""
    include = []
    for index in range(rng.choice([1, 1, 2, 2, 2, 3])):
        demand = {"class": rng.choice(names[:6] if index else names), "count": rng.choice([1, 1, 1, 2, 3, 4])}
        if rng.random() < 0.4:
            demand["color"] = rng.choice(colours)
        if index and rng.random() < 0.6:
            demand["position"] = [rng.choice(RELATIONS), rng.randrange(index)]
        include.append(demand)
    return include


def metadata(rng, names, colours):
    given = {"tag": rng.choice(TAGS), "include": clauses(rng, names, colours), "prompt": "a photo"}
    if rng.random() < 0.4:
        demand = rng.choice(given["include"])
        given["exclude"] = [{"class": demand["class"], "count": demand["count"] + 1}]
    return given


def box(rng):
    """Whole pixels, as boxes of masks are. Some have no width, some are all one point."""
    x, y, width, height = (rng.randint(0, most) for most in (SIDE - 200, SIDE - 200, 200, 200))
    return [x, y, x + width, y + height]


def detections(rng, given, names, colours):
    """About as many of each class as are asked for, most of the colour; some others, and sometimes very many."""
    found = []
    for demand in given["include"]:
        for _ in range(max(0, demand["count"] + rng.choice([-1, 0, 0, 0, 0, 0, 0, 1, 20 if rng.random() < 0.1 else 2]))):
            colour = demand.get("color") if rng.random() < 0.8 else None
            found.append([demand["class"], *box(rng), rng.uniform(0.89 if rng.random() < 0.9 else 0, 1), colour or rng.choice(colours)])
    for _ in range(rng.randint(0, 4)):
        found.append([rng.choice(names), *box(rng), rng.random(), rng.choice(colours)])
    rng.shuffle(found)
    for detection in found:
        detection[5] = float(numpy.float32(detection[5]))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--geneval", type=pathlib.Path, required=True)
    parser.add_argument("--reward-server", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("tests/golden/rewards/geneval_rule.json.gz"))
    parser.add_argument("--seed", type=int, default=20261123)
    args = parser.parse_args()
    if sys.version_info >= (3, 12):
        parser.error("Python before 3.12, whose sum() adds from left to right")
    rng, out = random.Random(args.seed), args.out.resolve()
    folder = tempfile.TemporaryDirectory()
    image = f"{folder.name}/image.png"
    Image.new("RGB", (SIDE, SIDE)).save(image)
    upstream = Upstream(args.geneval.resolve(), args.reward_server.resolve())
    cases = []
    for _ in range(CASES):
        given = metadata(rng, upstream.names, upstream.colours)
        case = {"metadata": given, "detections": detections(rng, given, upstream.names, upstream.colours)}
        cases.append(case | upstream.verdicts(case, image))
    golden = {"classes": upstream.names, "colours": upstream.colours, "cases": cases}
    out.write_bytes(gzip.compress(json.dumps(golden, separators=(",", ":")).encode(), mtime=0))
    right = [sum(case[variant]["correct"] for case in cases) for variant in ("official", "flow_grpo")]
    scores = {round(case["flow_grpo"]["score"], 6) for case in cases}
    print(f"{out}: {len(cases)} cases, right {right}, {len(scores)} different scores, {min(scores)} to {max(scores)}")


if __name__ == "__main__":
    main()
