#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A long run with a fault every half minute, compared with runs without faults.

    tests/chaos/soak.py BUILD [--minutes 90] [--every 30] [--seed 1] [--band 3] [--out DIR] [-- flags of `oxbow train`]

First `--band` runs without faults, of --band-steps steps each, give the band of the reward. Then one run goes on for
--minutes, and every --every seconds a process drawn from the seed is killed with -9 or stopped for some seconds. Judged:

  reward     mean over the same steps as the band's, and over each later stretch of as many steps, not below the band
  steps      every step is committed once, in order, in the history that the step log leaves
  end        SIGINT ends the run with a checkpoint, and a restart of the buffer's checker finds no damaged entry
  memory     the resident memory of each kind of process does not grow: the last third's median is at most 15 % (and
             32 MiB) above the middle third's, among processes of at least two minutes
The last line is a summary; the exit code is 1 if a judgement failed.
"""
import argparse
import json
import os
import pathlib
import random
import shutil
import signal
import statistics
import subprocess
import sys
import time

SOURCE = pathlib.Path(__file__).resolve().parent.parent.parent
KINDS = ("learner", "rollout_worker", "replay_buffer", "reward_server")
SETTINGS = ["eval.every=0", "services.rollout_workers=2", "services.reward_servers=2", "services.lease_seconds=5",
            "checkpoint.every=20", "off_policy.staleness_max=1", "optimizer.learning_rate=1.0e-4", "replay.fraction=0.25"]


def start(args, name, steps, seed):
    command = [args.build / "bin/oxbow", "train", SOURCE / "configs/recipes/digits-op-grpo.yaml", "--no-progress"]
    paths = [f"model.path={SOURCE}/models/digits", f"prompts.train={SOURCE}/configs/prompts/digits_train.txt",
             f"prompts.eval={SOURCE}/configs/prompts/digits_eval.txt", f"run.directory={args.out}", f"run.name={name}",
             f"run.steps={steps}", f"run.seed={seed}"]
    for setting in SETTINGS + paths:
        command += ["--set", setting]
    log = open(args.out / f"{name}.log", "w")
    return subprocess.Popen([str(c) for c in command + args.flags], stdout=log, stderr=log)


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
    """Processes under a process by kind, its grandchildren (ranks) included."""
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
        if kind and int(rest[1]) == pid:
            found[kind].append(int(entry.name))
    return found


def resident(pid):
    try:
        text = pathlib.Path(f"/proc/{pid}/status").read_text()
        return int(text.split("VmRSS:")[1].split()[0]) / 1024
    except (OSError, IndexError):
        return 0


def disturb(process, draw):
    """One fault; returns what was done."""
    there = children(process.pid)
    kind = draw.choice([k for k in KINDS if there[k]] or [None])
    if kind is None:
        return "nothing was there"
    pid = draw.choice(there[kind])
    try:
        if draw.random() < 0.6:
            os.kill(pid, signal.SIGKILL)
            return f"kill {kind}"
        os.kill(pid, signal.SIGSTOP)
        time.sleep(draw.uniform(1, 8))
        os.kill(pid, signal.SIGCONT)
        return f"stop {kind}"
    except ProcessLookupError:
        return f"{kind} was gone"


def soak(args, process):
    draw, end = random.Random(args.seed), time.monotonic() + 60 * args.minutes
    faults, memory, alive = {}, {kind: [] for kind in KINDS}, {}
    next_fault = time.monotonic() + args.every
    while time.monotonic() < end and process.poll() is None:
        time.sleep(2)
        now = time.monotonic()
        for kind, pids in children(process.pid).items():
            for pid in pids:
                alive.setdefault(pid, now)
                if now - alive[pid] > 120:
                    memory[kind].append((now, resident(pid)))
        if now >= next_fault:
            what = disturb(process, draw)
            faults[what] = faults.get(what, 0) + 1
            next_fault += args.every
    return faults, memory


def judge_memory(memory):
    problems = []
    for kind, samples in memory.items():
        third = len(samples) // 3
        if third < 10:
            continue
        middle = statistics.median(m for _, m in samples[third:2 * third])
        last = statistics.median(m for _, m in samples[2 * third:])
        print(f"memory {kind}: {middle:.0f} MiB in the middle third, {last:.0f} MiB in the last")
        if last > max(1.15 * middle, middle + 32):
            problems.append(f"memory of {kind} grows: {middle:.0f} -> {last:.0f} MiB")
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
    parser.add_argument("--minutes", type=float, default=90)
    parser.add_argument("--every", type=float, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--band", type=int, default=3)
    parser.add_argument("--band-steps", type=int, default=200)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("/tmp/oxbow_soak"))
    cut = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    args = parser.parse_args(sys.argv[1:cut])
    args.flags = sys.argv[cut + 1:]  # For `oxbow train`.
    args.build = args.build.absolute()
    shutil.rmtree(args.out, ignore_errors=True)
    args.out.mkdir(parents=True)
    band = []
    for i in range(args.band):
        if start(args, f"band{i}", args.band_steps, i).wait() != 0:
            sys.exit(f"a run without faults failed: {args.out}/band{i}.log")
        band.append(statistics.mean(rewards(args.out / f"band{i}").values()))
    print("band without faults: " + " ".join(f"{b:.4f}" for b in band), flush=True)
    process = start(args, "soak", 10**7, args.band)
    faults, memory = soak(args, process)
    print("faults: " + ", ".join(f"{n} x {what}" for what, n in sorted(faults.items())))
    problems = [] if process.poll() is None else [f"the run ended by itself with {process.returncode}"]
    process.send_signal(signal.SIGINT)
    code = process.wait(timeout=300)
    if code != 130:
        problems.append(f"SIGINT ended the run with {code}")
    run = args.out / "soak"
    verify = subprocess.run([args.build / "bin/oxbow", "replay", "verify", "--run", run], capture_output=True, text=True)
    print(verify.stdout.strip().splitlines()[-1] if verify.stdout.strip() else verify.stderr.strip())
    if verify.returncode != 0:
        problems.append("the replay buffer holds a damaged entry")
    problems += judge_steps(run) + judge_memory(memory)
    problems += judge_rewards(rewards(run), band, args.band_steps) if band else []
    for problem in problems:
        print(f"FAIL {problem}")
    print(f"soak: {args.minutes:g} minutes, {sum(faults.values())} faults, {len(rewards(run))} steps, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
