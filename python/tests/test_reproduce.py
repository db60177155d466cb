# SPDX-License-Identifier: Apache-2.0
"""`oxbow reproduce`: what it asks before it trains, what it trains, how it goes on, and its page."""
import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

try:
    from oxbow.bench import training
    from oxbow.reproduce import checks, command, page
except ImportError:
    command = None

from programs import PATIENCE, built

CHECKOUT = Path(__file__).resolve().parents[2]
PUBLISHED = CHECKOUT / "configs/bench/published"
# An oxbow that resolves, validates and "trains" at once; it notes what it was asked, and stops where the file `stop` says.
PROGRAM = f"""#!{sys.executable}
import json, os, sys
from pathlib import Path
here, words = Path(__file__).parent, sys.argv[1:]
sets = dict(word.split("=", 1) for before, word in zip(words, words[1:]) if before == "--set")
run = {{"name": "x", "directory": "runs", "seed": 0, "steps": 6}} | {{key[4:]: value for key, value in sets.items() if key.startswith("run.")}}
text = "run:\\n" + "".join(f"  {{key}}: {{value}}\\n" for key, value in run.items())
text += f"model:\\n  memory: auto\\n  lora:\\n    targets: []\\nlevel: {{sets.get('level', 0)}}\\n"
if words[0] == "config": print(text); sys.exit()
with open(here / "calls", "a") as calls: calls.write(" ".join(words) + "  " + os.environ.get("CUDA_VISIBLE_DEVICES", "-") + "\\n")
if words[0] == "validate":
    if "missing" in sets: sys.stderr.write(f"prompts.train: there is no {{sets['missing']}}\\nmodel.path: no weights\\n"); sys.exit(4)
    print(f"on the disk, at most   {{sets.get('disk', '2.0 GiB')}}, of it\\nlearner rank 0         cuda:0     37.8 GiB")
    sys.exit()
folder = Path(run["directory"], run["name"])
folder.mkdir(parents=True, exist_ok=True)
(folder / "config.resolved.yaml").write_text(text.replace("auto", "fast").replace("[]", "[attn.to_q]"))
steps = range(int(run["steps"]) + 1)
if (here / "stop").exists() and (here / "stop").read_text() in run["name"]: steps = range(2)
value = float(sets.get("level", 0))
(folder / "metrics.jsonl").write_text("".join(json.dumps({{"step": i, "eval/reward_mean": value + i / 100, "train/clip_frac_replay": .25}}) + "\\n"
                                              for i in steps))
sys.exit(0 if len(steps) > 2 else 1)
"""
PLAN = """name: small
source: a paper, table 1
seeds: 1
first_seed: 42
set: [run.steps=4]
baseline: first
recipes:
  - {name: first, file: f, set: [level=.5]}
  - {name: second, file: f, set: [level=.7], from: first, note: a note}
published:
  - {recipe: second, metric: eval/reward_mean, step: 3, value: .7, of: row 2}
"""


@unittest.skipUnless(command, "needs numpy, PyYAML and matplotlib")
class ReproduceTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.program, self.out = self.folder / "oxbow", self.folder / "out"
        self.program.write_text(PROGRAM)
        self.program.chmod(0o755)

    def reproduce(self, *words, plan=PLAN, code=0, **environment):
        """stdout and stderr of the command, and what it asked of the program."""
        path, calls = self.folder / "plan.yaml", self.folder / "calls"
        path.write_text(plan)
        calls.write_text("")
        out, err = io.StringIO(), io.StringIO()
        environment = {"OXBOW_PROGRAM": str(self.program), "OXBOW__RUN__STEPS": "1", "CUDA_VISIBLE_DEVICES": "4,5,6", **environment}
        with mock.patch.dict(os.environ, environment), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            self.assertEqual(command.main(["--out", str(self.out), *words, "--", str(path)]), code, err.getvalue())
        return out.getvalue(), err.getvalue(), calls.read_text().splitlines()

    def test_a_chain_is_checked_then_trained_once_and_set_beside_the_published_numbers(self):
        text, _, calls = self.reproduce("--gpus=2", "--set=model.path=here")
        self.assertEqual([call.split()[0] for call in calls], ["validate", "validate", "train", "train"])
        self.assertTrue(all("--set model.path=here" in call and call.endswith("  4,5") for call in calls), calls)
        self.assertNotIn("--from", calls[2])
        self.assertIn(f"--from {self.out / 'first-seed42'}", calls[3])
        self.assertIn("| second | valid | 37.8 | 2.1 | - |", text)
        self.assertIn("| row 2 | second | eval/reward_mean | 3 | 0.7 | 0.72 | +0.02 |", text)  # The mean of steps 1, 2 and 3.
        self.assertIn("| second | - | - | 25.0 % |", text)
        self.assertTrue(text.endswith((self.out / "reproduced.md").read_text()))
        self.assertIn("<figure", (self.out / "reproduced.html").read_text())
        again, said, calls = self.reproduce("--gpus=2", "--set=model.path=here")
        self.assertEqual([call.split()[0] for call in calls], ["validate", "validate"])
        self.assertEqual((again, said.count(": is there")), (text, 2))

    def test_a_run_that_was_stopped_goes_on_from_where_it_was(self):
        stop = self.folder / "stop"
        stop.write_text("second")
        self.assertIn("run second, seed 42, ended with exit code 1", self.reproduce(code=1)[1])
        self.assertIn("| first | 1/1 |", (self.out / "reproduced.md").read_text(), "the page is written behind each run")
        stop.unlink()
        text, _, calls = self.reproduce()
        trained = [call for call in calls if call.startswith("train")]
        self.assertEqual(len(trained), 1)
        self.assertIn("--resume-if-any", trained[0])
        self.assertNotIn("--from", trained[0])
        self.assertIn("+0.02 |", text)

    def test_all_that_is_missing_is_said_once_before_anything_is_trained(self):
        plan = PLAN.replace("set: [run.steps=4]", "set: [run.steps=4, missing=DIR]")
        text, said, calls = self.reproduce(plan=plan, code=4)
        self.assertEqual(said, "oxbow reproduce: the plan cannot run:\nprompts.train: there is no DIR\nmodel.path: no weights\n")
        self.assertIn("| first | not valid | - | - | - |", text)
        self.assertEqual({call.split()[0] for call in calls}, {"validate"})
        disk = shutil.disk_usage(self.folder).free / 2**40
        plan = PLAN.replace("set: [run.steps=4]", f"set: [run.steps=4, disk={disk * .6:.6f} TiB]")
        _, said, calls = self.reproduce(plan=plan, code=5)
        self.assertIn("4 runs take", self.reproduce("--seeds=2", plan=plan, code=5)[1])
        self.assertRegex(said, r"^oxbow reproduce: 2 runs take [\d.]+ GB and /\S+ has [\d.]+; name a larger disk with --out\n$")
        self.assertEqual({call.split()[0] for call in calls}, {"validate"})

    def test_gpus_are_those_of_this_machine_or_another_ones_that_is_only_planned_for(self):
        _, said, calls = self.reproduce("--gpus=8", code=7)
        self.assertIn("--gpus 8: this machine shows 3; give that number", said)
        self.assertEqual(calls, [])
        self.assertIn("add --check, or write --gpus 8", self.reproduce("--gpus=8x80", code=2)[1])
        self.assertIn("expected a number such as 8", self.reproduce("--gpus=many", code=2)[1])
        _, _, calls = self.reproduce("--gpus=8x80", "--check")
        self.assertEqual(["--gpus 8x80" in call for call in calls], [True, True])
        self.assertFalse(self.out.exists(), "a check leaves nothing")

    def test_a_plan_names_its_document_and_a_start_that_comes_before(self):
        self.assertIn("source: is missing", self.reproduce(plan=PLAN.replace("source: a paper, table 1\n", ""), code=2)[1])
        self.assertIn("second: from: is no earlier recipe: \"third\"", self.reproduce(plan=PLAN.replace("from: first", "from: third"), code=2)[1])
        self.assertIn("published: is no recipe: \"none\"", self.reproduce(plan=PLAN.replace("recipe: second", "recipe: none"), code=2)[1])

    def test_a_value_is_that_of_a_run_that_got_there(self):
        lines = [{"step": step, "a": step / 10} for step in range(6)] + [{"step": 6, "a": float("nan")}]
        self.assertAlmostEqual(page.value_at(lines, "a", 0), .4)
        self.assertAlmostEqual(page.value_at(lines, "a", 2), .1)
        self.assertIsNone(page.value_at(lines, "a", 7))
        self.assertIsNone(page.value_at(lines, "b", 0))
        self.assertIsNone(page.value_at([], "a", 0))

    def test_hours_follow_the_steps_and_the_gpus_of_a_recipe_with_such_a_header(self):
        file = self.folder / "recipe.yaml"
        file.write_text("# hours on 8 GPUs at 150 TFLOP/s each: 100\nrun: {steps: 200}\n")
        run = command.Run("a", 0, str(file), (), self.folder)
        self.assertEqual(checks.hours_of(run, 100, 200, 4), 100)
        file.write_text("run: {steps: 200}\n")
        self.assertIsNone(checks.hours_of(run, 100, 200, 4))


class Trained:
    """A process that ends when it is asked for the second time; `log` has its start and its end."""

    returncode = 0

    def __init__(self, name, log):
        self._name, self._log, self._left = name, log, 2
        log.append(f"+{name}")

    def poll(self):
        self._left -= 1
        if self._left:
            return None
        self._log.append(f"-{self._name}")
        return 0


@unittest.skipUnless(command, "needs numpy, PyYAML and matplotlib")
class ChainTest(unittest.TestCase):
    def test_a_run_waits_for_the_one_whose_weights_it_takes(self):
        log = []

        class Recorded(training.Trainer):
            def is_finished(self, run):
                return False

            def _started(self, run):
                return Trained(run.recipe, log)

        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()):
            runs = [command.Run(name, 1, "f", (), Path(folder, name), 0, start and Path(folder, start))
                    for name, start in (("a", None), ("b", "a"), ("c", None))]
            Recorded(Path("oxbow")).train(runs, 3)
        self.assertEqual(log[:3], ["+a", "-a", "+b"])
        self.assertEqual(sorted(log[3:]), ["+c", "-b", "-c"])


@unittest.skipUnless(command and built("oxbow") and PUBLISHED.is_dir(), "OXBOW_BUILD is no build of oxbow")
class PublishedPlansTest(unittest.TestCase):
    def tiny(self, plan, folder, *words):
        return subprocess.run([built("oxbow"), "reproduce", str(plan), "--tiny", "--out", str(folder), *words], cwd=CHECKOUT,
                              env={**os.environ, "OXBOW_PYTHON": sys.executable}, capture_output=True, text=True, timeout=PATIENCE * 15)

    def test_a_chain_of_stages_runs_in_small(self):
        whole = (PUBLISHED / "v-grpo-sd35m.yaml").read_text()
        with tempfile.TemporaryDirectory() as folder:
            plan = Path(folder, "stages.yaml")
            plan.write_text(whole[:whole.index("  - {name: stage-3")])
            done = self.tiny(plan, folder)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertTrue(Path(folder, "reproduced.html").exists())
            steps = [json.loads(line)["step"] for line in next(Path(folder).glob("*-seed42/metrics.jsonl")).read_text().splitlines()]
            self.assertEqual(steps[-1], 2)

    def test_each_family_and_reward_has_a_narrow_form(self):
        for plan in ("branchgrpo", "op-grpo-geneval", "op-grpo-wan"):  # `make check-plans` runs all.
            with self.subTest(plan), tempfile.TemporaryDirectory() as folder:
                done = self.tiny(PUBLISHED / f"{plan}.yaml", folder, "--check")
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertRegex(done.stdout, r"\| valid \| [\d.]+ \| [\d.]+ \| - \|")  # As `oxbow validate` writes them.


if __name__ == "__main__":
    unittest.main()
