# SPDX-License-Identifier: Apache-2.0
"""A run's directory, read from Python."""
import json
import math
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
from pathlib import Path

import numpy as np
from runs import PROMPTS, SEEDS, WrittenRun

from oxbow import Run
from oxbow.endpoints import endpoint_of
from oxbow.metrics_file import Tail
from oxbow.process_lock import State

try:
    import pandas
except ImportError:
    pandas = None
try:
    import yaml
except ImportError:
    yaml = None
try:
    from PIL import Image
except ImportError:
    Image = None


class RunTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.written = WrittenRun(Path(folder.name) / "digits")
        self.run_ = Run(self.written.directory)

    def column(self, table, name):
        return table[name].to_numpy() if pandas else table[name]

    def steps(self, table):
        return list(table.index) if pandas else list(table["step"])

    def test_metrics_are_columns_and_what_a_line_does_not_have_is_nan(self):
        self.written.write(*range(5))
        table = self.run_.metrics()
        self.assertEqual(self.steps(table), [0, 1, 2, 3, 4])
        np.testing.assert_array_equal(self.column(table, "train/loss"), [math.nan, 0.125, 0.25, math.nan, 0.5])
        np.testing.assert_array_equal(self.column(table, "eval/reward_mean"), [0, math.nan, 0.125, math.nan, 0.25])
        self.assertEqual(self.run_.steps, 4)

    def test_a_replay_buffer_is_found_by_its_number(self):
        def endpoints(*names):
            services = [{"name": name, "grpc": f"127.0.0.1:{7000 + i}"} for i, name in enumerate(names)]
            (self.written.directory / "endpoints.json").write_text(json.dumps({"services": services}))

        endpoints("learner", "replay_buffer")
        self.assertEqual(endpoint_of(self.written.directory, "replay_buffer-00", "replay_buffer"), "127.0.0.1:7001")
        with self.run_.replay(timeout=1) as replay:
            self.assertEqual(replay.endpoint, "127.0.0.1:7001")
        endpoints("learner", "replay_buffer-00", "replay_buffer-01")
        for shard in (0, 1):
            with self.run_.replay(shard, timeout=1) as replay:
                self.assertEqual(replay.endpoint, f"127.0.0.1:{7001 + shard}")
        with self.assertRaisesRegex(FileNotFoundError, "no replay_buffer-02"):
            self.run_.replay(2)

    def test_without_pandas_columns_are_arrays(self):
        self.written.write(*range(3))
        with unittest.mock.patch.dict("sys.modules", {"pandas": None}):
            table = self.run_.metrics()
        self.assertEqual(sorted(table), ["eval/reward_mean", "step", "time/wall_s", "train/loss", "train/reward_mean"])
        np.testing.assert_array_equal(table["step"], [0, 1, 2])
        np.testing.assert_array_equal(table["train/loss"], [math.nan, 0.125, 0.25])

    def test_evaluations_are_the_steps_that_have_one(self):
        self.written.write(*range(5))
        table = self.run_.evaluations()
        self.assertEqual(self.steps(table), [0, 2, 4])
        self.assertNotIn("train/loss", table)

    def test_a_cut_last_line_is_not_there(self):
        self.written.write(0, 1)
        with self.written.metrics.open("a") as file:
            file.write('{"step":2,"tr')
        self.assertEqual(self.run_.steps, 1)

    def test_a_damaged_line_is_named(self):
        self.written.write(0, 1)
        self.written.metrics.write_text(self.written.line(0) + "nonsense\n" + self.written.line(2))
        with self.assertRaisesRegex(ValueError, r"metrics\.jsonl:2: .*nonsense"):
            self.run_.metrics()

    def test_a_run_without_a_step_has_no_rows(self):
        self.assertEqual(self.steps(self.run_.metrics()), [])
        self.assertEqual(self.run_.sheets(), [])

    def test_sheets_come_by_step_with_their_captions(self):
        self.written.write(*range(5))
        sheets = self.run_.sheets()
        self.assertEqual([(sheet.step, sheet.tag) for sheet in sheets], [(0, "eval"), (2, "eval"), (4, "eval")])
        self.assertEqual(sheets[1].caption, "held-out prompts, reward 0.125")

    @unittest.skipUnless(Image, "Pillow is not installed")
    def test_a_sheet_is_an_image(self):
        self.written.write(*range(3))
        self.assertEqual(np.asarray(self.run_.sheets()[1].image()).tolist(), [[2] * 4] * 2)

    @unittest.skipUnless(Image, "Pillow is not installed")
    def test_the_pictures_of_an_evaluation_are_a_table_with_prompts_rewards_and_seeds(self):
        self.written.write(*range(5))
        table = self.run_.pictures(2)
        column = lambda name: list(table[name])
        self.assertEqual([None if one is None else np.asarray(one).tolist() for one in column("image")],
                         [[[2] * 4] * 2, [[3] * 4] * 2, None])
        self.assertEqual(column("prompt"), list(PROMPTS))
        self.assertEqual(column("reward"), [0.125] * 3)
        self.assertEqual(column("rewards")[0], {"digits_ocr": 0.125, "redness": 0.25})
        self.assertTrue(math.isnan(column("rewards")[1]["redness"]))
        self.assertEqual((column("seed"), column("group"), column("sample")), (list(SEEDS), [7] * 3, [0, 1, 2]))
        self.assertEqual(np.asarray(list(self.run_.pictures()["image"])[0]).tolist(), [[4] * 4] * 2)  # The newest.

    def test_without_pandas_pictures_are_lists(self):
        self.written.write(0)
        with unittest.mock.patch.dict("sys.modules", {"pandas": None}), \
                unittest.mock.patch("oxbow.picture.image_of", lambda path: path.name):
            table = self.run_.pictures(0)
        self.assertEqual(table["image"], ["000.png", "001.png", None])
        self.assertEqual(table["seed"], list(SEEDS))

    def test_a_step_without_an_evaluation_has_no_pictures(self):
        self.written.write(0, 1)
        self.assertEqual(self.run_.evaluated(1), [])
        with self.assertRaisesRegex(ValueError, "no evaluation at step 1 of "):
            self.run_.pictures(1)

    def test_a_run_of_before_has_rows_without_files(self):
        self.written.write(0)
        rows = self.written.directory / "samples/step_000000/eval.jsonl"
        rows.write_text('{"prompt":"text 1","reward":0.5,"right":false,"width":4,"height":2,"on_sheet":true,"rewards":{"x":1}}\n')
        (one,) = self.run_.evaluated(0)
        self.assertEqual((one.prompt, one.rewards, one.path, one.seed), ("text 1", {"x": 1.0}, None, None))

    def test_the_caption_of_a_video_that_stands_still_says_so(self):
        self.written.write(0)
        rows = self.written.directory / "samples/step_000000/eval.jsonl"
        row = '{"prompt":"text 1","reward":0.5,"rewards":{"x":1},"picture":"000.png","frames":17'
        rows.write_text(row + ',"film":"000.film.jpg","film_frames":17}\n' + row + '}\n')
        still, whole = self.run_.evaluated(0)
        self.assertEqual(still.caption, "text 1\nreward 0.5 (x 1)\nthe first of 17 frames")
        self.assertEqual((still.film, still.frames), (rows.parent / "000.film.jpg", 17))
        self.assertEqual(whole.caption, "text 1\nreward 0.5 (x 1)")

    @unittest.skipUnless(yaml, "PyYAML is not installed")
    def test_the_config_has_numbers_and_words_as_oxbow_meant_them(self):
        self.assertEqual(self.run_.config["optimizer"]["learning_rate"], 1e-5)
        self.assertEqual(self.run_.config["run"], {"name": "digits", "steps": 10})
        self.assertEqual(self.run_.config["reward"]["terms"][1]["name"], "no")

    def test_a_directory_that_is_no_run_is_named(self):
        with self.assertRaisesRegex(FileNotFoundError, "no run there.*nowhere"):
            Run("nowhere")

    def test_the_state_is_that_of_the_process_which_holds_the_lock(self):
        self.assertIs(self.run_.state, State.ENDED)
        self.written.hold()
        self.assertIs(self.run_.state, State.LIVE)
        self.written.hold(host="another")
        self.assertIs(self.run_.state, State.ELSEWHERE)

    def test_a_killed_holder_is_no_holder_and_neither_is_the_next_process_of_its_number(self):
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        self.written.hold(pid=child.pid)
        self.assertIs(self.run_.state, State.LIVE)
        child.kill()
        child.communicate()
        self.assertIs(self.run_.state, State.ENDED)
        self.written.hold()
        lock = self.written.directory / "LOCK"
        lock.write_text(lock.read_text().replace('"process_start": ', '"process_start": 1'))
        self.assertIs(self.run_.state, State.ENDED)


class TailTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.written = WrittenRun(folder.name)
        self.tail = Tail(self.written.metrics)

    def new(self):
        return [line["step"] for line in self.tail.new_lines()]

    def test_each_line_comes_once_and_only_whole(self):
        self.written.write(0, 1)
        self.assertEqual(self.new(), [0, 1])
        self.assertEqual(self.new(), [])
        line = self.written.line(2)
        with self.written.metrics.open("a") as file:
            file.write(line[:9])
        self.assertEqual(self.new(), [])
        with self.written.metrics.open("a") as file:
            file.write(line[9:])
        self.assertEqual(self.new(), [2])

    def test_a_file_that_was_cut_is_read_again_also_when_it_has_grown_past_the_old_end(self):
        self.written.write(*range(6))
        self.new()
        self.written.cut_to(1)
        with self.written.metrics.open("a") as file:
            file.write('{"step":2,"train/loss":0.1234567890123}\n' * 40)
        self.assertEqual(self.new()[:3], [0, 1, 2])


if __name__ == "__main__":
    unittest.main()
