# SPDX-License-Identifier: Apache-2.0
"""Followers: each step of a run reaches a tracker once, whatever dies."""
import contextlib
import io
import math
import os
import signal
import tempfile
import threading
import unittest
import unittest.mock
from pathlib import Path

from runs import PROMPTS, WrittenRun

from oxbow import Run
from oxbow.follow import command
from oxbow.follow.follower import Follower, Options, wait_for_run
from oxbow.follow.tracker import Spoken

try:
    import yaml
except ImportError:
    yaml = None
PATIENCE = 60.0


class Memory:
    """A tracker. It keeps steps when it gets them (and says how far), or when it is closed (and cannot tell)."""

    def __init__(self, at_once=True):
        self.at_once = at_once
        self.runs = {}
        self.waiting = []
        self.die_before = self.die_after = self.die_for_good = None

    def open(self, run, where, tracker_run):
        self.current = tracker_run or f"run-{len(self.runs)}"
        self.runs.setdefault(self.current, [])
        return self.current

    def last_step(self):
        return max(self.steps(self.current), default=-1) if self.at_once else None

    def log(self, step, numbers, pictures):
        if step == self.die_before:
            raise ConnectionError
        self.waiting.append((step, numbers, [(one.caption, one.path.read_bytes()) for one in pictures]))
        if self.at_once:
            self.close()
        if step == self.die_after:
            raise ConnectionError
        if step == self.die_for_good:
            os.kill(os.getpid(), signal.SIGKILL)

    def close(self):
        self.runs[self.current] += self.waiting
        self.waiting = []

    def steps(self, name="run-0"):
        return [step for step, _, _ in self.runs[name]]


class FollowerTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.written = WrittenRun(Path(folder.name) / "digits")
        self.memory = Memory()

    def follow(self, **options):
        return Follower(Run(self.written.directory), "memory", self.memory, Options(interval=0.01, **options)).follow()

    def test_an_ended_run_is_copied_whole_with_its_pictures(self):
        self.written.write(*range(5))
        self.assertEqual(self.follow(), 5)
        self.assertEqual(self.memory.steps(), [0, 1, 2, 3, 4])
        _, numbers, pictures = self.memory.runs["run-0"][2]
        self.assertEqual(numbers, {"time/wall_s": 2.5, "train/loss": 0.25, "train/reward_mean": 0.0625,
                                   "eval/reward_mean": 0.125})
        files = [Path(self.written.directory, f"samples/step_000002/00{number}.png").read_bytes() for number in (0, 1)]
        self.assertEqual(pictures, [(f"{PROMPTS[0]}\nreward 0.125 (digits_ocr 0.125, redness 0.25)", files[0]),
                                    (f"{PROMPTS[1]}\nreward 0.125 (digits_ocr 0.125, redness nan)", files[1])])
        self.assertEqual(self.memory.runs["run-0"][1][2], [])
        self.assertTrue(math.isnan(self.memory.runs["run-0"][3][1]["train/loss"]))

    def test_the_number_of_pictures_has_a_limit(self):
        self.written.write(*range(3))
        for limit, expected in ((1, 1), (0, 0)):
            self.follow(pictures=limit, afresh=True)
            self.assertEqual(len(self.memory.runs[self.memory.current][2][2]), expected)

    def test_a_number_of_pictures_below_none_is_a_bad_flag(self):
        message = io.StringIO()
        with self.assertRaises(SystemExit) as ended, contextlib.redirect_stderr(message):
            command.command([str(self.written.directory), "--to", "wandb", "--pictures", "-1"])
        self.assertEqual(ended.exception.code, 2)
        self.assertIn("--pictures: a number from 0 on, not '-1'", message.getvalue())

    def test_the_next_follower_goes_on_in_the_same_run_of_the_tracker(self):
        self.written.write(*range(3))
        self.follow()
        self.written.write(3, 4)
        self.assertEqual(self.follow(), 2)
        self.assertEqual(self.memory.steps(), [0, 1, 2, 3, 4])

    def test_an_error_at_a_step_neither_repeats_nor_loses_it(self):
        self.written.write(*range(5))
        for at_once in (True, False):
            for moment in ("die_before", "die_after"):
                with self.subTest(moment, at_once=at_once):
                    self.memory = Memory(at_once)
                    Path(self.written.directory, "followers/memory.json").unlink(missing_ok=True)
                    setattr(self.memory, moment, 2)
                    with self.assertRaises(ConnectionError):
                        self.follow()
                    setattr(self.memory, moment, None)
                    self.follow()
                    self.assertEqual(sorted(set(self.memory.steps())), [0, 1, 2, 3, 4])
                    self.assertEqual(len(self.memory.steps()), 5 + (moment == "die_after" and not at_once))

    def test_a_kill_loses_nothing_of_a_tracker_that_keeps_steps_in_memory(self):
        self.memory = Memory(at_once=False)
        self.written.write(*range(5))
        self.memory.die_for_good = 2
        child = os.fork()
        if child == 0:
            self.follow()
            os._exit(1)
        self.assertTrue(os.WIFSIGNALED(os.waitpid(child, 0)[1]))
        self.memory.die_for_good = None
        self.follow()
        self.assertEqual(self.memory.steps(), [0, 1, 2, 3, 4])

    def test_steps_that_a_resumed_run_writes_again_are_copied_once(self):
        self.written.write(*range(6))
        self.follow()
        self.written.cut_to(3)
        self.written.write(4, 5, 6, 7)
        self.follow()
        self.assertEqual(self.memory.steps(), list(range(8)))

    def test_another_run_in_the_same_directory_is_another_run_of_the_tracker(self):
        self.written.write(*range(4))
        self.follow()
        self.written = WrittenRun(self.written.directory, uid="digits-fedcba9876543210")
        self.written.write(0, 1)
        self.follow()
        self.assertEqual(self.memory.steps("run-1"), [0, 1])

    def test_new_starts_afresh(self):
        self.written.write(0, 1)
        self.follow()
        self.follow(afresh=True)
        self.assertEqual(self.memory.steps("run-1"), [0, 1])

    def test_a_live_run_is_followed_until_it_ends(self):
        self.written.hold()
        self.written.write(0)
        reached = threading.Event()
        kept = self.memory.log
        self.memory.log = lambda *step: (kept(*step), reached.set() if step[0] == 1 else None)
        thread = threading.Thread(target=self.follow, daemon=True)
        thread.start()
        self.written.write(1)
        self.assertTrue(reached.wait(PATIENCE))
        self.assertTrue(thread.is_alive())
        self.written.write(2, 3)
        self.written.let_go()
        thread.join(PATIENCE)
        self.assertFalse(thread.is_alive())
        self.assertEqual(self.memory.steps(), [0, 1, 2, 3])

    @unittest.skipUnless(yaml, "PyYAML is not installed")
    def test_a_run_on_another_machine_ends_with_its_last_step_or_with_silence(self):
        self.written.hold(host="another")
        self.written.write(*range(11))
        self.assertEqual(self.follow(), 11)
        self.written.write(11)
        config = Path(self.written.directory, "config.resolved.yaml")
        config.write_text(config.read_text().replace("steps: 10", "steps: 20"))
        self.assertEqual(self.follow(silence_max=0.0), 1)

    def test_a_wait_for_a_run_is_said_at_once_with_the_nearest_name(self):
        missing, said, stop = self.written.directory.with_name(self.written.directory.name + "x"), [], threading.Event()

        def say(line):
            said.append(line)
            stop.set()
        with self.assertRaises(FileNotFoundError):
            wait_for_run(missing, PATIENCE, stop, say=say)
        self.assertEqual(said, [f"no run there yet, waits 60 s for it: {missing}; did you mean {self.written.directory}?"])
        self.assertEqual(wait_for_run(self.written.directory, PATIENCE, stop, say=said.append).directory, self.written.directory)
        self.assertEqual(len(said), 1)

    def test_a_run_that_does_not_come_is_an_error_of_one_line(self):
        with self.assertRaises(FileNotFoundError):
            wait_for_run(Path("nowhere"), 0.0, threading.Event())

    def test_a_tracker_that_is_not_installed_is_an_error_of_one_line(self):
        message = io.StringIO()
        with unittest.mock.patch.dict("sys.modules", {"mlflow": None, "mlflow.entities": None}), \
                contextlib.redirect_stderr(message):
            self.assertEqual(command.command([str(self.written.directory), "--to", "mlflow"]), 2)
        self.assertIn("pip install './python[mlflow]'", message.getvalue())

    def test_a_tracker_that_refuses_is_an_error_of_one_line(self):
        self.written.write(*range(5))
        self.memory.remedy = "log in"
        for call in ("open", "log", "close"):
            with self.subTest(call), unittest.mock.patch.object(self.memory, call, side_effect=RuntimeError("no\nkey")), \
                    unittest.mock.patch.object(command, "tracker_of", lambda name: Spoken(name, self.memory)):
                message = io.StringIO()
                with contextlib.redirect_stderr(message):
                    self.assertEqual(command.command([str(self.written.directory), "--to", "wandb", "--once"]), 3)
                self.assertEqual(message.getvalue(), "oxbow-follow: wandb does not take the run: RuntimeError: no key (log in)\n")

    def test_a_damaged_file_of_the_run_is_an_error_of_one_line(self):
        self.written.write(*range(3))
        rows = Path(self.written.directory, "samples/step_000002/eval.jsonl")
        rows.write_text(self.written.row(2, 0) + '{"prompt": 3\n')
        message = io.StringIO()
        with unittest.mock.patch.object(command, "tracker_of", lambda name: Spoken(name, self.memory)), \
                contextlib.redirect_stderr(message):
            self.assertEqual(command.command([str(self.written.directory), "--to", "wandb", "--once"]), 4)
        self.assertRegex(message.getvalue(), r"^oxbow-follow: .*eval\.jsonl:2: no row of an evaluation .*\n$")


if __name__ == "__main__":
    unittest.main()
