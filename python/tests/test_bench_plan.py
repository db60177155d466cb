# SPDX-License-Identifier: Apache-2.0
"""Plans of `oxbow bench learning`."""
import os
import random
import tempfile
import unittest
from pathlib import Path

try:
    from oxbow.bench import Refused
    from oxbow.bench.plan import Plan
    from oxbow.bench.training import Trainer
except ImportError:
    Plan = None

from programs import built

CHECKOUT = Path(__file__).resolve().parents[2]
HEAD = "name: x\nseeds: 1\nset: [run.steps=2]\n"
ONE = "recipes: [{name: a, file: f}]\n"
TUNED = "name: x\nseeds: 4\nfirst_seed: 10\nbaseline: a\nrecipes: [{name: a, file: f}]\ntuning: "


# Promise: Foreign bytes crash no process.
@unittest.skipUnless(Plan, "needs numpy and PyYAML")
class PlanTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = Path(folder.name) / "plan.yaml"

    def plan(self, text):
        self.path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return Plan(self.path)

    def refusal(self, text, code=2):
        with self.assertRaises(Refused) as refused:
            self.plan(text)
        self.assertEqual(refused.exception.code, code)
        said = str(refused.exception)
        self.assertNotIn("\n", said)
        self.assertTrue(said.startswith(str(self.path)), said)
        return said.removeprefix(str(self.path))

    def test_errors_are_one_line_with_their_place(self):
        for said, text in (
                (": expected keys such as `recipes:` at the top level", "# nothing\n"),
                (": expected keys such as `recipes:` at the top level", "- a\n"),
                (':2: seeds: expected a whole number from 0 to 4294967295, got "a"', "name: x\nseeds: a\n"),
                (':2: seeds: expected a whole number from 0 to 4294967295, got "-1"', "name: x\nseeds: -1\n"),
                (f':2: seeds: expected a whole number from 0 to 4294967295, got "{"9" * 400}"', f"name: x\nseeds: {'9' * 400}\n"),
                (f':1: level: expected a number, got "{"9" * 400}"', f"level: {'9' * 400}\n"),
                (":2: recipes[0].nam: unknown key; did you mean `name`?", "name: x\nrecipes: [{nam: a}]\n"),
                (":1: recipes: expected a list, each a section, got a section", "recipes: {name: a}\n"),
                (':1: set: expected a list, each text, got "run.steps=3"', "set: run.steps=3\n"),
                (":1: name: expected text, got nothing", "name:\n"),
                (":2: name: the key is given twice; keep one", "name: x\nname: y\n"),
                (":1: level: expected a number, got \".inf\"", "level: .inf\n"),
                (": seeds: must be 1 or more", ONE), (": recipes: there are none", HEAD),
                (": recipes: a name is part of a directory's name: \"a b\"", HEAD + "recipes: [{name: a b}]\n"),
                (": recipes: name repeats: a", HEAD + "baseline: a\nrecipes: [{name: a}, {name: a}]\n"),
                (": baseline: is no recipe: \"b\"", HEAD + "baseline: b\n" + ONE),
                (": levels: must be above 0", HEAD + "baseline: a\nlevels: [0.5, 0]\n" + ONE)):
            with self.subTest(text):
                self.assertEqual(self.refusal(text), said)
        self.assertIn("not valid YAML", self.refusal("a: [1\n"))
        self.assertIn("not valid YAML", self.refusal(b"a: \xff\n"))
        self.assertIn("not valid YAML", self.refusal("[" * 5000))
        with self.assertRaises(Refused) as refused:
            Plan(self.path.with_name("none.yaml"))
        self.assertEqual(refused.exception.code, 4)

    def test_any_text_is_refused_in_one_line_or_planned_in_full(self):
        """Each run in a directory of its own."""
        dice = random.Random(1)
        seeds = [path.read_text() for path in sorted((Path(__file__).parent / "golden/bench").glob("*.yaml"))]
        planned = 0
        for _ in range(300):
            text = dice.choice(seeds)
            for _ in range(dice.randrange(4)):
                at, to = sorted(dice.randrange(len(text)) for _ in range(2))
                text = dice.choice([text[:at] + text[to:], text[:at] + dice.choice("[]{}:,-&*\n 0'\"#") + text[at:],
                                    text[:to] + text[at:to] + text[to:]])
            try:
                plan = self.plan(text)
            except Refused as why:
                self.assertNotIn("\n", str(why))
                continue
            if plan.seeds < 100:
                planned += 1
                runs = plan.runs(Path("out"))
                self.assertEqual(len({run.directory for run in runs}), plan.seeds * len(plan.recipes))
        self.assertGreater(planned, 30)

    def test_a_grid_is_one_recipe_for_each_combination_of_its_values(self):
        recipes = ("recipes:\n  - {name: a, file: f}\n  - {name: b, file: f, note: n, set: [batch.groups=4], grid: [{key: "
                   "optimizer.learning_rate, values: [1e-4, 3e-4]}, {key: batch.group_size, values: [8, 16]}]}\n")
        plan = self.plan(HEAD + "baseline: a\n" + recipes)
        runs = plan.runs(Path("out"))
        self.assertEqual([run.recipe for run in runs], ["a", *(f"b-learning_rate-{rate}-group_size-{size}" for rate in ("1e-4", "3e-4")
                                                              for size in ("8", "16"))])
        self.assertEqual(runs[-1].overrides, ["run.steps=2", "batch.groups=4", "optimizer.learning_rate=3e-4", "batch.group_size=16",
                                              "run.seed=0", f"run.name={runs[-1].recipe}-seed0", "run.directory=out"])
        last = plan.recipes[-1]
        self.assertEqual((last["note"], last["grid_of"], last["point"]), ("n", "b", "learning_rate 3e-4, group_size 16"))
        self.plan(HEAD + "baseline: b-learning_rate-1e-4-group_size-8\n" + recipes)
        self.assertIn("name one point of the grid", self.refusal(HEAD + "baseline: b\n" + recipes))
        for grid in ("{key: run.steps}", "{values: [1]}", "{key: run.steps, values: [1, 1]}", "{key: prompts.train, values: [a/b]}"):
            self.refusal(HEAD + f"baseline: a\nrecipes:\n  - {{name: a, file: f}}\n  - {{name: b, file: f, grid: [{grid}]}}\n")

    def test_every_recipe_is_tuned_with_the_same_rates_and_seeds_apart_from_its_comparison(self):
        plan = self.plan("name: x\nseeds: 2\nfirst_seed: 400\nbaseline: a\nrecipes: [{name: a, file: f}, {name: b, file: f}]\ntuning: "
                         "{learning_rates: [5e-4, 1e-3], seeds: 1, first_seed: 500, set: [prompts.eval=tune.txt]}\n")
        tuning = plan.tuning(Path("out"))
        self.assertEqual([str(run.directory) for run in tuning], [f"out/tuning/{recipe}-{rate}-seed500" for recipe in "ab"
                                                                  for rate in ("0.0005", "0.001")])
        for run in tuning:
            self.assertEqual(run.overrides[:3], ["prompts.eval=tune.txt", f"optimizer.learning_rate={run.rate:g}", "run.seed=500"])
        runs = plan.runs(Path("out"), {"b": 1e-3})
        self.assertEqual([(str(run.directory), run.rate) for run in runs], [("out/a-seed400", 0), ("out/b-seed400", 1e-3),
                                                                           ("out/a-seed401", 0), ("out/b-seed401", 1e-3)])
        self.assertEqual(runs[3].overrides[:2], ["optimizer.learning_rate=0.001", "run.seed=401"])
        self.assertEqual(self.plan(HEAD + "baseline: a\n" + ONE).tuning(Path("out")), [])

    def test_a_seed_that_tunes_does_not_judge_and_a_rate_is_chosen_once(self):
        for good in ("{learning_rates: [1e-3], seeds: 2, first_seed: 14}", "{learning_rates: [1e-3], seeds: 2, first_seed: 8}"):
            self.plan(TUNED + good)
        for bad in ("{learning_rates: [1e-3], seeds: 2, first_seed: 13}", "{learning_rates: [1e-3], seeds: 2, first_seed: 9}",
                    "{learning_rates: [1e-3]}", "{seeds: 2, first_seed: 20}", "{}", "{learning_rates: [1e-3, 0.001], seeds: 1, first_seed: 20}",
                    "{learning_rates: [-1], seeds: 1, first_seed: 20}"):
            self.assertIn("tuning", self.refusal(TUNED + bad))
        tuned = TUNED + "{learning_rates: [1e-3], seeds: 2, first_seed: 14}"
        self.plan(tuned)
        self.assertEqual(len(Plan(self.path, 3).runs(Path("out"))), 3)
        with self.assertRaisesRegex(Refused, "for tuning and for the comparison: 14 [+] 2 and 10 [+] 5"):
            Plan(self.path, 5)
        grid = TUNED.replace("}]", "}, {name: b, file: f, grid: [{key: optimizer.learning_rate, values: [1e-4]}]}]")
        self.assertIn("overridden by the rate that tuning chooses", self.refusal(grid + "{learning_rates: [1e-3], seeds: 2, first_seed: 14}"))

    @unittest.skipUnless(built("oxbow"), "OXBOW_BUILD is no build of oxbow")
    def test_every_shipped_plan_can_be_run(self):
        plans = [Plan(path) for path in sorted((CHECKOUT / "configs/bench").glob("*.yaml"))]
        self.assertGreaterEqual(len(plans), 10)
        here = Path.cwd()
        os.chdir(CHECKOUT)
        self.addCleanup(os.chdir, here)
        Trainer(Path(built("oxbow"))).resolve(run for plan in plans for run in plan.runs(Path("out")) + plan.tuning(Path("out")))


if __name__ == "__main__":
    unittest.main()
