# SPDX-License-Identifier: Apache-2.0
"""oxbow's own workers and learner train with a reward of Python."""
import json
import subprocess
import tempfile
import unittest
from pathlib import Path

from servers import built, serving

from oxbow.reward import Failed, reward

CHECKOUT = Path(__file__).resolve().parents[2]
PATIENCE = 300


@unittest.skipUnless(built("oxbow"), "OXBOW_BUILD is no build of oxbow")
class TrainingTest(unittest.TestCase):
    def train(self, one, steps):
        """The lines of metrics.jsonl of a short run with this reward."""
        with tempfile.TemporaryDirectory() as folder, serving(one) as (server, _):
            done = subprocess.run(
                [built("oxbow"), "train", "configs/digits.yaml", "--set", f"run.directory={folder}", "--set",
                 f"run.steps={steps}", "--set", "run.name=python", "--set", f"reward.endpoints=[{server.endpoint}]",
                 "--set", f"reward.terms=[{{name: {one.name}, weight: 1}}]", "--set", "reward.observed=[]",
                 "--set", "eval.images=8", "--set", "batch.groups=4"],
                cwd=CHECKOUT, capture_output=True, text=True, timeout=PATIENCE)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            lines = Path(folder, "python", "metrics.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def test_a_run_has_the_means_of_the_reward(self):
        given = []

        def darkness(items):
            """Share of dark pixels."""
            given.extend(float((item.picture < 128).mean()) for item in items)
            return given[-len(items):]

        lines = self.train(reward("darkness", range=(0, 1), batch_max=32)(darkness), 2)
        self.assertEqual(lines[-1]["step"], 2)
        for line in lines[1:]:
            self.assertTrue(min(given) <= line["train/reward_darkness_mean"] <= max(given))
            self.assertEqual(line["train/samples_unscored"], 0)

    # Promise: A reward of your own breaks nothing else.
    def test_an_item_without_a_score_is_dropped_and_never_0(self):
        def picky(items):
            """1, or nothing."""
            return [Failed("not this one") if item.picture[0, 0, 0] % 7 == 0 else 1.0 + item.picture.mean() / 255
                    for item in items]

        lines = self.train(reward("picky", range=(1, 2), batch_max=32)(picky), 2)
        self.assertGreater(sum(line["train/samples_unscored"] for line in lines[1:]), 0)
        self.assertGreaterEqual(min(line["train/reward_picky_mean"] for line in lines[1:]), 1)


if __name__ == "__main__":
    unittest.main()
