# SPDX-License-Identifier: Apache-2.0
"""`oxbow bench learning` from end to end: what it trains, what it finds trained, what it writes."""
import contextlib
import errno
import io
import os
import signal
import subprocess
import sys
import tempfile
import threading
import unittest
import xml.etree.ElementTree as xml
from dataclasses import replace
from pathlib import Path
from unittest import mock

try:
    from bench_runs import arm, jump

    from oxbow.bench import command, page
    from oxbow.bench.comparison import Comparison
    from oxbow.process_lock import State, state_of
except ImportError:
    command = None

from programs import PATIENCE, built

CHECKOUT = Path(__file__).resolve().parents[2]
# An oxbow that resolves and "trains" at once; it notes each training in calls.
PROGRAM = f"""#!{sys.executable}
import json, os, sys
from pathlib import Path
if any(name.startswith("OXBOW__") for name in os.environ): sys.exit("a variable of the environment got here")
sets = dict(word.split("=", 1) for before, word in zip(sys.argv, sys.argv[1:]) if before == "--set")
if "run.stepz" in sets: sys.stderr.write("oxbow config: --set: run.stepz: unknown key\\n"); sys.exit(2)
run = {{"name": "x", "directory": "runs", "seed": 0, "steps": 6}} | {{key[4:]: value for key, value in sets.items() if key.startswith("run.")}}
rate, reach = float(sets.get("optimizer.learning_rate", 1e-4)), int(sets.get("reach", 3))
text = "run:\\n" + "".join(f"  {{key}}: {{value}}  # somebody\\n" for key, value in run.items())
text += f"optimizer:\\n  learning_rate: {{rate}}\\nreach: {{reach}}\\n"
if sys.argv[1] == "config": print(text); sys.exit()
with open(Path(__file__).with_name("calls"), "a") as calls: calls.write(f"{{run['name']}}\\n")
if reach == 99:
    if run["seed"] == "1": sys.stderr.write("one\\nlearner: no disk\\n"); sys.exit(5)
    import signal; signal.pause()
folder = Path(run["directory"], run["name"])
folder.mkdir(parents=True, exist_ok=True)
(folder / "config.resolved.yaml").write_text(text)
rewards = [rate * 100 + (0.8 if step >= reach else 0.2) for step in range(int(run["steps"]) + 1)]
(folder / "metrics.jsonl").write_text("".join(json.dumps({{"step": i, "eval/reward_mean": r, "train/samples": 8}}) + "\\n"
                                              for i, r in enumerate(rewards)))
"""
PLAN = """name: small
seeds: 2
first_seed: 1
set: [run.steps=7]
baseline: slow
recipes:
  - {name: slow, file: f, set: [reach=4]}
  - {name: fast, file: f, set: [reach=1], note: a note}
"""


@unittest.skipUnless(command, "needs numpy, PyYAML and matplotlib")
class CommandTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.program = self.folder / "oxbow"
        self.program.write_text(PROGRAM)
        self.program.chmod(0o755)
        self.out = self.folder / "out"

    def bench(self, *words, plan=PLAN, code=0):
        """stdout and stderr of the command, and the names of the runs that it trained."""
        path = self.folder / "plan.yaml"
        path.write_text(plan)
        calls = self.folder / "calls"
        calls.write_text("")
        out, err = io.StringIO(), io.StringIO()
        environment = {"OXBOW_PROGRAM": str(self.program), "OXBOW__RUN__STEPS": "1"}
        with mock.patch.dict(os.environ, environment), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            self.assertEqual(command.main(["--out", str(self.out), *words, "--", str(path)]), code, err.getvalue())
        return out.getvalue(), err.getvalue(), sorted(calls.read_text().split())

    def test_what_is_not_finished_is_trained_and_what_is_finished_is_not(self):
        table, said, trained = self.bench("--jobs=3")
        self.assertEqual(trained, ["fast-seed1", "fast-seed2", "slow-seed1", "slow-seed2"])
        self.assertIn("1/4  slow, seed 1\n2/4  fast, seed 1\n", said)
        self.assertIn("| fast | 2/2 | 3.0 | 0.429 (0.429 to 0.429) |", table)
        self.assertEqual((self.out / "learning.md").read_text(), table)
        self.assertIn("<td>a note</td>", (self.out / "learning.html").read_text())
        xml.parse(self.out / "learning.svg")
        self.assertEqual(sorted(one.name for one in self.out.iterdir() if "tmp" in one.name), [])
        again, said, trained = self.bench()
        self.assertEqual((again, trained), (table, []))
        self.assertEqual(said.count(": is there"), 4)
        self.out = self.out.rename(self.folder / "moved")
        self.assertEqual(self.bench()[2], [], "it was moved")
        self.assertEqual(self.bench("--seeds=1")[2], [])
        metrics = self.out / "slow-seed2/metrics.jsonl"
        metrics.write_text("".join(line + "\n" for line in metrics.read_text().splitlines()[:-1]))
        (self.out / "fast-seed1/metrics.jsonl").write_text("no JSON\n")
        self.assertEqual(self.bench("--table-only")[2], [])
        self.assertEqual(self.bench()[2], ["fast-seed1", "slow-seed2"], "ended early, damaged")
        self.assertEqual(self.bench(plan=PLAN.replace("reach=1", "reach=2"))[2], ["fast-seed1", "fast-seed2"], "other settings")
        resolved = self.out / "slow-seed1/config.resolved.yaml"
        resolved.write_text(resolved.read_text().replace("  learning_rate: 0.0001\n", "  {}\n"))
        self.assertEqual(self.bench(plan=PLAN.replace("reach=1", "reach=2"))[2], [], "an older version did not write a key")

    def test_a_rate_is_chosen_on_runs_of_its_own(self):
        plan = PLAN + "tuning: {learning_rates: [1e-4, 1e-3], seeds: 1, first_seed: 9}\n"
        table, _, trained = self.bench(plan=plan)
        self.assertEqual(len(trained), 8)
        self.assertTrue({"slow-0.0001-seed9", "slow-0.001-seed9"} <= set(trained))
        self.assertTrue((self.out / "tuning/slow-0.001-seed9/metrics.jsonl").exists())
        self.assertIn("| slow | 0.510 | **0.600** |", table)
        self.assertIn("learning_rate: 0.001", (self.out / "slow-seed1/config.resolved.yaml").read_text())
        self.assertEqual(self.bench(plan=plan)[2], [])
        _, said, trained = self.bench("--seeds=9", plan=plan, code=2)
        self.assertIn("a seed is used for tuning and for the comparison: 9 + 1 and 1 + 9", said)
        self.assertEqual(trained, [])

    def test_the_first_run_that_fails_ends_all(self):
        _, said, trained = self.bench("--jobs=2", plan=PLAN.replace("first_seed: 1", "first_seed: 0").replace("reach=1", "reach=99"), code=1)
        self.assertIn("oxbow bench learning: run fast, seed 1, ended with exit code 5; its log: ", said)
        self.assertTrue(said.endswith("fast-seed1.log\none\nlearner: no disk\n"), said)
        self.assertIn("fast-seed0", trained)  # It would pause for ever.

    def test_an_error_of_a_config_comes_before_the_first_training(self):
        _, said, trained = self.bench(plan=PLAN.replace("reach=1", "run.stepz=1"), code=2)
        self.assertRegex(said, r"^oxbow bench learning: recipe fast: /\S+:8: run.stepz: unknown key\n$")
        self.assertEqual(trained, [])
        self.assertIn("level: expected a number", self.bench(plan=PLAN + "level: high\n", code=2)[1])
        self.out = self.program / "out"
        self.assertIn("Not a directory", self.bench(code=3)[1])
        self.program = self.folder / "none"
        self.assertIn("cannot start: No such file or directory", self.bench(code=3)[1])

    def test_a_full_disk_is_said_of_the_file_and_a_picture_that_fails_leaves_the_table(self):
        full = OSError(errno.ENOSPC, "No space left on device")  # As a write has it: without a name.
        with mock.patch.object(Path, "write_text", side_effect=full), self.assertRaisesRegex(OSError, "learning.md"):
            command.write_whole(self.out / "learning.md", "text")
        with mock.patch.object(command, "write_whole", side_effect=full):
            self.assertTrue(self.bench(code=5)[1].endswith("\noxbow bench learning: No space left on device\n"))
        with mock.patch.object(command, "picture", side_effect=ValueError), self.assertRaises(ValueError):
            self.bench()
        self.assertIn("| fast | 2/2 |", (self.out / "learning.md").read_text())

    def test_a_reader_that_left_ends_the_command_quietly(self):
        self.bench()
        words = [["oxbow.bench.command", "--table-only", "--out", str(self.out), str(self.folder / "plan.yaml")],
                 ["oxbow.bench.command", "--help"], ["oxbow.convert.weights", "--help"]]
        for one in words:
            for both in (False, True):
                reader, writer = os.pipe()
                os.close(reader)
                with open(writer, "wb") as closed:
                    done = subprocess.run([sys.executable, "-m", *one], stdout=closed, stderr=closed if both else subprocess.PIPE,
                                          env={**os.environ, "OXBOW_PROGRAM": str(self.program), "PYTHONUNBUFFERED": ""}, timeout=PATIENCE * 10)
                self.assertEqual((done.returncode, done.stderr or b""), (128 + signal.SIGPIPE, b""), one)

    def test_before_the_first_run_there_is_a_page_without_a_picture(self):
        table, _, trained = self.bench("--table-only")
        self.assertEqual((table, trained), ("No run of the baseline is finished.\n", []))
        self.assertFalse((self.out / "learning.svg").exists())
        self.assertNotIn("<figure", (self.out / "learning.html").read_text())


@unittest.skipUnless(command, "needs numpy, PyYAML and matplotlib")
class PageTest(unittest.TestCase):
    def texts(self, svg):
        return ["".join(text.itertext()).strip() for text in xml.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]

    def test_a_band_ends_where_the_seeds_do(self):
        # One seed of three has learned: the mean's two standard errors go below 0.
        band = page.band(arm("x", [jump(100, 0, 0), jump(100, 0, 0), jump(0, 0, 0.6)]))
        self.assertEqual(band[0].tolist()[2:], [0, 0.6])
        self.assertAlmostEqual(band[0][1], 0.2)

    def test_a_picture_has_a_line_of_each_recipe_and_of_grids_a_chart_for_each_point(self):
        arms = [arm("slow & steady", [jump(70), jump(60)]), arm("fast", [jump(10)]), arm("unfinished", [])]
        plain = Comparison("x", "fast", arms)
        texts = self.texts(page.picture(plain))
        self.assertIn("x: held-out reward by step, mean and two standard errors over seeds", texts)
        self.assertEqual([texts.count(one.name) for one in arms], [1, 1, 0])
        self.assertEqual(page.picture(plain), page.picture(plain), "the same bytes")
        names = ["cost $x_{$ y", "a $b$"]
        texts = self.texts(page.picture(Comparison(names[0], names[1], [arm(names[1], [jump(10)], grid="$g", point=names[0])])))
        self.assertEqual([texts.count(one) for one in (names[0], "$g")], [1, 1], "no formulas")
        points = [replace(one, grid=one.name, point=point) for point in ("1e-4", "2e-4", "4e-4") for one in arms]
        texts = self.texts(page.picture(replace(plain, arms=points)))
        self.assertEqual([texts.count(one) for one in ("1e-4", "2e-4", "4e-4", "fast")], [1, 1, 1, 1])
        self.assertEqual(page.picture(replace(plain, arms=[arms[2]])), "")

    def test_a_page_has_the_tables_and_no_markup_of_a_name(self):
        text = page.page("<b>", "Level: x.\n\n| recipe | a |\n|---|---|\n| <i> |  |\n\nNext.\n| c |\n", "")
        self.assertIn('<p class="lead">Level: x.</p>', text)
        self.assertIn("<tr><th>recipe</th><th>a</th></tr>\n<tr><td>&lt;i&gt;</td><td></td></tr>", text)
        self.assertNotIn("|", text.partition("<body>")[2])
        self.assertNotIn("<b>", text)


@unittest.skipUnless(command and built("oxbow"), "OXBOW_BUILD is no build of oxbow")
class TrainingTest(unittest.TestCase):
    def test_real_runs_are_trained_found_again_and_die_with_the_command(self):
        with tempfile.TemporaryDirectory() as folder:
            plan, out = Path(folder, "plan.yaml"), Path(folder, "out")

            def start(steps):
                plan.write_text(f"name: real\nseeds: 1\nset: [run.steps={steps}, eval.every=1, eval.images=8, batch.groups=2, checkpoint.every=0]\n"
                                "baseline: a\nrecipes: [{name: a, file: configs/digits.yaml}, {name: b, file: configs/digits.yaml, "
                                "set: [optimizer.learning_rate=1e-4]}]\n")
                return subprocess.Popen([built("oxbow"), "bench", "learning", str(plan), "--out", str(out), "--jobs", "2"], cwd=CHECKOUT,
                                        env={**os.environ, "OXBOW_PYTHON": sys.executable}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        text=True)

            for found in (0, 2):
                done = start(2)
                table, said = done.communicate(timeout=PATIENCE * 10)
                self.assertEqual(done.returncode, 0, said)
                self.assertIn("| b | ", table)
                self.assertEqual(said.count(": is there"), found, said)
            long = start(100000)
            self.addCleanup(long.communicate)
            self.addCleanup(long.kill)
            waits = threading.Event()
            live = [out / name / "LOCK" for name in ("a-seed0", "b-seed0")]
            for wanted in (State.LIVE, State.ENDED):
                for _ in range(int(PATIENCE * 10 / 0.1)):
                    if {state_of(lock) for lock in live} == {wanted} or waits.wait(0.1):
                        break
                self.assertEqual({state_of(lock) for lock in live}, {wanted})
                long.send_signal(signal.SIGKILL)


if __name__ == "__main__":
    unittest.main()
