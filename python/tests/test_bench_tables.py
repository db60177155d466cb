# SPDX-License-Identifier: Apache-2.0
"""Numbers and tables of `oxbow bench learning`. Goldens are of its former writing in C++."""
import json
import math
import unittest
from dataclasses import replace
from pathlib import Path
from unittest import mock

try:
    import numpy as np
    from bench_runs import arm, is_left_out, jump, philox_drawn, written

    from oxbow.bench import paired
    from oxbow.bench.comparison import Comparison, cost_ratio
    from oxbow.bench.curve import curve_of
    from oxbow.bench.grids import grid_tables
    from oxbow.bench.plan import Plan
    from oxbow.bench.tables import learning_table
    from oxbow.bench.tuning import best_rates, tuning_table
    from oxbow.metrics_file import numbers_of
except ImportError:
    np = None

GOLDENS = Path(__file__).parent / "golden/bench"


def curve_with(*rewards, **more):
    return curve_of([{"step": 10 * i, "eval/reward_mean": reward, **more} for i, reward in enumerate(rewards)])


@unittest.skipUnless(np, "needs numpy and PyYAML")
class GoldenTest(unittest.TestCase):
    def tables(self, name):
        """The text of learning.md for the plan's runs (bench_runs.written)."""
        plan = Plan(GOLDENS / f"{name}.yaml")

        def curve(run):
            steps, every = (int(one.partition("=")[2]) for one in run.settings[:2])
            return curve_of(numbers_of(json.loads(line)) for line in written(run, steps, every).splitlines())

        scores = {}
        for run in plan.tuning(Path("out")):
            scores.setdefault((run.recipe, run.rate), []).append(curve(run).mean_reward)
        arms = []
        for recipe in plan.recipes:
            runs = [run for run in plan.runs(Path("out"), best_rates(scores)) if run.recipe == recipe["name"] and not is_left_out(run)]
            arms.append(arm(recipe["name"], [], (run.seed for run in runs), note=recipe["note"], grid=recipe["grid_of"], point=recipe["point"]))
            arms[-1].curves.extend(map(curve, runs))
        comparison = Comparison(plan.name, plan.baseline, arms, plan.level, plan.levels)
        return (tuning_table(scores) + "\n" if scores else "") + learning_table(comparison)

    def test_every_table_has_the_text_of_the_golden(self):
        for name in ("plain", "grid", "many"):
            with self.subTest(name), mock.patch.object(paired, "drawn", philox_drawn):
                self.assertEqual(self.tables(name), (GOLDENS / f"{name}.txt").read_text().replace("|  |\n", "| |\n"))

    def test_draws_of_another_generator_change_an_interval_by_little(self):
        ours = self.tables("plain")
        golden = (GOLDENS / "plain.txt").read_text()
        for row in ("flow-grpo", "op-grpo"):
            one, other = ([cell for line in text.splitlines() if line.startswith(f"| {row} | ") for cell in line.split("|") if " to " in cell]
                          for text in (ours, golden))
            self.assertGreater(len(one), 3)
            for a, b in zip(one, other):
                for x, y in zip(a.replace("(", " ").replace(")", " ").split(), b.replace("(", " ").replace(")", " ").split()):
                    if x not in ("to", ">=", "<=", "~"):
                        self.assertAlmostEqual(float(x), float(y), delta=0.05, msg=f"{a}, {b}")


@unittest.skipUnless(np, "needs numpy and PyYAML")
class PairedTest(unittest.TestCase):
    def test_p_is_the_share_of_signs_as_far_from_0(self):
        """scipy.stats.permutation_test gives the same."""
        for differences, p in (([1, 2, 3, -1], 6 / 16), ([0.5, 0.25, -0.125, 1, 0.75, 0.5, -0.25, 0.625], 12 / 256), ([0, 0, 1], 1),
                               ([4, 2, -7, 1, -3, 6, 2, 2, 5, -1, 3, 0], 1300 / 4096), ([1, 2, 3, 4, 5, 6, 7, 8], 2 / 256),
                               ([-1, -2, -3, -4, -5, -6, -7, -8], 2 / 256), ([0.1, 0.1, 0.1], 2 / 8), ([], 1), ([0, 0], 1)):
            self.assertEqual(paired.sign_flip_p(differences), p, differences)
        many = [(-1) ** i * i + 2 for i in range(1, 25)]
        exact = self.exact(many)
        self.assertAlmostEqual(paired.sign_flip_p(many), exact, delta=4 * math.sqrt(exact * (1 - exact) / 1e5))

    @staticmethod
    def exact(whole_numbers):
        """By the distribution of the sum, which whole numbers allow for any count."""
        ways = {0: 1}
        for one in whole_numbers:
            nexts = {}
            for total, count in ways.items():
                for signed in (one, -one):
                    nexts[total + signed] = nexts.get(total + signed, 0) + count
            ways = nexts
        return sum(count for total, count in ways.items() if abs(total) >= abs(sum(whole_numbers))) / 2 ** len(whole_numbers)

    def test_an_interval_of_a_mean_is_that_of_theory(self):
        values = np.random.default_rng(7).normal(3, 1, 400)
        of = paired.bootstrap(400, lambda items: values[items].mean(axis=1))
        error = values.std(ddof=1) / 20
        self.assertAlmostEqual(of.ratio, values.mean())
        self.assertAlmostEqual(of.low, values.mean() - 1.96 * error, delta=0.15 * error)
        self.assertAlmostEqual(of.high, values.mean() + 1.96 * error, delta=0.15 * error)
        self.assertIsNone(paired.bootstrap(3, lambda items: np.full(len(items), math.nan)))
        self.assertIsNone(paired.bootstrap(0, lambda items: np.ones(len(items))))

    def test_differences_at_equal_covariates_are_those_of_the_analysis_of_covariance(self):
        both = np.array([[30, 45, 0.1, 0.4], [25, 40, 0.0, 0.3], [35, 55, 0.2, 0.5], [50, 42, 0.4, 0.35]])
        columns = both.T
        # By least squares with an intercept for each recipe.
        design = np.array([[1, 0, x] for x in columns[2]] + [[0, 1, x] for x in columns[3]])
        slope = np.linalg.lstsq(design, np.concatenate([columns[0], columns[1]]), rcond=None)[0][2]
        wanted = columns[0] - columns[1] - slope * (columns[2] - columns[3])
        np.testing.assert_allclose(paired.differences_at_equal(*columns), wanted, rtol=1e-12)
        alike = paired.differences_at_equal(*np.array([[3, 4, 0.5, 0.5], [7, 5, 0.5, 0.5]]).T)
        np.testing.assert_array_equal(alike, [-1, 2])


@unittest.skipUnless(np, "needs numpy and PyYAML")
class CurveTest(unittest.TestCase):
    def test_a_level_is_reached_by_the_mean_of_three_evaluations(self):
        curve = curve_with(0.9, 0.3, 0.6, 0.9, 0.9, 0.1)
        self.assertEqual([float(curve.cost("step", level)) for level in (0.59, 0.61, 0.79, 0.81)], [20, 40, 40, 50])
        self.assertEqual([curve.reached(level) for level in (0.79, 0.81, math.nan)], [True, False, False])
        self.assertFalse(curve_with(0.9, 0.9).reached(0.1), "two are too few")

    def test_costs_are_sums_without_evaluations_and_unknown_where_a_step_did_not_count(self):
        lines = [{"step": 0, "eval/reward_mean": 0.1, "time/step_s": 99}]
        lines += [{"step": i, "time/step_s": 3, "time/eval_s": 1, "train/samples": 8, "rollout/rows_forward": 10, "train/rows_forward": 2,
                   "train/rows_backward": 4} for i in (1, 2)]
        lines.append({"step": 3, "rollout/samples": 9, "train/samples": 8, "eval/reward_mean": 0.2})
        curve = curve_of(lines)
        self.assertEqual({name: values.tolist()[:1] for name, values in curve.costs.items()},
                         {"step": [0], "images": [0], "seconds": [0], "nfe3": [0]})
        self.assertEqual([curve.costs[name][1] for name in ("step", "images", "seconds")], [3, 25, 4])
        self.assertTrue(math.isnan(curve.costs["nfe3"][1]))
        self.assertEqual(curve_of(lines[:3] + [{"step": 2, "eval/reward_mean": 0.5}]).costs["nfe3"].tolist()[:1], [0])

    def test_a_run_has_collapsed_where_it_stays_far_below_its_best(self):
        self.assertTrue(curve_with(0.5, 0.9, 0.9, 0.9, 0.3, 0.1, 0.1).collapsed)
        self.assertFalse(curve_with(0.5, 0.9, 0.9, 0.1, 0.9, 0.9, 0.9).collapsed)
        self.assertFalse(curve_of([]).collapsed)

    def test_a_value_of_the_prompts_has_a_curve_of_its_own(self):
        lines = [{"step": i, "eval/reward_mean": 0.5, "eval/reward_x_strict_mean": 0.4, **({"eval/by_hard_mean": i / 10} if i else {})}
                 for i in range(5)]
        curve = curve_of(lines)
        self.assertAlmostEqual(curve.of_value("hard").final_reward, 0.3)
        self.assertTrue(math.isnan(curve.by["hard"][0]))
        self.assertAlmostEqual(curve.mean_reward, 0.5)
        self.assertAlmostEqual(curve.finals["strict"], 0.4)
        self.assertTrue(math.isnan(curve.finals["speckle"]))


@unittest.skipUnless(np, "needs numpy and PyYAML")
class TablesTest(unittest.TestCase):
    def rows(self, text, name):
        return [line for line in text.splitlines() if line.startswith(f"| {name} |")]

    def small(self):
        return Comparison("small", "slow", [
            arm("slow", [jump(70, 0.4, 0.8, 10)] * 2), arm("fast", [jump(10, 0.5, 0.9, 10)] * 2, note="a note"),
            arm("never", [jump(100, 0.5, 0.6, 10)]), arm("unfinished", [])])

    def test_ratios_are_to_whole_runs_of_the_baseline(self):
        text = learning_table(self.small())
        # Steps 10, 20 and 30 are the first three evaluations at .9; the mean of .5, .9, .9 is less.
        [fast], [never] = self.rows(text, "fast"), self.rows(text, "never")
        self.assertTrue(fast.startswith("| fast | 2/2 | 30.0 | 0.300 (0.300 to 0.300) |"), fast)
        self.assertTrue(fast.endswith("| a note |"), fast)
        self.assertIn("| - |", fast, "NFE3 was not logged")
        self.assertTrue(never.startswith("| never | 0/1 | >= 100.0 | >= 1.000"), never)
        self.assertNotIn("unfinished", text)
        self.assertIn("| slow | 0/2 |", learning_table(replace(self.small(), level=0.85)))
        none = replace(self.small(), arms=[replace(one, curves=[]) for one in self.small().arms])
        self.assertEqual(learning_table(none), "No run of the baseline is finished.\n")

    def test_runs_are_paired_by_seed_and_compared_at_the_same_level(self):
        # In another order, and one seed that the baseline does not have. The level is reached with the second of three
        # evaluations behind the jump, five steps after it. Seeds 1 to 7: 10 steps sooner than 30 to 60, mean 45.
        slow, fast = [jump(20 + 5 * seed) for seed in range(8)], [jump(10 + 5 * (8 - seed)) for seed in range(8)]
        comparison = Comparison("x", "slow", [arm("slow", slow), arm("fast", fast, range(8, 0, -1))], levels=[0.5])
        text = learning_table(comparison)
        self.assertRegex(self.rows(text, "fast")[1], r"^\| fast \| 7/7 \| 35\.0 \| 0\.78 \(.*\) \| 0\.0156 \|")
        self.assertTrue(self.rows(text, "slow")[1].startswith("| slow | 8/8 | 42.5 | 1 | |"))
        fast[3] = jump(20, after=0.4)
        short = replace(comparison, arms=[arm("slow", slow), arm("fast", fast, range(8, 0, -1))])
        self.assertRegex(self.rows(learning_table(short), "fast")[1], r"^\| fast \| 6/7 \| >= .* \| >= 0\.")
        slow[1] = jump(20, after=0.4)
        short = replace(comparison, arms=[arm("slow", slow), arm("fast", fast, range(8, 0, -1))])
        self.assertIn("| ~ ", learning_table(short))

    def test_an_estimated_level_widens_the_interval(self):
        baseline = arm("b", [jump(50, after=0.4 if i % 2 == 0 else 0.8) for i in range(8)])
        risen = jump(60, after=0.8)  # At .4 after 20 steps, at .8 after 60.
        for line in risen[20:60:5]:
            line["eval/reward_mean"] = 0.6
        recipe = arm("r", [risen] * 8)
        fixed, estimated = (cost_ratio(recipe, baseline, level, "step", to_whole_runs=True) for level in (0.6, 0))
        self.assertAlmostEqual(fixed.low, fixed.high)
        self.assertGreater(estimated.high, estimated.low + 0.2)

    def test_what_a_lost_layout_saves_is_no_speed(self):
        def with_shares(name, sixteenths, more):  # Every sixteenth of the pictures costs 5 steps.
            return arm(name, [jump(35 + 5 * n + more, **{"eval/minority_share": n / 16}) for n in sixteenths])

        keeps = with_shares("keeps", (6, 4, 7, 5, 4, 6), 0)
        for name, more, ratio in (("collapses", 0, "1.00 (1.00 to 1.00)"), ("faster", -15, "0.78 (0.7")):
            text = learning_table(Comparison("x", "keeps", [keeps, with_shares(name, (1, 0, 0, 2, 3, 1), more)], levels=[0.5]))
            self.assertEqual(self.rows(text, "keeps")[-1], "| keeps | 0.333 | 1 |")
            self.assertTrue(self.rows(text, name)[-1].startswith(f"| {name} | 0.073 | {ratio}"), text)
        one = Comparison("x", "keeps", [with_shares("keeps", (0, 0), 0), with_shares("other", (0, 0), -10)], levels=[0.5])
        self.assertNotIn("equal shares", learning_table(one))

    def test_difficulties_have_their_ends_and_the_hardest_its_steps(self):
        def hard(step):
            return [{**line, **({"eval/by_0_mean": 0.8, "eval/by_3_mean": 0 if line["step"] < step + 20 else 0.9} if "eval/reward_mean" in line
                                else {})} for line in jump(step)]

        text = learning_table(Comparison("x", "slow", [arm("slow", [hard(40), hard(50)]), arm("fast", [hard(20), hard(30)]), arm("none", [])],
                                         levels=[0.5]))
        self.assertIn("| recipe | 0 | 3 |", text)
        self.assertIn("| fast | 0.800 +- 0.000 | 0.900 +- 0.000 |", text)
        self.assertIn("began lowest (3)", text)
        self.assertIn("| fast | 2/2 | 50.0 |", text)

    def test_a_grid_is_judged_on_its_whole_row(self):
        def point(grid, name, end, at=0):
            lines = [[*([{"step": 1, "eval/reward_mean": 0.2}, {"step": 2, "eval/reward_mean": 0.2},
                         {"step": at + seed % 2, "eval/reward_mean": 0.9}] if at else []),
                      {"step": 50, "eval/reward_mean": end + 0.01 * seed}] for seed in range(8)]
            return arm(f"{grid}-rate-{name}", lines, grid=grid, point=name)

        arms = [point("plain", "1e-4", 0.1), point("plain", "2e-4", 0.2), point("replay", "1e-4", 0.15), point("replay", "2e-4", 0.65)]
        comparison = Comparison("x", "plain-rate-2e-4", arms)
        text = grid_tables(comparison)
        self.assertIn("| plain | 0.135 +- 0.009 | 0.235 +- 0.009 | 0.185 +- 0.009 | | | 2e-4 | | |", text)
        self.assertIn("| replay | 0.185 +- 0.009 | 0.685 +- 0.009 | 0.435 +- 0.009 | +0.250 (8 seeds) | 0.00781 | 2e-4 | +0.450 (8 seeds) "
                      "| 0.00781 |\n| difference, p | +0.050, 0.0078 | +0.450, 0.0078 | | | | | | |", text)
        arms[3].curves.pop(), arms[3].seeds.pop()
        self.assertIn("+0.250 (7 seeds) | 0.0156 |", grid_tables(comparison), "a seed that is not finished at one point")
        arms = [point("plain", "1e-4", 0.1), point("plain", "2e-4", 0.2, 30), point("replay", "1e-4", 0.1, 20), point("replay", "2e-4", 0.2, 40)]
        text = grid_tables(replace(comparison, arms=arms, levels=[0.3]))
        self.assertIn("| plain | 50.0 +- 0.0 | 30.5 +- 0.2 | 40.2 +- 0.1 | | | 2e-4 | | |", text)
        self.assertIn("| replay | 20.5 +- 0.2 | 40.5 +- 0.2 | 30.5 +- 0.2 | -9.8 (8 seeds) | 0.00781 | 1e-4 | -10.0 (8 seeds) | 0.00781 |", text)
        other = replace(comparison, arms=[*arms, point("single", "9", 0.5), arm("apart", [jump(10)])])
        self.assertIn("| held-out reward at the end | 9 |", grid_tables(other))
        self.assertEqual(grid_tables(replace(comparison, arms=[arm("apart", [jump(10)])])), "")

    def test_the_rate_with_the_highest_mean_is_taken_and_of_equal_ones_the_lower(self):
        scores = {("b", 1e-3): [0.1], ("b", 2e-3): [0.2, 0.4], ("a", 2e-3): [0.45, 0.5], ("a", 1e-3): [0.4, 0.6], ("c", 1e-3): []}
        self.assertEqual(best_rates(scores), {"a": 1e-3, "b": 2e-3})
        self.assertEqual(best_rates({("a", 2e-3): [0.5], ("a", 1e-3): [0.5]}), {"a": 1e-3})
        self.assertTrue(tuning_table(scores).startswith("Learning rates: 2 for every recipe"))
        self.assertIn("| a | **0.500** | 0.475 |\n| b | 0.100 | **0.300** |\n| c | - | - |\n", tuning_table(scores))


if __name__ == "__main__":
    unittest.main()
