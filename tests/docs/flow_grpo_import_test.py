#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tools/import_flow_grpo.py: configurations in flow_grpo's form become the recipes that were written by hand.

    flow_grpo_import_test.py BUILD
"""
import contextlib
import io
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import import_flow_grpo  # noqa: E402
from flow_grpo_config import File, NotUnderstood  # noqa: E402

OXBOW = Path(sys.argv.pop()) / "bin/oxbow"

BASE = """
import ml_collections
def get_config():
    config = ml_collections.ConfigDict()
    config.run_name = ""
    config.num_epochs = 2000
    config.seed = 42
    config.num_checkpoint_limit = 5
    config.mixed_precision = "fp16"
    config.use_lora = True
    config.pretrained = pretrained = ml_collections.ConfigDict()
    pretrained.model = "runwayml/stable-diffusion-v1-5"
    config.sample = sample = ml_collections.ConfigDict()
    sample.noise_level = 0.7
    sample.same_latent = False
    sample.sde_window_size = 2
    sample.sde_window_range = (0, 10)
    config.train = train = ml_collections.ConfigDict()
    train.learning_rate = 3e-4
    train.adam_beta1 = 0.9
    train.adam_beta2 = 0.999
    train.adam_weight_decay = 1e-4
    train.adam_epsilon = 1e-8
    train.max_grad_norm = 1.0
    train.num_inner_epochs = 1
    train.cfg = True
    train.adv_clip_max = 5
    train.clip_range = 1e-4
    train.timestep_fraction = 0.99
    return config
"""
FUNCTIONS = """
import os
base = None
def common():
    config = base.get_config()
    config.pretrained.model = "stabilityai/stable-diffusion-3.5-medium"
    config.dataset = os.path.join(os.getcwd(), "dataset/pickscore")
    config.sample.num_steps = 10
    config.sample.eval_num_steps = 40
    config.sample.guidance_scale = 4.5
    config.resolution = 512
    config.sample.global_std = True
    config.sample.train_batch_size = 9
    config.train.batch_size = config.sample.train_batch_size
    config.train.ema = True
    config.save_freq = config.eval_freq = 60
    config.reward_fn = {"pickscore": 1.0}
    return config
def pickscore():
    gpu_number = 32
    config = common()
    config.sample.num_image_per_prompt = 24
    config.sample.num_batches_per_epoch = int(48/(gpu_number*config.sample.train_batch_size/config.sample.num_image_per_prompt))
    assert config.sample.num_batches_per_epoch % 2 == 0, "even"
    config.train.gradient_accumulation_steps = config.sample.num_batches_per_epoch//2
    config.train.beta = 0.01
    return config
def without_guidance():
    gpu_number = 32
    config = common()
    config.sample.guidance_scale = 1
    config.train.cfg = False
    config.sample.num_image_per_prompt = 18
    config.sample.num_batches_per_epoch = int(64/(gpu_number*config.sample.train_batch_size/config.sample.num_image_per_prompt))
    config.train.gradient_accumulation_steps = config.sample.num_batches_per_epoch//2
    config.train.clip_range = 1e-5
    config.train.beta = 0
    config.sample.noise_level = 0.8
    config.sample.sde_window_size = 3
    config.sample.sde_window_range = (0, config.sample.num_steps//2)
    config.sample.sde_type = "cps"
    return config
def no_number():
    return common()
def from_adapter():
    config = pickscore()
    config.train.lora_path = "adapters/first"
    return config
def supervised():
    config = pickscore()
    config.train.sft = 0.1
    return config
def unknown():
    config = pickscore()
    config.train.brand_new = 3
    return config
def harmful():
    os.system("touch harm")
    return common()
"""
# Keys of a recipe beside what flow_grpo's configuration says.
BESIDE = ("name:", "images:", "scorers:")


class ImportTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        (self.folder / "base.py").write_text(BASE)
        self.file = self.folder / "grpo.py"
        self.file.write_text(FUNCTIONS)

    def resolved(self, file):
        done = subprocess.run([OXBOW, "config", "show", file, "--resolved"], cwd=ROOT, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = [line.split("#")[0].rstrip() for line in done.stdout.splitlines()]
        return [line for line in lines if not line.strip().startswith(BESIDE)]

    def run_import(self, function, *flags):
        """(exit code, stderr)."""
        told = io.StringIO()
        with contextlib.redirect_stderr(told):
            code = import_flow_grpo.main([f"{self.file}:{function}", "--out", str(self.folder / "out.yaml"), *flags])
        return code, told.getvalue()

    def test_the_published_settings_become_the_recipes_of_the_same_runs(self):
        for function, recipe in (("pickscore", "sd35m-pickscore"), ("without_guidance", "sd35m-pickscore-nocfg")):
            with self.subTest(function):
                (self.folder / "out.yaml").unlink(missing_ok=True)
                code, told = self.run_import(function)
                self.assertEqual(code, 0, told)
                self.assertEqual(self.resolved(self.folder / "out.yaml"), self.resolved(f"configs/recipes/{recipe}.yaml"))

    def test_a_start_from_an_adapter_is_kept(self):
        code, told = self.run_import("from_adapter")
        self.assertEqual(code, 0, told)
        self.assertIn('lora: {path: "adapters/first"}', (self.folder / "out.yaml").read_text())

    def test_what_has_no_counterpart_is_refused_by_name_and_nothing_is_written(self):
        for function, why in (("supervised", "train.sft = 0.1"), ("unknown", "train.brand_new"),
                              ("no_number", "--gpus"), ("harmful", "grpo.py:.* not understood"), ("nothing", "no such function")):
            with self.subTest(function):
                code, told = self.run_import(function)
                self.assertEqual(code, 2)
                self.assertRegex(told, why)
                self.assertFalse((self.folder / "out.yaml").exists())

    def test_nothing_of_the_file_runs(self):
        with self.assertRaises(NotUnderstood):
            File(self.file).call("harmful")
        self.assertFalse(Path("harm").exists())


if __name__ == "__main__":
    unittest.main()
