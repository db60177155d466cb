# SPDX-License-Identifier: Apache-2.0
"""oxbow-ray on a cluster of two simulated nodes."""
import json
import subprocess
import sys
import tempfile
import threading
import unittest
from pathlib import Path

from servers import built

from oxbow import Run
from oxbow.cluster import plan
from oxbow.cluster.process import Health, Process
from oxbow.cluster.restarts import Restarts
from oxbow.cluster.start_record import append_start, recipes_of

try:
    import ray
    from ray.cluster_utils import Cluster
except ImportError:
    ray = None

CHECKOUT = Path(__file__).resolve().parents[2]
PATIENCE = 500
STEPS = 150  # Ray takes some ten seconds to miss a node, and the run must not have ended by then.
SHORT_STEPS = 8


class ProcessTest(unittest.TestCase):
    def started(self, script):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        process = Process("127.0.0.9")
        process.start([sys.executable, "-uc", script, "{host}:7"], {"WORD": "said"}, f"{folder.name}/logs/x.log", folder.name)
        self.addCleanup(process.stop)
        return process, Path(folder.name, "logs/x.log")

    def await_(self, reached):
        pause = threading.Event()
        for _ in range(6000):
            if reached():
                return
            pause.wait(0.01)
        self.fail("not reached")

    def test_a_process_says_where_it_listens_and_what_it_said_last(self):
        process, log = self.started("import os, sys; print('READY name=x grpc=' + sys.argv[1] + ' metrics=h:2');"
                                    "print(os.environ['WORD'], os.path.exists('logs'), file=sys.stderr); sys.exit(5)")
        self.await_(lambda: process.health().exit_code == 5 and process.health().tail and process.health().endpoint)
        self.assertEqual((process.health().endpoint, process.health().tail), ("127.0.0.9:7", ("said True",)))
        self.await_(lambda: log.read_text() == "said True\n")

    def test_an_orderly_end_comes_before_a_kill(self):
        process, _ = self.started("import signal, sys, time; signal.signal(15, lambda *_: sys.exit(0));"
                                  "print('READY name=x grpc=a:1', flush=True); time.sleep(600)")
        self.await_(lambda: process.health().endpoint)
        self.assertEqual(process.stop().exit_code, 0)
        process, _ = self.started("import signal, time; signal.signal(15, signal.SIG_IGN);"
                                  "print('READY name=x grpc=a:1', flush=True); time.sleep(600)")
        self.await_(lambda: process.health().endpoint)
        self.assertEqual(process.stop(patience=0.2).exit_code, -9)


class PlanTest(unittest.TestCase):
    CONFIG = {"learner": {"ranks": 2}, "services": {"log_level": "info", "log_format": "text", "replay_shards": 1},
              "reward": {"endpoints": ["far:1"], "observed": ["row"], "scorers": [{"name": "pick"}],
                         "terms": [{"name": "pick", "weight": 1}, {"name": "mine", "weight": 1}]}}

    def test_rewards_are_served_here_or_elsewhere(self):
        setting = plan.Setting(Path("/r"), self.CONFIG, "/bin")
        self.assertEqual(setting.own_rewards, ["pick"])
        argv = plan.learner(setting, "h:1", "b:2", ["w:3"])
        self.assertEqual(argv[argv.index("--reward") + 1], "far:1,w:3")
        everything = {**self.CONFIG, "reward": {**self.CONFIG["reward"], "endpoints": []}}
        self.assertEqual(plan.Setting(Path("/r"), everything, "/bin").own_rewards, ["row", "pick", "mine"])

    def test_only_a_run_that_replays_or_adapts_has_a_buffer(self):
        bare = {"replay": {"fraction": 0, "late_binding": False, "added": 0}, "adaptation": {"enabled": False}}
        for section, key, value, uses in (("replay", "fraction", 0, False), ("replay", "fraction", 0.25, True),
                                          ("replay", "late_binding", True, True), ("replay", "added", 8, True),
                                          ("adaptation", "enabled", True, True)):
            config = {**self.CONFIG, **bare, section: {**bare[section], key: value}}
            self.assertEqual(plan.Setting(Path("/r"), config, "/bin").uses_buffer, uses, (section, key, value))
        setting = plan.Setting(Path("/r"), self.CONFIG, "/bin")
        self.assertNotIn("--buffer", plan.learner(setting, "h:1", "", ["w:3"]))

    def test_each_shard_of_the_buffer_has_a_name_and_a_directory(self):
        config = {**self.CONFIG, "replay": {"fraction": 0.25, "late_binding": False, "added": 0}, "adaptation": {"enabled": False}}
        for shards, names, folders in ((1, ["replay_buffer"], ["/r/replay"]),
                                       (2, ["replay_buffer-00", "replay_buffer-01"], ["/r/replay-00", "/r/replay-01"])):
            setting = plan.Setting(Path("/r"), {**config, "services": {**config["services"], "replay_shards": shards}}, "/bin")
            self.assertEqual(setting.shards, shards)
            self.assertEqual([plan.buffer_name(setting, i) for i in range(shards)], names)
            data = [plan.buffer(setting, "h:1", i) for i in range(shards)]
            self.assertEqual([argv[argv.index("--data") + 1] for argv in data], folders)

    def test_ranks_are_told_what_torchrun_would_tell_them(self):
        setting = plan.Setting(Path("/r"), self.CONFIG, "/bin")
        self.assertEqual(plan.rank_environment(setting, 1, "[fd00::1]:99", 3),
                         {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "[fd00::1]",
                          "MASTER_PORT": "99", "TORCHELASTIC_RESTART_COUNT": "3"})


# Promise: Any one process may die, again and again.
class RestartsTest(unittest.TestCase):
    """How often a process that dies at once is started within so many seconds, and whether it ended the run."""

    def loop(self, code, seconds, beside=False):
        restarts, now, starts = Restarts(1800), 0.0, 0
        while now < seconds:
            if not restarts.died("x", code, now, beside):
                return starts, True, now
            while not restarts.due("x", now):
                now += 0.1
            starts += 1
        return starts, False, now

    def test_trouble_that_may_pass_ends_the_run_after_its_patience(self):
        self.assertFalse(self.loop(5, 120)[1])
        starts, ended, now = self.loop(5, 7200)
        self.assertTrue(ended)
        self.assertTrue(1800 <= now <= 1920 and starts >= 35, (now, starts))

    def test_what_would_end_again_ends_the_run_at_once_unless_another_lives(self):
        for code in (2, 4, 7):
            self.assertEqual(self.loop(code, 120)[:2], (0, True))
            starts, ended, _ = self.loop(code, 36000, beside=True)
            self.assertFalse(ended)
            self.assertLess(starts, 80)

    def test_a_committed_step_forgives(self):
        restarts = Restarts(1800)
        for now in range(0, 36000, 600):
            self.assertTrue(restarts.died("x", -9, now))
            self.assertTrue(restarts.due("x", now + 0.2))
            restarts.progress()


@unittest.skipUnless(ray, "Ray is not installed")
class RanksTest(unittest.TestCase):
    class Rank:
        def __init__(self, exit_code):
            self.name, self.health, self.stopped = "learner", Health(exit_code), False

        def look(self):
            return True

        def stop(self):
            self.stopped = True

    def test_a_rank_that_ends_well_before_the_first_is_no_death(self):
        from oxbow.cluster.fleet import Fleet

        fleet = Fleet.__new__(Fleet)
        fleet._buffers, fleet._rewards, fleet._told = [], [], ()
        fleet._ranks = [self.Rank(None), self.Rank(0)]
        self.assertIsNone(fleet._look_at_ranks())
        self.assertFalse(any(rank.stopped for rank in fleet._ranks))
        for code in (0, 8, 9):  # All steps done, a rule, a request to end.
            fleet._ranks[0].health = Health(code)
            self.assertEqual(fleet._look_at_ranks(), code)


class StartRecordTest(unittest.TestCase):
    def test_a_start_is_a_line_as_oxbow_train_writes_it(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            oxbow = folder / "oxbow"
            oxbow.write_text("#!/bin/sh\n[ \"$*\" = '--version --json' ] && echo '{\"version\": \"0.1.0\", \"git\": \"1c22fed0a1\"}'\n")
            oxbow.chmod(0o755)
            (folder / "config.resolved.yaml").write_text("run:\n  seed: 0   # default\n  steps: 9   # recipe b\n  name: x   # recipe a/b.yaml\n"
                                                         "  text: \"no # recipe\"   # --set\nbatch:\n  groups: 4   # recipe b\n")
            append_start(folder, oxbow, ["oxbow-ray", "my run.yaml", "--set", "run.steps=9"], False)
            append_start(folder, oxbow, ["oxbow-ray", "my run.yaml", "--resume"], True)
            first, second = [json.loads(line) for line in (folder / "starts.jsonl").read_text().splitlines()]
        self.assertEqual(list(first), ["time", "command", "recipe", "version", "host", "resumed"])
        self.assertRegex(first["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
        self.assertEqual(first["command"], "oxbow-ray 'my run.yaml' --set run.steps=9")
        self.assertEqual((first["recipe"], first["version"]), ("a/b.yaml, b", "0.1.0 (1c22fed0a1)"))
        self.assertEqual((first["resumed"], second["resumed"]), (False, True))

    def test_a_run_without_a_recipe_names_none(self):
        self.assertEqual(recipes_of("run:\n  seed: 0   # default\n  steps: 9   # run.yaml:2\n"), [])


@unittest.skipUnless(ray and built("oxbow"), "Ray is not installed, or OXBOW_BUILD is no build of oxbow")
class ClusterTest(unittest.TestCase):
    def setUp(self):
        self.cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 4})
        self.addCleanup(self.cluster.shutdown)
        self.second = self.cluster.add_node(num_cpus=4)
        folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def start(self, *settings):
        words = [word for setting in (f"run.directory={self.folder}", "run.name=run", "eval.images=8", "batch.groups=4",
                                      *settings) for word in ("--set", setting)]
        child = subprocess.Popen(
            [sys.executable, "-u", "-m", "oxbow.cluster.command", "configs/digits.yaml", "--address",
             self.cluster.address, "--bin", str(Path(built("oxbow")).parent), "--plaintext", *words],
            cwd=CHECKOUT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(child.stdout.close)
        self.addCleanup(child.kill)
        timer = threading.Timer(PATIENCE, child.kill)
        timer.start()
        self.addCleanup(timer.cancel)
        return child

    def read_until(self, child, *texts):
        """Its output up to the first line that has one of the texts."""
        told = ""
        for line in child.stdout:
            told += line
            if any(text in line for text in texts):
                return told
        self.fail(told)

    def test_a_run_goes_on_without_a_node_and_uses_one_that_comes(self):
        child = self.start(f"run.steps={STEPS}")
        told = self.read_until(child, "joins") + self.read_until(child, "joins")
        self.assertEqual(told.count("joins"), 2, told)
        self.cluster.remove_node(self.second, allow_graceful=False)
        # If the node had the buffer or a reward server too, that may be seen first: then all ranks and workers start again.
        self.read_until(child, "is gone with its node", "ended with -9")
        self.cluster.add_node(num_cpus=4)
        self.read_until(child, "joins")
        rest = child.stdout.read()
        self.assertEqual(child.wait(), 0, rest)
        run = Run(self.folder / "run")
        self.assertEqual(run.steps, STEPS)
        self.assertTrue((run.directory / "report.html").exists())
        workers = {group["worker"] for line in (run.directory / "steps.jsonl").read_text().splitlines()
                   for group in json.loads(line)["groups"]}
        self.assertGreaterEqual(len(workers), 2)
        self.assert_head(run.directory)

    def assert_head(self, directory):
        """How the run was started is in its directory and in the head of its report."""
        (start,) = [json.loads(line) for line in (directory / "starts.jsonl").read_text().splitlines()]
        self.assertTrue(start["command"].startswith("oxbow-ray configs/digits.yaml --address "), start)
        report = (directory / "report.html").read_text()
        for text in (start["recipe"], start["version"], "oxbow-ray configs/digits.yaml"):
            self.assertTrue(text and text in report, start)

    def test_several_buffers_and_ranks_train_one_run(self):
        child = self.start(f"run.steps={SHORT_STEPS}", "services.replay_shards=2", "learner.ranks=2", "replay.fraction=0.25")
        told = child.stdout.read()
        self.assertEqual(child.wait(), 0, told)
        self.assertNotIn("is started again", told)
        run = Run(self.folder / "run")
        self.assertEqual(run.steps, SHORT_STEPS)
        self.assert_head(run.directory)
        self.assertTrue((run.directory / "logs/learner-1.log").exists())
        for shard in range(2):  # Each has the prompts of its own, and both have some.
            listed = subprocess.run([built("oxbow"), "replay", "list", "--run", run.directory, "--shard", str(shard), "--format",
                                     "json"], capture_output=True, text=True, check=True)
            self.assertIn('"entry"', listed.stdout)


if __name__ == "__main__":
    unittest.main()
