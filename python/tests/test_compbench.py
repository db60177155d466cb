# SPDX-License-Identifier: Apache-2.0
"""`oxbow compbench` on a repository of small scripts with the arguments and files of T2I-CompBench's."""
import contextlib
import io
import json
import os
import tempfile
import unittest
from pathlib import Path
from unittest import mock

try:
    from oxbow import compbench
except ImportError:
    compbench = None

# Each notes its call, and writes so many answers of its own number. It reads a file of its folder, as theirs do.
SCRIPT = """
import argparse, json, os
parser = argparse.ArgumentParser()
parser.add_argument("{folder}", required=True)
{complex}
args = parser.parse_args()
weights = open("weights").read()
out = getattr(args, "{folder}".strip("-"))
assert os.path.isabs(out) and not out.endswith("/")
names = sorted(os.listdir(out + "/samples"))
with open("../calls", "a") as calls: calls.write("{name} " + os.path.basename(out) + " " + str(getattr(args, "complex", "")) + "\\n")
if os.environ.get("BREAK") == "{name}": print("loading"); raise SystemExit("no weights of mine")
os.makedirs(out + "/{result}", exist_ok=True)
{needs}
with open(out + "/{result}/vqa_result.json", "w") as file:
    json.dump([dict(question_id=i, answer={answer}) for i in range(len(names) - int(os.environ.get("LESS", 0)))], file)
"""
COMPLEX = 'parser.add_argument("--complex", type=bool, default=False)'
MIXED_NEEDS = """
for result in ("annotation_blip", "labels/annotation_obj_detection_2d", "annotation_clip"): json.load(open(out + "/" + result + "/vqa_result.json"))
"""
SCRIPTS = {  # The answer is a text in BLIP-VQA's.
    "BLIPvqa_eval/BLIP_vqa.py": ("--out_dir", "annotation_blip", '"0.2500"', "", ""),
    "UniDet_eval/2D_spatial_eval.py": ("--outpath", "labels/annotation_obj_detection_2d", ".5", COMPLEX, ""),
    "UniDet_eval/3D_spatial_eval.py": ("--outpath", "labels/annotation_obj_detection_3d", ".125", "", ""),
    "UniDet_eval/numeracy_eval.py": ("--outpath", "annotation_num", "i / 2", "", ""),
    "CLIPScore_eval/CLIP_similarity.py": ("--outpath", "annotation_clip", ".3", COMPLEX, ""),
    "3_in_1_eval/3_in_1.py": ("--outpath", "annotation_3_in_1", ".75", "", MIXED_NEEDS),
}
CATEGORIES = ("color", "shape", "texture", "spatial", "3d_spatial", "numeracy", "non_spatial", "complex")


@unittest.skipUnless(compbench, "needs PyYAML and numpy")
class CompbenchTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.repository, self.pictures = Path(scratch.name, "clone"), Path(scratch.name, "pictures")
        for path, (folder, result, answer, flags, needs) in SCRIPTS.items():
            file = self.repository / path
            file.parent.mkdir(parents=True, exist_ok=True)
            (file.parent / "weights").touch()
            file.write_text(SCRIPT.format(name=file.stem, folder=folder, result=result, answer=answer, complex=flags, needs=needs))
        for category in CATEGORIES:
            self.draw(category)

    def draw(self, category, when=None):
        for i in range(3):
            picture = self.pictures / category / "samples" / f"a red apple_{i:06}.png"
            picture.parent.mkdir(parents=True, exist_ok=True)
            picture.touch()
            if when is not None:
                os.utime(picture, (when, when))

    def calls(self):
        file = self.repository / "calls"
        lines = file.read_text().splitlines() if file.exists() else []
        file.unlink(missing_ok=True)
        return lines

    def run_it(self, *more, **environment):
        out, said = io.StringIO(), io.StringIO()
        with mock.patch.dict(os.environ, environment), contextlib.redirect_stdout(out), contextlib.redirect_stderr(said):
            code = compbench.main([str(self.pictures), "--repository", str(self.repository), *more])
        return code, out.getvalue(), said.getvalue()

    def test_each_category_is_scored_by_its_scripts_and_gathered(self):
        code, table, said = self.run_it()
        self.assertEqual(code, 0, said)
        rows = [line.split() for line in table.splitlines()]
        self.assertEqual(rows[0], ["category", "measure", "score", "n"])
        self.assertEqual(rows[1:], [
            ["color", "BLIP-VQA", "0.2500", "3"], ["shape", "BLIP-VQA", "0.2500", "3"], ["texture", "BLIP-VQA", "0.2500", "3"],
            ["spatial", "UniDet", "0.5000", "3"], ["3d_spatial", "UniDet", "0.1250", "3"], ["numeracy", "UniDet", "0.5000", "3"],
            ["non_spatial", "CLIPScore", "0.3000", "3"], ["complex", "3-in-1", "0.7500", "3"]])
        written = json.loads((self.pictures / "compbench.json").read_text())
        self.assertEqual(written["complex"], {"measure": "3-in-1", "score": 0.75, "pictures": 3})
        self.assertEqual(self.calls()[-4:], ["BLIP_vqa complex ", "2D_spatial_eval complex True", "CLIP_similarity complex True", "3_in_1 complex "])

    def test_what_is_scored_is_scored_again_only_for_newer_pictures(self):
        self.assertEqual(self.run_it()[0], 0)
        depth = self.pictures / "3d_spatial/labels/depth"
        depth.mkdir()
        self.calls()
        self.assertEqual(self.run_it()[0], 0)
        self.assertEqual(self.calls(), [])
        later = (self.pictures / "compbench.json").stat().st_mtime + 100
        self.draw("3d_spatial", later)
        self.assertEqual(self.run_it()[0], 0)
        self.assertEqual(self.calls(), ["3D_spatial_eval 3d_spatial "])
        self.assertFalse(depth.exists(), "depth of other pictures")

    def test_a_script_that_fails_is_named_with_its_last_lines(self):
        code, table, said = self.run_it(BREAK="CLIP_similarity")
        self.assertEqual((code, table), (1, ""))
        self.assertIn("oxbow compbench: non_spatial: CLIPScore_eval/CLIP_similarity.py ended with 1", said)
        self.assertTrue(said.endswith("  loading\n  no weights of mine\n"), said)
        self.assertFalse((self.pictures / "compbench.json").exists())

    def test_a_picture_without_an_answer_is_no_score(self):
        code, _, said = self.run_it(LESS="1")
        self.assertEqual(code, 4)
        self.assertIn("2 answers for 3 pictures", said)

    def test_what_is_missing_is_one_line(self):
        (self.repository / "UniDet_eval/numeracy_eval.py").unlink()
        code, _, said = self.run_it()
        self.assertEqual(code, 2)
        self.assertIn("UniDet_eval/numeracy_eval.py is missing", said)
        code, _, said = self.run_it("--python", "/nowhere/python")
        self.assertEqual(code, 2, "the clone comes first")
        self.pictures = self.pictures / "color"
        code, _, said = self.run_it()
        self.assertEqual(code, 2)
        self.assertIn("no CATEGORY/samples with pictures", said)
        self.assertEqual(self.calls(), [])


if __name__ == "__main__":
    unittest.main()
