#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A week on sixty-four preemptible GPUs in an hour: one long run under the faults of a week, compared with runs without.

    tests/chaos/soak.py BUILD [--steps 20000] [--seed 1] [--band 3] [--out DIR] [-- flags of `oxbow train`]

First `--band` runs without faults, of --band-steps steps each, give the band of the reward. Then one run has --steps steps,
and each kind of fault of WEEK comes as a Poisson process in committed steps, as often in all as in a week. A learner that is
evicted drains; `oxbow train` ends with 9, and `oxbow resume` goes on, as a cluster does. Judged:

  end        the run ends with 0 and all its steps
  steps      every step is committed once, in order, in the history that the step log leaves, and an eviction loses none
  reward     mean over the same steps as the band's, and over each later stretch of as many steps, not below the band
  memory     the resident memory of each kind of process does not grow: the last tenth's median is at most 15 % (and
             32 MiB) above that of the second to fifth tenth, among processes of at least two minutes
  buffer     no damaged entry
The last line is a summary; the exit code is 1 if a judgement failed. The disk that fills is a tmpfs, which root may mount.
"""
import argparse
import contextlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time

SOURCE = pathlib.Path(__file__).resolve().parent.parent.parent
KINDS = ("learner", "rollout_worker", "replay_buffer", "reward_server")
SETTINGS = ["eval.every=0", "services.rollout_workers=3", "services.reward_servers=2", "services.lease_seconds=5",
            "checkpoint.every=50", "off_policy.staleness_max=1", "optimizer.learning_rate=1.0e-6", "replay.fraction=0.25",
            "batch.groups=4", "batch.group_size=4", "sampling.steps=6", "sampling.sde_count=3", "services.groups_in_flight=8"]
# How often in a week, on 56 GPUs of workers and 8 of the learner, all preemptible: a worker's GPU is taken away every
# third day.
WEEK = {"a worker dies": 130, "a worker hangs": 20, "a worker turns bad": 6, "a learner dies": 6, "the learner is evicted": 14,
        "a reward server dies": 10, "the buffer dies": 4, "the disk fills": 3}
END_MAX_S = 300


def start(args, name, steps, seed, directory):
    command = [args.build / "bin/oxbow", "train", SOURCE / "configs/recipes/digits-op-grpo.yaml", "--no-progress"]
    paths = [f"model.path={SOURCE}/models/digits", f"prompts.train={SOURCE}/configs/prompts/digits_train.txt",
             f"prompts.eval={SOURCE}/configs/prompts/digits_eval.txt", f"run.directory={directory}", f"run.name={name}",
             f"run.steps={steps}", f"run.seed={seed}"]
    for setting in SETTINGS + paths:
        command += ["--set", setting]
    return launch(args, name, command + args.flags)


def launch(args, name, command):
    log = open(args.out / f"{name}.log", "a")
    return subprocess.Popen([str(c) for c in command], stdout=log, stderr=log)


def rewards(run):
    """The reward of each committed step; a later line of a step replaces an earlier one."""
    found = {}
    path = run / "metrics.jsonl"
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            row = json.loads(line)
        except ValueError:
            continue  # A crash may cut a line.
        if row.get("train/reward_mean") is not None:
            found[row["step"]] = row["train/reward_mean"]
    return found


def children(pid):
    """Processes under a process by kind, its grandchildren (ranks) included; not those that wait to be reaped."""
    found = {kind: [] for kind in KINDS}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat = (entry / "stat").read_text()
            name, rest = stat[stat.index("(") + 1:stat.rindex(")")], stat[stat.rindex(")") + 2:].split()
        except OSError:
            continue
        kind = next((k for k in KINDS if k.startswith(name) or name == k[:15]), None)
        if kind and int(rest[1]) == pid and rest[0] != "Z":
            found[kind].append(int(entry.name))
    return found


def resident(pid):
    try:
        text = pathlib.Path(f"/proc/{pid}/status").read_text()
        return int(text.split("VmRSS:")[1].split()[0]) / 1024
    except (OSError, IndexError):
        return 0


def takes_signals(pid):
    """Whether the process has come to main: before, a stop signal kills it as any program."""
    try:
        text = pathlib.Path(f"/proc/{pid}/status").read_text()
        return int(text.split("SigBlk:")[1].split()[0], 16) >> (signal.SIGTERM - 1) & 1 == 1
    except (OSError, IndexError):
        return False


class Disk:
    """A tmpfs that can be filled up."""

    def __init__(self, path):
        path.mkdir()
        self.path = path
        self.mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4g", "tmpfs", path]).returncode == 0

    def fill_for(self, seconds):
        rest = self.path / "rest"
        with open(rest, "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(1 << 20))
            except OSError:
                pass
        time.sleep(seconds)
        rest.unlink()

    def end(self):
        if self.mounted:
            subprocess.run(["umount", "-l", self.path])


def committed(run):
    """Learner steps of the last line of metrics.jsonl; 0: none."""
    try:
        with open(run / "metrics.jsonl", "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - (1 << 16)))
            lines = file.read().split(b"\n")[:-1]
        return json.loads(lines[-1])["step"] if lines else 0
    except (OSError, ValueError):
        return 0


class Week:
    """The run under faults. `problems` says what went wrong."""

    def __init__(self, args, disk):
        self.args, self.disk, self.run = args, disk, disk.path / "week"
        self.draw = random.Random(args.seed)
        self.kinds = {kind: n for kind, n in WEEK.items() if kind != "the disk fills" or disk.mounted}
        self.due = {kind: self.gap(kind) for kind in self.kinds}
        self.counts, self.problems = dict.fromkeys(self.kinds, 0), []
        self.memory, self.alive = {kind: [] for kind in KINDS}, {}
        self.process = start(args, "week", args.steps, args.band, disk.path)

    def gap(self, kind):
        return self.draw.expovariate(self.kinds[kind] / self.args.steps)

    def signal(self, kind, number, index=None):
        """The process that was hit: the one with that number in its name, or any; None if there is none."""
        for pid in self.draw.sample(there := children(self.process.pid)[kind], len(there)):
            try:
                log = os.readlink(f"/proc/{pid}/fd/2")
                if index is None or log.endswith(f"{kind}-{index}.log"):
                    os.kill(pid, number)
                    return pid
            except OSError:
                continue
        return None

    def disturb(self, kind):
        """Whether it could be done now."""
        if kind == "the disk fills":
            self.disk.fill_for(20)
            return True
        if kind == "the learner is evicted":
            return self.evict()
        if kind == "a worker hangs":
            pid = self.signal("rollout_worker", signal.SIGSTOP)
            if pid is not None:
                time.sleep(self.draw.uniform(5, 15))
                with contextlib.suppress(ProcessLookupError):  # The run may have ended meanwhile.
                    os.kill(pid, signal.SIGCONT)
            return pid is not None
        if kind == "a worker turns bad":
            return self.turn_bad()
        of = {"a worker dies": "rollout_worker", "a learner dies": "learner", "a reward server dies": "reward_server",
              "the buffer dies": "replay_buffer"}[kind]
        return self.signal(of, signal.SIGKILL) is not None

    def turn_bad(self):
        """The GPU of one worker is lost: its process ends with each new start, for some time."""
        worker = self.draw.randrange(3)
        bad = self.signal("rollout_worker", signal.SIGABRT, worker)
        end = time.monotonic() + self.draw.uniform(15, 30)
        while bad is not None and time.monotonic() < end and self.process.poll() is None:
            self.signal("rollout_worker", signal.SIGABRT, worker)
            time.sleep(0.5)
        return bad is not None

    def evict(self):
        learner = children(self.process.pid)["learner"]
        if not learner or not takes_signals(learner[0]) or self.signal("learner", signal.SIGTERM) is None:
            return False
        try:
            code = self.process.wait(END_MAX_S)
        except subprocess.TimeoutExpired:
            self.problems.append("an evicted learner did not end the run")
            return True
        left = committed(self.run)
        if code != 9 and left < self.args.steps:
            self.problems.append(f"an eviction at step {left} ended the run with {code}")
        if left >= self.args.steps:
            return True
        self.process = launch(self.args, "week", [self.args.build / "bin/oxbow", "resume", self.run, "--no-progress"])
        self.resumed(left)
        return True

    def resumed(self, left):
        """The run goes on from the last step that was committed."""
        said = f"resumed at step {left} "
        end = time.monotonic() + END_MAX_S
        while time.monotonic() < end and self.process.poll() is None:
            times = re.findall(r"resumed at step (\d+) ", (self.args.out / "week.log").read_text())
            if len(times) > self.counts["the learner is evicted"]:
                if times[-1] != str(left):
                    self.problems.append(f"evicted at step {left}, resumed at {times[-1]}")
                return
            time.sleep(0.2)
        self.problems.append(f"nobody said: {said}")

    def sample_memory(self, at):
        now = time.monotonic()
        for kind, pids in children(self.process.pid).items():
            for pid in pids:
                self.alive.setdefault(pid, now)
                if now - self.alive[pid] > 120:
                    self.memory[kind].append((at, resident(pid)))

    def live(self):
        while self.process.poll() is None:
            time.sleep(0.5)
            at = committed(self.run)
            self.sample_memory(at)
            for kind in self.kinds:
                if at >= self.due[kind] and self.process.poll() is None and self.disturb(kind):
                    self.counts[kind] += 1
                    self.due[kind] += self.gap(kind)
        if self.process.returncode != 0:
            self.problems.append(f"the run ended with {self.process.returncode} at step {committed(self.run)}")


def judge_memory(memory, steps):
    problems = []
    for kind, samples in memory.items():
        early = [m for at, m in samples if steps / 10 <= at < steps / 2]
        late = [m for at, m in samples if at >= 9 * steps / 10]
        if min(len(early), len(late)) < 10:
            print(f"memory {kind}: too few processes lived for two minutes")
            continue
        before, after = statistics.median(early), statistics.median(late)
        print(f"memory {kind}: {before:.0f} MiB from the second to the fifth tenth, {after:.0f} MiB in the last")
        if after > max(1.15 * before, before + 32):
            problems.append(f"memory of {kind} grows: {before:.0f} -> {after:.0f} MiB")
    return problems


def judge_rewards(found, band, steps):
    low, high = min(band), max(band)
    problems, margin = [], max(high - low, 0.02)
    last = max(found, default=0)
    for first in range(1, last - steps + 2, steps):
        mean = statistics.mean(found[s] for s in range(first, first + steps) if s in found)
        print(f"reward of steps {first} to {first + steps - 1}: {mean:.4f}")
        if mean < low - margin or (first == 1 and mean > high + margin):
            problems.append(f"reward {mean:.4f} of steps {first}.. outside of the band {low:.4f} to {high:.4f}, +- {margin:.4f}")
    if last < steps:
        problems.append(f"only {last} steps")
    return problems


def judge_steps(run):
    """The committed history: a row of step s removes earlier rows of step s or later."""
    history = []
    for line in (run / "steps.jsonl").read_text().splitlines():
        step = json.loads(line)["step"]
        while history and history[-1] >= step:
            history.pop()
        history.append(step)
    return [] if history == list(range(len(history))) else ["the step log lacks a step or has one twice"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--band", type=int, default=3)
    parser.add_argument("--band-steps", type=int, default=500)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("/tmp/oxbow_soak"))
    cut = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    args = parser.parse_args(sys.argv[1:cut])
    args.flags = sys.argv[cut + 1:]  # For `oxbow train`.
    args.build = args.build.absolute()
    shutil.rmtree(args.out, ignore_errors=True)
    args.out.mkdir(parents=True)
    band = []
    for i in range(args.band):
        if start(args, f"band{i}", args.band_steps, i, args.out).wait() != 0:
            sys.exit(f"a run without faults failed: {args.out}/band{i}.log")
        band.append(statistics.mean(rewards(args.out / f"band{i}").values()))
    print("band without faults: " + " ".join(f"{b:.4f}" for b in band), flush=True)
    disk = Disk(args.out / "disk")
    if not disk.mounted:
        print("skip  the disk fills: a tmpfs cannot be mounted")
    begin = time.monotonic()
    week = Week(args, disk)
    week.live()
    minutes = (time.monotonic() - begin) / 60
    print("faults: " + ", ".join(f"{n} x {what}" for what, n in week.counts.items()))
    problems = week.problems
    verify = subprocess.run([args.build / "bin/oxbow", "replay", "verify", "--run", week.run], capture_output=True, text=True)
    print(verify.stdout.strip().splitlines()[-1] if verify.stdout.strip() else verify.stderr.strip())
    if verify.returncode != 0:
        problems.append("the replay buffer holds a damaged entry")
    problems += judge_steps(week.run) + judge_memory(week.memory, args.steps)
    problems += judge_rewards(rewards(week.run), band, args.band_steps) if band else []
    steps = committed(week.run)
    disk.end()
    for problem in problems:
        print(f"FAIL {problem}")
    print(f"soak: {minutes:.1f} minutes, {sum(week.counts.values())} faults, {steps} steps, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
