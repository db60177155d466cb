#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures whole training runs of the built binaries; prints Markdown tables for docs/lab.

  bench/measure_training.py BUILD learning [--seeds 3 --first-seed 0] reward and strict by step, seconds per step
  bench/measure_training.py BUILD overhead [--rounds 5]  images/s of the services against one process
  bench/measure_training.py BUILD memory                 peak resident size of every process of a run
  bench/measure_training.py BUILD exposed [--rounds 3]   what the learner waits for rewards on plates, as a share of their time
  bench/measure_training.py BUILD ranks [--rounds 5]     an update by two ranks against one, and the messages between ranks

BUILD is a build directory (build/release). Runs are written to a temporary directory and removed.
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent


def train(build, directory, name, overrides, sampler=None, config="configs/recipes/digits-op-grpo.yaml"):
    """Runs `oxbow train CONFIG`; returns (metrics rows, wall seconds)."""
    command = [str(build / "bin" / "oxbow"), "train", config,
               "--set", f"run.name={name}", "--set", f"run.directory={directory}"]
    for override in overrides:
        command += ["--set", override]
    start = time.monotonic()
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if sampler:
        threading.Thread(target=sampler, args=(process.pid,), daemon=True).start()
    output, _ = process.communicate()
    wall = time.monotonic() - start
    if process.returncode != 0:
        sys.exit(f"run {name} failed with {process.returncode}:\n{output[-3000:]}")
    with open(pathlib.Path(directory) / name / "metrics.jsonl", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines], wall


def learning(build, directory, first, seeds):
    print("| seed | held-out reward by step | strict at end | speckle | step reaching .90 | s/step (mean) | whole run, s |")
    print("|---|---|---|---|---|---|---|")
    for seed in range(first, first + seeds):
        rows, wall = train(build, directory, f"learning{seed}", [f"run.seed={seed}"])
        evaluations = [row for row in rows if row.get("eval/reward_mean") is not None]
        curve = " ".join(f"{row['eval/reward_mean']:.2f}".lstrip("0") for row in evaluations)
        reached = next((row["step"] for row in evaluations if row["eval/reward_mean"] >= .90), None)
        steps = [row for row in rows if row["step"] > 0]
        per_step = steps[-1]["time/wall_s"] / steps[-1]["step"]
        last = evaluations[-1]
        print(f"| {seed} | {curve} | {last['eval/reward_digits_strict_mean']:.2f} | {last['eval/speckle_mean']:.3f} | "
              f"{reached} | {per_step:.3f} | {wall:.1f} |", flush=True)


def overhead(build, directory, rounds):
    """Compares the services with the loop in one process: same model, groups, updates, rewards; no RPC."""
    ratios, rates = [], []
    for index in range(rounds):
        single = subprocess.run([str(build / "bin" / "single_process_loop"), "--steps", "40"], cwd=ROOT,
                                capture_output=True, text=True, check=True)
        alone = json.loads(single.stdout.splitlines()[-1])["images_per_second"]
        rows, _ = train(build, directory, f"overhead{index}", ["run.steps=40", "eval.every=0", "replay.fraction=0"])
        steps = [row for row in rows if row["step"] > 0]
        seconds = steps[-1]["time/wall_s"] - steps[9]["time/wall_s"]
        services = 64 * (steps[-1]["step"] - steps[9]["step"]) / seconds
        ratios.append(services / alone)
        rates.append((services, alone))
    print("| round | services, images/s | one process, images/s | ratio |")
    print("|---|---|---|---|")
    for index, ((services, alone), ratio) in enumerate(zip(rates, ratios)):
        print(f"| {index} | {services:.0f} | {alone:.0f} | {ratio:.2f} |")
    print(f"| median | | | {statistics.median(ratios):.2f} |")


def exposed(build, directory, rounds):
    """The engine's time that a step waits for: how much longer the learner waits for rollouts with the engine than with the
    task's own reader, over the time of all groups' scores. Runs of both in turns, 24 steps each, the first 4 left out."""
    print("| `off_policy.staleness_max` | seconds a step, engine and reader | the learner waits | scores of a group take | "
          "scores of a step | exposed share |")
    print("|---|---|---|---|---|---|")
    groups = 8
    for staleness in (0, 1):
        runs = {"ocr": [], "plates_reader": []}
        for index in range(rounds):
            for reward, steps in runs.items():
                rows, _ = train(build, directory, f"{reward}{staleness}{index}", [
                    f"run.seed={index}", "run.steps=24", "eval.every=0", f"off_policy.staleness_max={staleness}",
                    f"batch.groups={groups}", f"reward.terms=[{{name: {reward}, weight: 1}}]", "reward.observed=[plates_strict]"],
                    config="configs/plates.yaml")
                steps += [row for row in rows if row["step"] > 4]
        step, wait, group = ([statistics.median(row[key] for row in runs[reward]) for reward in runs]
                             for key in ("time/step_s", "time/wait_s", "rollout/reward_s_mean"))
        share = max(0, wait[0] - wait[1]) / (groups * group[0])
        print(f"| {staleness} ({rounds} pairs) | {step[0]:.2f} and {step[1]:.2f} | {wait[0]:.4f} and {wait[1]:.4f} s | "
              f"{1000 * group[0]:.0f} ms | {groups * group[0]:.2f} s | {share:.0%} |", flush=True)


RANK_MODES = {"full, sharded AdamW": ["model.trained=full"],
              "LoRA, overlapped buckets": ["model.trained=lora"],
              "full, deterministic ordered sum": ["model.trained=full", "run.deterministic=true"]}


def ranks(build, directory, rounds):
    """One rank and two ranks in turn, with the same batch; medians over steps 6-25, then over rounds, in ms."""
    warm = 5
    print("| mode | update by 1 rank | by 2 ranks | communication | exposed | exposed / update | 2 ranks / (1 rank / 2) |")
    print("|---|---|---|---|---|---|---|")
    for mode, overrides in RANK_MODES.items():
        measured = {key: [] for key in ("one", "two", "total", "exposed", "share", "ratio")}
        for index in range(rounds):
            updates = {}
            for count in (1, 2):
                rows, _ = train(build, directory, f"ranks{count}-{index}-{mode.split(',')[1].strip().split()[0]}",
                                ["run.steps=25", "eval.every=0", "checkpoint.every=0", "replay.fraction=0",
                                 f"learner.ranks={count}", *overrides])
                steps = [row for row in rows if row["step"] > warm]
                updates[count] = statistics.median(row["time/update_s"] for row in steps)
            median = {name: statistics.median(row[f"train/communication{key}_s"] for row in steps)
                      for name, key in (("total", ""), ("exposed", "_exposed"))}
            for name, value in (("one", updates[1]), ("two", updates[2]), *median.items(),
                                ("share", median["exposed"] / updates[2]), ("ratio", 2 * updates[2] / updates[1])):
                measured[name].append(value)
        at = {name: statistics.median(values) for name, values in measured.items()}
        print(f"| {mode} | {1e3 * at['one']:.0f} | {1e3 * at['two']:.0f} | {1e3 * at['total']:.1f} | "
              f"{1e3 * at['exposed']:.1f} | {at['share']:.2f} | {at['ratio']:.2f} |", flush=True)


def memory(build, directory):
    peaks = {}

    def sampler(parent):
        while pathlib.Path(f"/proc/{parent}").exists():
            for status in pathlib.Path("/proc").glob("[0-9]*/status"):
                try:
                    fields = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
                except OSError:
                    continue
                if fields.get("PPid", "").strip() == str(parent) or status.parent.name == str(parent):
                    name = fields["Name"].strip()
                    peak = int(fields.get("VmHWM", "0 kB").split()[0]) / 1024
                    peaks[name] = max(peak, peaks.get(name, 0))
            time.sleep(.2)

    train(build, directory, "memory", [], sampler)
    print("| process | peak resident, MB |")
    print("|---|---|")
    for name in sorted(peaks):
        print(f"| {name} | {peaks[name]:.0f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("what", choices=["learning", "overhead", "memory", "exposed", "ranks"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    build = arguments.build.resolve()
    directory = tempfile.mkdtemp(prefix="oxbow_bench_")
    os.environ.setdefault("NO_COLOR", "1")
    try:
        {"learning": lambda: learning(build, directory, arguments.first_seed, arguments.seeds),
         "overhead": lambda: overhead(build, directory, arguments.rounds),
         "memory": lambda: memory(build, directory),
         "exposed": lambda: exposed(build, directory, arguments.rounds),
         "ranks": lambda: ranks(build, directory, arguments.rounds)}[arguments.what]()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
