#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tools/check_published_rewards.py: what it compares, and what it says of that, with stand-ins for oxbow and Python's scores."""
import contextlib
import io
import json
import stat
import sys
import tempfile
import unittest
from argparse import Namespace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import check_published_rewards as published  # noqa: E402

IDENTITY = "geneval/official/1"
ROWS = [{"group": tag, "identity": IDENTITY, "value": {"mean": mean}}
        for tag, mean in (("single_object", 0.5), ("colors", 1), ("overall", 0.75))]
# Lines as GenEval's evaluate_images.py writes them: of two tags, half of the pictures of one of them right.
RESULTS = [{"tag": "colors", "correct": True}, {"tag": "single_object", "correct": True},
           {"tag": "single_object", "correct": False}]


class PublishedRewardsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.args = Namespace(oxbow=self.oxbow({"rows": ROWS}), pictures=[], prompt=None, clip="clip", geneval="detector",
                              geneval_images="out", geneval_prompts="prompts.jsonl", geneval_results=self.results(RESULTS),
                              **dict.fromkeys(("pickscore", "aesthetic_head", "imagereward", "ppocr", "hpsv2")))

    def oxbow(self, answer):
        """A program that gives this answer to everything."""
        program = self.folder / "oxbow"
        program.write_text(f"#!/bin/sh\ncat << 'END'\n{json.dumps(answer)}\nEND\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        return str(program)

    def results(self, rows):
        path = self.folder / "results.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return str(path)

    def compared(self, rows, tolerance=1e-3):
        """(exit code, what is printed)."""
        told = io.StringIO()
        with contextlib.redirect_stdout(told):
            code = published.compare(rows, tolerance)
        return code, told.getvalue()

    def test_shares_of_geneval_are_compared_by_tag(self):
        code, told = self.compared(published.comparisons(self.args, []))
        self.assertEqual(code, 0, told)
        self.assertIn(IDENTITY, told)
        self.assertRegex(told, r"0\.500000 +0\.500000 .* single_object\n")
        self.assertRegex(told, r"1\.000000 +1\.000000 .* colors\n")
        self.assertIn("2 values", told)

    def test_another_share_of_one_tag_is_found(self):
        self.args.geneval_results = self.results([*RESULTS, {"tag": "colors", "correct": False}])
        code, told = self.compared(published.comparisons(self.args, []))
        self.assertEqual(code, 1)
        self.assertRegex(told, r"1\.000000 +0\.500000 \+5\.00e-01  colors\n")

    def test_results_of_other_tags_are_refused(self):
        for rows in ([], RESULTS[:1], [*RESULTS, {"tag": "position", "correct": True}]):
            self.args.geneval_results = self.results(rows)
            with self.assertRaisesRegex(SystemExit, "its tags .* are not those of --geneval-prompts"):
                self.compared(published.comparisons(self.args, []))

    def test_scores_are_of_their_pictures(self):
        self.args = Namespace(**{**vars(self.args), "pictures": ["a.png", "b.png"], "prompt": "a dog"})
        self.args.oxbow = self.oxbow({"identity": "x/1", "scores": [{"score": 0.25}, {"score": 0.75}]})
        rows = [("x", *published.oxbow_scores(self.args, "x", "model"), [0.25, 0.5], self.args.pictures)]
        code, told = self.compared(rows)
        self.assertEqual(code, 1)
        self.assertRegex(told, r"0\.250000 +0\.250000 .* a\.png\n")
        self.assertRegex(told, r"0\.750000 +0\.500000 .* b\.png\n")
        self.assertEqual(self.compared(rows, tolerance=0.25)[0], 0)

    def test_paddleocr_is_asked_for_networks_of_the_same_names(self):
        for config, name in (({"model_type": "pp_ocrv5_server_det"}, "PP-OCRv5_server_det"),
                             ({"model_type": "pp_ocrv6_small_det", "neck_out_channels": 96}, "PP-OCRv6_small_det"),
                             ({"model_type": "pp_ocrv6_small_det", "neck_out_channels": 64}, "PP-OCRv6_tiny_det"),
                             ({"model_type": "pp_ocrv6_small_rec", "hidden_size": 120}, "PP-OCRv6_small_rec"),
                             ({"model_type": "pp_ocrv6_small_rec", "hidden_size": 192}, "PP-OCRv6_medium_rec")):
            (self.folder / "config.json").write_text(json.dumps(config))
            self.assertEqual(published.paddle_name(self.folder), name)
        self.assertEqual(published.paddle_name(ROOT / "models/ppocr_v6_tiny/rec"), "PP-OCRv6_tiny_rec")

    def test_nothing_compared_is_exit_code_2(self):
        for rows in ([], [("x", "x/1", [], [], [])]):
            code, told = self.compared(rows)
            self.assertEqual(code, 2)
            self.assertIn("nothing was compared", told)

    def test_rows_without_labels_are_no_success(self):
        with self.assertRaises(ValueError):
            self.compared([("x", "x/1", [1.0], [1.0], [])])

    def test_a_value_that_is_no_number_is_no_success(self):
        self.assertEqual(self.compared([("x", "x/1", [float("nan")], [1.0], ["a.png"])])[0], 1)


if __name__ == "__main__":
    unittest.main()
