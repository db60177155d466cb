# SPDX-License-Identifier: Apache-2.0
"""The contract's checks pass on a server that keeps it, and each breach is caught by its check."""
import subprocess
import sys
import unittest
from unittest import mock

import numpy as np
from servers import PATIENCE, built, serving

from oxbow.reward import assembly, reward, rules, service
from oxbow.reward.contract import suite
from oxbow.reward.contract.case import Setting
from oxbow.reward.outcome import Outcome

SETTING = Setting(width=16, height=12, metadata='{"tag": 1}')


def mean(items):
    return [item.frames.mean() / 255 for item in items]


def good_rewards():
    return [reward("mean", range=(0, 1), wait_ms=0)(mean),
            reward("tagged", range=(0, 1), metadata_keys=["tag"], wait_ms=0)(mean),
            reward("rank", range=(0, 1), groupwise=True, wait_ms=0)(
                lambda items: [sum(a <= b for a in mean(items)) / len(items) for b in mean(items)]),
            reward("clip", range=(0, 1), media=["video"], wait_ms=0)(mean)]


def run(*rewards, setting=SETTING):
    """The suite's exit code and its lines, by sentence."""
    lines = []
    with serving(*rewards) as (_, client):
        code = suite.run(client, setting, lines.append)
    return code, lines


def failures(lines):
    return [line[6:] for line in lines if line.startswith("FAIL")]


# Promise: The contract's checks find breaches. `oxbow-reward check` passes on servers that keep the
# contract, and names the breach of servers and rewards that do not.
class ContractTest(unittest.TestCase):
    def test_a_server_that_keeps_it_passes(self):
        code, lines = run(*good_rewards())
        self.assertEqual((code, failures(lines)), (0, []))
        left_out = [line for line in lines if line.startswith(("skip", "old"))]
        self.assertEqual(left_out, ["skip  no names mean all rewards: rewards of different media"])

    def check_reward(self, score, expected, **arguments):
        code, lines = run(reward("x", range=(0, 1), wait_ms=0, **arguments)(score))
        self.assertEqual(code, 1)
        self.assertTrue(any(expected in line for line in failures(lines)), lines)
        self.assertFalse(any("\n" in line for line in lines))

    def test_rewards_that_break_it_fail_in_one_line(self):
        self.check_reward(lambda items: [float("nan")] * len(items), "score is not finite: nan")
        self.check_reward(lambda items: [0.5], "1 scores returned for 4 items")
        self.check_reward(lambda items: [7.0] * len(items), "value 7 is outside of its range 0..1")
        self.check_reward(lambda items: 1 / 0, "ZeroDivisionError")

    def test_a_reward_whose_batch_matters_fails(self):
        self.check_reward(lambda items: [i / 100 for i in range(len(items))], "the order of a batch does not matter")
        self.check_reward(lambda items: list(np.array(mean(items)) - np.mean(mean(items)) + 0.5),
                          "a batch of n is n batches of one")

    def check_breach(self, expected, target, name, broken):
        with mock.patch.object(target, name, broken):
            code, lines = run(*good_rewards())
        self.assertEqual(code, 1)
        self.assertTrue(any(line.startswith(expected) for line in failures(lines)), lines)

    def test_servers_that_break_it_are_caught(self):
        real_rules, real_response, real_begin = rules.refusals, service._response, assembly.begin
        self.check_breach("a groupwise reward without its whole group is refused", service, "refusals",
                          lambda one, most, complete, items: real_rules(one, most, True, items))

        def always_scored(item, outcomes):
            return real_response(item, [(name, one if one.ok else Outcome()) for name, one in outcomes])

        self.check_breach("wrong sizes are refused", service, "_response", always_scored)

        def partial(item, outcomes):
            response = real_response(item, outcomes)
            if response.status_code:
                response.rewards.add(name=outcomes[0][0], value=0)
            return response

        self.check_breach("a client of before reads rewards and status", service, "_response", partial)

        def no_limit(request, limits, budget):
            return real_begin(request, assembly.Limits(batch_max=1 << 20), budget)

        self.check_breach("a batch over batch_max is refused", service, "begin", no_limit)

    def test_a_server_of_before_is_told_apart(self):
        real = service._response

        def without_outcomes(item, outcomes):
            response = real(item, outcomes)
            del response.outcomes[:]
            return response

        with mock.patch.object(service, "_response", without_outcomes):
            code, lines = run(*good_rewards())
        self.assertEqual((code, failures(lines)), (0, []))
        self.assertIn("old   a PNG has the score of its pixels: a server of the protocol before outcomes", lines)

    def test_the_summary_counts(self):
        _, lines = run(*good_rewards())
        passed = sum(line.startswith("ok") for line in lines)
        self.assertEqual(lines[-1], f"check: {passed} passed, 0 failed, 1 left out")

    # Promise: Media are bounded before they come.
    @unittest.skipUnless(built("reward_server"), "OXBOW_BUILD is no build of oxbow")
    def test_the_reward_server_of_the_build_passes(self):
        process = subprocess.Popen([built("reward_server"), "--rewards", "digits_ocr,digits_strict"],
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            endpoint = process.stdout.readline().split("grpc=")[1].split()[0]
            done = subprocess.run([sys.executable, "-m", "oxbow.reward.command", "check", "--server", endpoint,
                                   "--prompt", "text 473", "--size", "20x8", "--channels", "1"],
                                  capture_output=True, text=True, timeout=PATIENCE)
            self.assertEqual(done.returncode, 0, done.stdout)
        finally:
            process.terminate()
            process.wait(PATIENCE)
            process.stdout.close()


if __name__ == "__main__":
    unittest.main()
