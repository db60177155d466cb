# SPDX-License-Identifier: Apache-2.0
"""Files of torch.save become safetensors, and nothing in them is run."""
import contextlib
import gzip
import io
import json
import tempfile
import unittest
from pathlib import Path

from oxbow.convert import mask2former

try:
    import torch
    from safetensors.torch import load_file

    from oxbow.convert import weights
except ImportError:
    torch = None

ROOT = Path(__file__).resolve().parent.parent.parent
GOLDENS = ROOT / "tests/golden/checkpoints"
SCORERS = ROOT / "tests/golden/scorers"


# Promise: Weights cannot bring code. A `.pt` file is read by `torch.load(weights_only=True)`, which
# builds nothing but tensors, numbers, texts and containers. A file that asks for any other function
# or object is refused with its name in one line, and nothing of it is run. Anything but dense
# tensors of real numbers is refused as well.
@unittest.skipUnless(torch, "needs torch and safetensors")
class ConvertTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.scratch = Path(scratch.name)

    def expect_equal(self, ours, golden):
        self.assertEqual(set(ours), set(golden))
        for name, tensor in golden.items():
            self.assertEqual(ours[name].dtype, tensor.dtype, name)
            self.assertTrue(torch.equal(ours[name], tensor), name)

    def test_a_file_has_the_tensors_that_were_saved(self):
        goldens = sorted(GOLDENS.glob("*.safetensors"))
        self.assertGreaterEqual(len(goldens), 7)
        for golden in goldens:
            with self.subTest(golden.stem):
                target = self.scratch / golden.name
                weights.convert(golden.with_suffix(".pt"), target)
                self.expect_equal(load_file(target), load_file(golden))

    def test_a_detector_of_mmdetection_gets_the_names_of_transformers(self):
        done = weights.convert(SCORERS / "geneval/3/checkpoint.pth", self.scratch / "detector.safetensors")
        self.assertTrue(done["renamed"])
        self.expect_equal(load_file(self.scratch / "detector.safetensors"), load_file(SCORERS / "geneval/3/model.safetensors"))

    def test_a_head_is_that_of_the_reward(self):
        weights.convert(SCORERS / "head.pt", self.scratch / "head.safetensors")
        self.expect_equal(load_file(self.scratch / "head.safetensors"), load_file(SCORERS / "head.safetensors"))

    def test_what_is_no_tensor_is_left_out_and_named(self):
        self.assertEqual(weights.load(GOLDENS / "checkpoint.pt")[1], ["'steps'"])
        self.assertEqual(weights.load(GOLDENS / "mlp.pt")[1], [])

    def test_code_and_other_objects_are_refused_in_one_line_that_names_them(self):
        parts = json.loads((GOLDENS / "refused.json").read_text())
        self.assertGreaterEqual(len(parts), 13)
        for name, part in parts.items():
            target, said = self.scratch / "refused.safetensors", io.StringIO()
            with self.subTest(name), contextlib.redirect_stderr(said):
                self.assertEqual(weights.main([str(GOLDENS / f"refused_{name}.pt"), str(target)]), 4)
                self.assertFalse(target.exists())
                self.assertEqual(said.getvalue().count("\n"), 1)
                self.assertIn(f"refused_{name}.pt: ", said.getvalue())
                self.assertIn(part, said.getvalue())

    def test_a_cut_file_is_refused(self):
        whole = (GOLDENS / "mlp.pt").read_bytes()
        cut = self.scratch / "cut.pt"
        for length in range(0, len(whole), 61):
            cut.write_bytes(whole[:length])
            with self.subTest(length), self.assertRaises(weights.Refused):
                weights.load(cut)

    def test_a_file_that_is_not_there_and_a_place_that_cannot_be_written_are_one_line(self):
        absent, unwritable = (GOLDENS / "absent.pt", self.scratch / "a", 4), (GOLDENS / "mlp.pt", self.scratch / "none/a", 3)
        for source, target, code in (absent, unwritable):
            said = io.StringIO()
            with contextlib.redirect_stderr(said):
                self.assertEqual(weights.main([str(source), str(target)]), code)
            self.assertEqual(said.getvalue().count("\n"), 1, said.getvalue())
        self.assertEqual(list(self.scratch.iterdir()), [])


# Promise: Rewards are those of their projects.
@unittest.skipUnless(torch, "needs torch and safetensors")
class Mask2FormerTest(unittest.TestCase):
    @staticmethod
    def of_mmdetection():
        """Names and shapes as the source of mmdetection 2.28 gives them; no checkpoint was seen."""
        shapes = json.loads(gzip.decompress((GOLDENS / "mask2former_mmdet.json.gz").read_bytes()))
        return {name: torch.empty(shape, device="meta") for name, shape in shapes.items()}

    def test_the_shipped_graph_gets_each_of_its_weights_once(self):
        graph = json.loads(gzip.decompress((ROOT / "models/graphs/Mask2Former-mask2former-swin-s-coco.json.gz").read_bytes()))
        wanted = {parameter["name"]: parameter["shape"] for parameter in graph["parameters"]}
        self.assertGreaterEqual(len(wanted), 500)
        made = list(mask2former.renamed(self.of_mmdetection()))
        self.assertEqual(len(made), len(wanted))
        self.assertEqual({name: list(tensor.shape) for name, tensor in made}, wanted)

    def test_tensors_of_other_networks_are_named(self):
        for name, shape in (("backbone.layer1.0.conv1.weight", [3]), ("backbone.stages.0.blocks.0.attn.w_msa.qkv.weight", [4, 2])):
            with self.assertRaisesRegex(ValueError, name):
                list(mask2former.renamed({name: torch.empty(shape)}))

    def test_columns_of_merged_pixels_change_their_order(self):
        # Two channels of (row, column) 00, 01, 10, 11 become pixels 00, 10, 01, 11 of two channels.
        merged = torch.tensor(list(b"aBcDeFgHijklmnop"), dtype=torch.uint8).reshape(2, 8)
        self.assertEqual(bytes(mask2former.unfolded(merged).flatten().tolist()), b"aecgBFDHimkojnlp")


if __name__ == "__main__":
    unittest.main()
