#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether two builds of oxbow train the same bits: tools/same_results.py OLD NEW [CONFIG] [--set KEY=VALUE ...]

OLD and NEW are build directories, or revisions of this repository, which are then built beside it (--builds). Each trains
CONFIG once, deterministically: an adapter of the embedded SD3 model with replay, guidance and evaluations, unless told
otherwise. Compared are every value of metrics.jsonl that does not measure time or the fleet, and the bytes of every file of
weights. What differs is printed, the first step of it first; the exit code is 1 then, 2 if a build did not train.
"""
import argparse
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROGRAMS = ["oxbow", "oxbow_spawn", "learner", "rollout_worker", "replay_buffer", "reward_server"]
SETTINGS = ["run.steps=6", "batch.groups=4", "batch.group_size=4", "model.trained=lora", "sampling.guidance=2", "eval.every=3",
            "eval.images=8"]
DETERMINISTIC = ["run.deterministic=true", "off_policy.staleness_max=0"]
UNLIKE = ("time/", "throughput/", "rollout/", "train/communication_")  # Seconds, and who did what.


def fail(why):
    sys.stderr.write(f"same_results: {why}\n")
    sys.exit(2)


def built(name, builds):
    """The build directory that `name` is, or one of the revision that it names, built if need be."""
    if (pathlib.Path(name) / "bin/oxbow").exists():
        return pathlib.Path(name).absolute()
    found = subprocess.run(["git", "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}"], cwd=ROOT, capture_output=True,
                           text=True)
    if found.returncode != 0:
        fail(f"neither a build with bin/oxbow nor a revision: {name}")
    revision = found.stdout.strip()[:12]
    tree = builds / revision
    if not tree.exists():
        subprocess.run(["git", "worktree", "add", "--detach", str(tree), revision], cwd=ROOT, check=True)
        (tree / ".deps").symlink_to(ROOT / ".deps")
    subprocess.run(["cmake", "--preset", "release"], cwd=tree, check=True, stdout=sys.stderr)
    subprocess.run(["cmake", "--build", "build/release", "-j", str(os.cpu_count()), "--target", *PROGRAMS], cwd=tree, check=True,
                   stdout=sys.stderr)
    return tree / "build/release"


def trained(build, config, settings, directory):
    """The results of a run of this build: rows of metrics.jsonl without times, and the digest of each file of weights."""
    command = [str(build / "bin/oxbow"), "train", str(config), "--no-progress"]
    for setting in settings + [f"run.directory={directory}", "run.name=run"]:
        command += ["--set", setting]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if ended.returncode != 0:
        fail(f"{build} did not train: exit code {ended.returncode}\n{ended.stderr.strip()}")
    run = directory / "run"
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    rows = [{name: value for name, value in row.items() if not name.startswith(UNLIKE)} for row in rows]
    files = {str(file.relative_to(run)): hashlib.sha256(file.read_bytes()).hexdigest()
             for file in sorted(run.glob("weights/**/*.safetensors"))}
    if not rows or not files:
        fail(f"{build} left no metrics or no weights")
    return rows, files


def differences(old, new):
    """One line for each value and each file that differs, in the order of steps."""
    (old_rows, old_files), (new_rows, new_files) = old, new
    lines = []
    if len(old_rows) != len(new_rows):
        lines.append(f"{len(old_rows)} rows of metrics.jsonl, then {len(new_rows)}")
    for old_row, new_row in zip(old_rows, new_rows):
        for name in sorted(old_row.keys() | new_row.keys()):
            before, after = old_row.get(name, "absent"), new_row.get(name, "absent")
            if before != after and not (before != before and after != after):  # NaN is NaN.
                lines.append(f"step {old_row['step']}  {name}: {before!r}, then {after!r}")
    for name in sorted(old_files.keys() | new_files.keys()):
        before, after = old_files.get(name, "absent"), new_files.get(name, "absent")
        if before != after:
            lines.append(f"{name}: sha256 {before[:16]}, then {after[:16]}")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("config", nargs="?", type=pathlib.Path, default=ROOT / "configs/digits.yaml")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of both runs")
    parser.add_argument("--set-new", action="append", default=[], metavar="KEY=VALUE",
                        help="a setting of the second run alone, to see that a difference is found")
    parser.add_argument("--builds", type=pathlib.Path, default=ROOT.parent / "same_results", help="where revisions are built")
    flags = parser.parse_args()
    builds = [built(name, flags.builds.absolute()) for name in (flags.old, flags.new)]
    settings = SETTINGS + flags.set + DETERMINISTIC
    with tempfile.TemporaryDirectory() as scratch:
        runs = []
        for build, more in zip(builds, ([], flags.set_new)):
            directory = pathlib.Path(scratch) / str(len(runs))
            directory.mkdir()
            runs.append(trained(build, flags.config, settings + more, directory))
    lines = differences(*runs)
    shown = 40
    for line in lines[:shown] + ([f"and {len(lines) - shown} more"] if len(lines) > shown else []):
        print(line)
    values = sum(len(row) for row in runs[0][0])
    verdict = f"{len(lines)} of them differ" if lines else "the same bits"
    print(f"same results: {len(runs[0][0])} rows, {values} values, {len(runs[0][1])} files of weights: {verdict}")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
