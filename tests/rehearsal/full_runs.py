#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Short runs of all programs in which one allocation on the GPU of one of them fails: tests/rehearsal/full_runs.py BUILD

A run ends with exit code 0, where a program went on with fewer rows, or with exit code 7 and one line that says what to
set. It is not started again. The last line is a summary; the exit code is 1 if a run ended otherwise.

Ten allocations fail in turn. With `--every 10`, every tenth of a run does, first the learner's and then the worker's; what
was cut off goes on with `--program` and `--first`.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

TEN = {"learner": [1, 50, 300, 1500, 6000, 12000], "rollout_worker": [1, 122, 500, 2000]}
SETTINGS = ["run.steps=3", "eval.every=0", "checkpoint.every=0", "batch.groups=2", "batch.group_size=4", "model.device=cuda"]


def train(build, root, name, **environment):
    """Exit code and lines of stderr of a run of this name; no code if it has not ended after 200 s."""
    command = [build / "rehearsal/bin/oxbow", "train", "configs/digits.yaml", "--no-progress"]
    for setting in SETTINGS + [f"run.directory={root}", f"run.name={name}"]:
        command += ["--set", setting]
    environment = os.environ | {"OXBOW_REHEARSAL_DEVICES": "1"} | environment
    try:
        ended = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=200, env=environment)
    except subprocess.TimeoutExpired as late:
        return None, (late.stderr or b"").decode().splitlines() + ["still running after 200 s"]
    return ended.returncode, ended.stderr.rstrip().splitlines()


def allocations(build, root):
    """How many allocations each program makes in a run in which none fails."""
    log = pathlib.Path(root) / "counts"
    log.mkdir()
    code, lines = train(build, root, "whole", OXBOW_REHEARSAL_LOG=str(log))
    if code != 0:
        sys.exit("\n".join(lines + [f"the run without a failure ended with exit code {code}"]))
    counts = {program: 0 for program in TEN}
    for file in log.glob("*.json"):
        logged = json.loads(file.read_text())
        program = pathlib.Path(logged["program"]).name
        counts[program] = max([counts.get(program, 0)] + [device["allocations"] for device in logged["devices"].values()])
    return counts


def check(build, root, program, failing):
    """Whether the run ended as it should, and the lines that say how it did."""
    name = f"{program}-{failing}"
    code, lines = train(build, root, name, OXBOW_REHEARSAL_FAIL=str(failing), OXBOW_REHEARSAL_FAIL_IN=program)
    last = lines[-1] if lines else ""
    told = code == 7 and "out of memory" in last and "ended with exit code 7" in last
    good = (code == 0 or told) and not any("terminate called" in line or "restart" in line for line in lines)
    said = [f"{'ok  ' if good else 'FAIL'} allocation {failing} of {program} fails: exit code {code}  {last[:150] if code else ''}"]
    if good:
        shutil.rmtree(pathlib.Path(root) / name, ignore_errors=True)
    return good, said if good else said + ["    " + line for line in lines[-12:]]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=lambda text: pathlib.Path(text).absolute())
    parser.add_argument("--every", type=int, metavar="N", help="let every N-th allocation of a run fail, not ten of them")
    parser.add_argument("--program", choices=TEN, help="only allocations of this one")
    parser.add_argument("--first", type=int, metavar="N", help="with --every: begin with this allocation")
    parser.add_argument("--last", type=int, metavar="N", help="with --every: end with this allocation")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="runs at a time")
    flags = parser.parse_args()
    os.chdir(pathlib.Path(__file__).resolve().parents[2])
    passed = failed = 0
    with tempfile.TemporaryDirectory() as root, concurrent.futures.ThreadPoolExecutor(flags.jobs) as pool:
        failing = TEN
        if flags.every:
            failing = {program: range(flags.first or flags.every, min(flags.last or count, count) + 1, flags.every)
                       for program, count in allocations(flags.build, root).items()}
        cases = [(program, number) for program in TEN if flags.program in (None, program) for number in failing[program]]
        for good, lines in pool.map(lambda case: check(flags.build, root, *case), cases):
            passed += good
            failed += not good
            print("\n".join(lines), flush=True)
    print(f"full: {passed} passed, {failed} failed")
    return failed > 0 or passed == 0


if __name__ == "__main__":
    sys.exit(main())
