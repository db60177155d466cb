#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pictures are those of the programs, and the files of a model are those of models/, which was made in C++.

    python examples/pretrain/test_train.py      with the packages of tools/export_model/requirements.txt
"""
import json
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import numpy as np
import torch
import transformers
from safetensors import safe_open
from safetensors.torch import load_file

import worlds

FLUX = ["--transformer", str(worlds.ROOT / "models/digits_flux/transformer")]
MODELS = {"digits": ["--task", "digits"], "plates": ["--task", "plates"], "clip": ["--task", "clip"], "digits_flux": FLUX}


def trained(out, *arguments):
    command = [sys.executable, str(worlds.ROOT / "examples/pretrain/train.py"), "--steps", "2", "--out", str(out), *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def drawn(name):
    """The pictures of dots and crosses in a header's comment, one above the other or side by side."""
    rows = re.findall(r"^//   ([.#]{20}(?:  [.#]{20})*)(?= |$)", (worlds.ROOT / "examples/worlds" / name).read_text(), re.M)
    frames = [[row.split()[i] for row in rows] for i in range(len(rows[0].split()))]
    return np.array([[[1 if pixel == "#" else -1 for pixel in row] for row in frame] for frame in frames])


def shapes(path):
    """A CLIPTextModel of transformers 5 has no "text_model." in its names."""
    with safe_open(path, "pt") as file:
        return {name.removeprefix("text_model."): file.get_slice(name).get_shape() for name in file.keys()}


def told(path):
    """A JSON file without what differs between versions, and without the template of two texts."""
    value = json.loads(path.read_text())
    value.pop("_diffusers_version", None)
    value.get("post_processor", {}).pop("pair", None)
    return value


class WorldsTest(unittest.TestCase):
    def test_glyphs_are_those_of_the_programs(self):
        table = (worlds.ROOT / "examples/worlds/digits.cc").read_text().split("kFont")[1].split("};")[0]
        rows = np.array([[pixel == "#" for pixel in row] for row in re.findall(r'"([.#]{5})"', table)])
        np.testing.assert_array_equal(rows.reshape(10, 7, 5), worlds.GLYPHS > 0)

    def test_pictures_are_those_of_the_headers(self):
        np.testing.assert_array_equal(worlds.digits([1, 0, 7], 1), drawn("digits.h"))
        np.testing.assert_array_equal(worlds.clip([4, 7], 1)[0], drawn("clips.h"))

    def test_plates_stand_in_their_cells(self):
        picture = worlds.plates([4, 7, 3], 2)
        self.assertTrue((picture[:, :4] == 1).all() and (picture[:, 14:] == 1).all() and (picture[:, :, 31] == 1).all())
        np.testing.assert_array_equal(picture[0, 4:14, 11:21], worlds.plate_glyphs()[7])

    def test_captions_are_wrong_as_often_as_said(self):
        for name, world in worlds.WORLDS.items():
            prompts = [f"{world.word} 77"] if name == "clip" else [f"{world.word} 777"]
            _, pictures = world.batch(prompts, 4000, 0.5, np.random.default_rng(5))
            right = {world.draw([7] * (2 if name == "clip" else 3), layout).tobytes() for layout in range(world.layouts)}
            share = np.mean([picture.tobytes() in right for picture in pictures])
            self.assertAlmostEqual(share, 0.55 ** (2 if name == "clip" else 3), delta=0.04)


class FilesTest(unittest.TestCase):
    def test_a_model_has_the_files_of_the_shipped_one(self):
        for name, arguments in MODELS.items():
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                out, shipped = Path(folder) / "model", worlds.ROOT / "models" / name
                done = trained(out, *arguments)
                self.assertEqual(done.returncode, 0, done.stderr)
                files = {path.relative_to(shipped) for path in shipped.rglob("*") if path.is_file()}
                self.assertEqual({path.relative_to(out) for path in out.rglob("*") if path.is_file()}, files)
                for file in sorted(files):
                    read = {".json": told, ".safetensors": shapes}.get(file.suffix, Path.read_bytes)
                    self.assertEqual(read(out / file), read(shipped / file), file)
                self.check_ids(out, name)

    def check_ids(self, out, name):
        golden = worlds.ROOT / f"tests/golden/models/velocity_{name}.safetensors"
        with safe_open(golden, "pt") as file:
            prompts = file.metadata()["prompts"].split(",")
        for folder, ids in (("tokenizer", "ids"), ("tokenizer_2", "ids_2")):
            if (out / folder).exists():
                tokenizer = transformers.AutoTokenizer.from_pretrained(out / folder)
                found = tokenizer(prompts, padding="max_length", return_tensors="pt").input_ids
                self.assertTrue(torch.equal(found, load_file(golden)[ids]), found)

    def test_refusals_say_why(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertIn("--out exists", trained(folder).stderr)
            (Path(folder) / "config.json").write_text('{"_class_name": "QwenImageTransformer2DModel"}')
            refused = trained(Path(folder) / "model", "--transformer", folder)
            self.assertIn("no small text encoders for QwenImageTransformer2DModel", refused.stderr)
            self.assertFalse((Path(folder) / "model").exists())


if __name__ == "__main__":
    unittest.main()
