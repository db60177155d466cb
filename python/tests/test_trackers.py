# SPDX-License-Identifier: Apache-2.0
"""oxbow-follow against the real packages of trackers, on local files, without a network."""
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import tracker_files
from runs import PROMPTS, WrittenRun

PATIENCE = 120
# The record that a tracker keeps of a step's two pictures: captions, or the names of files.
CAPTIONS = lambda step: tuple(f"{prompt}\nreward {step / 16:.4g} (digits_ocr {step / 16:.4g}, redness {second})"
                              for prompt, second in zip(PROMPTS, ("0.25", "nan")))
PICTURES = {"wandb": CAPTIONS, "swanlab": CAPTIONS, "mlflow": lambda step: ("000.png", "001.png", "eval.jsonl")}
FLAGS = {"wandb": ["--offline"], "swanlab": ["--offline"], "mlflow": []}


class TrackerTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.written = WrittenRun(self.folder / "digits", steps=8)

    def start(self, name):
        """A follower; its own files and those of the tracker lie in a folder of the test."""
        command = [sys.executable, "-u", "-m", "oxbow.follow.command", str(self.written.directory), "--to", name,
                   "--directory", str(self.folder / "files"), "--interval", "0.05", *FLAGS[name]]
        environment = {**os.environ, "HOME": str(self.folder), "NO_PROXY": "*", "https_proxy": "http://127.0.0.1:9"}
        child = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(child.stdout.close)
        return child

    def position(self, name):
        path = self.written.directory / "followers" / f"{name}.json"
        return json.loads(path.read_text()) if path.exists() else {}

    def points(self, name):
        return list(getattr(tracker_files, f"{name}_points")(self.folder / "files", self.position(name)["tracker_run"]))

    def expected(self, tracker, steps):
        result = {}
        for step in steps:
            for name, value in json.loads(self.written.line(step)).items():
                if name != "step":
                    result[step, name] = "nan" if value is None else float(value)
            if step % 2 == 0:
                result[step, "samples/eval"] = PICTURES[tracker](step)
        return result

    def check(self, name):
        if importlib.util.find_spec(name) is None:
            self.skipTest(f"{name} is not installed")
        # A follower that is stopped in order, one that is killed, and one that sees the end of the run.
        self.written.hold()
        self.written.write(0, 1, 2)
        first = self.start(name)
        self.until_told("step 2", first)
        first.send_signal(signal.SIGTERM)
        self.assertEqual(first.wait(PATIENCE), 0, first.stdout.read())
        self.written.write(3, 4)
        second = self.start(name)
        self.until_told("step 4", second)
        second.kill()
        second.wait(PATIENCE)
        self.written.cut_to(3)  # The run was resumed meanwhile.
        self.written.write(4, 5, 6, 7, 8)
        self.written.let_go()
        last = self.start(name)
        self.assertEqual(last.wait(PATIENCE), 0, last.stdout.read())
        points = self.points(name)
        told = {(step, key): "nan" if value != value else value for step, key, value in points}
        self.assertEqual(told, self.expected(name, range(9)))
        # Points that a killed follower handed over may be there twice, with the same value; of MLflow never.
        sure = [(step, key) for step, key, _ in points if step not in (3, 4) or name == "mlflow"]
        self.assertEqual(len(sure), len(set(sure)), "a step came twice")
        self.assertEqual(self.position(name)["kept"], 8)

    def until_told(self, text, child):
        """Reads until the follower says that it has handed a step over."""
        told = ""
        for line in child.stdout:  # Ends when the follower does.
            told += line
            if text in line:
                return
        self.fail(told)

    def test_a_key_that_wandb_does_not_take_is_one_line(self):
        if importlib.util.find_spec("wandb") is None:
            self.skipTest("wandb is not installed")
        self.written.write(0)
        command = [sys.executable, "-m", "oxbow.follow.command", str(self.written.directory), "--to", "wandb", "--once"]
        clean = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
        for key in ({}, {"WANDB_API_KEY": "short"}):
            done = subprocess.run(command, env={**clean, **key, "HOME": str(self.folder)}, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=PATIENCE, check=False,
                                  cwd=self.folder)
            self.assertEqual(done.returncode, 3, done.stdout)
            self.assertRegex(done.stdout.splitlines()[-1], r"^oxbow-follow: wandb does not take the run: \w+: .*wandb login")
            self.assertNotIn("Traceback", done.stdout)

    def test_wandb(self):
        self.check("wandb")

    def test_swanlab(self):
        self.check("swanlab")

    def test_mlflow(self):
        self.check("mlflow")


if __name__ == "__main__":
    unittest.main()
