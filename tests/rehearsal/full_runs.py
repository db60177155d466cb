#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Short runs of all programs in which one allocation on the GPU of one of them fails: tests/rehearsal/full_runs.py BUILD

A run ends with exit code 0, where a program went on with fewer rows, or with exit code 7 and one line that says what to
set. It is not started again. The last line is a summary; the exit code is 1 if a run ended otherwise.

There are several kinds of runs: all weights train, or a LoRA; with recomputation; with all that can be in host memory
there; with the average alone. Seven allocations of each fail in turn, spread over the run. With `--every 10`, every tenth
of a run does, first the learner's and then the worker's; what was cut off goes on with `--kind`, `--program` and `--first`.
"""
# Promise: A full GPU is one line.
import argparse
import concurrent.futures
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

PROGRAMS = ["learner", "rollout_worker"]
SETTINGS = ["run.steps=2", "batch.updates=1", "batch.groups=2", "batch.group_size=4", "batch.rows_per_pass=20", "eval.every=2",
            "eval.images=4", "checkpoint.every=2", "method.kl_weight=0.01", "method.kl_space=mean", "model.device=cuda"]
LORA = ["model.trained=lora", "model.lora.rank=8", "model.lora.alpha=16"]
KINDS = {"all": [], "lora": LORA, "recompute": ["model.memory=recompute"], "average": ["model.memory=offload_average"],
         "offload": ["model.memory=recompute + offload_optimizer + offload_average + offload_weights"],
         "lora_int8": LORA + ["model.memory=recompute + int8 + offload_optimizer", "model.compute_dtype=bf16"],
         "lora_offload": LORA + ["model.memory=recompute + offload_weights"]}
# Allocations of a run that fail: parts of their number.
SAMPLE = {"learner": [0, 0.02, 0.3, 0.6, 0.99], "rollout_worker": [0.1, 0.8]}


def train(build, root, kind, name, **environment):
    """Exit code and lines of stderr of a run of this name; no code if it has not ended after 200 s."""
    command = [build / "rehearsal/bin/oxbow", "train", "configs/digits.yaml", "--no-progress"]
    for setting in SETTINGS + KINDS[kind] + [f"run.directory={root}", f"run.name={name}"]:
        command += ["--set", setting]
    environment = os.environ | {"OXBOW_REHEARSAL_DEVICES": "1"} | environment
    try:
        ended = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=200, env=environment)
    except subprocess.TimeoutExpired as late:
        return None, (late.stderr or b"").decode().splitlines() + ["still running after 200 s"]
    return ended.returncode, ended.stderr.rstrip().splitlines()


def allocations(build, root, kind):
    """How many allocations each program makes in a run of this kind in which none fails."""
    log = pathlib.Path(root) / f"{kind}-counts"
    log.mkdir()
    code, lines = train(build, root, kind, f"{kind}-whole", OXBOW_REHEARSAL_LOG=str(log))
    if code != 0:
        sys.exit("\n".join(lines + [f"the run {kind} without a failure ended with exit code {code}"]))
    counts = {program: 0 for program in PROGRAMS}
    for file in log.glob("*.json"):
        logged = json.loads(file.read_text())
        program = pathlib.Path(logged["program"]).name
        counts[program] = max([counts.get(program, 0)] + [device["allocations"] for device in logged["devices"].values()])
    return counts


def check(build, root, kind, program, failing):
    """Whether the run ended as it should, and the lines that say how it did."""
    name = f"{kind}-{program}-{failing}"
    code, lines = train(build, root, kind, name, OXBOW_REHEARSAL_FAIL=str(failing), OXBOW_REHEARSAL_FAIL_IN=program)
    last = lines[-1] if lines else ""
    told = code == 7 and all(words in last for words in ("out of memory: ", "tried to allocate", "in use at once", "ended with exit code 7"))
    good = (code == 0 or told) and not any("terminate called" in line or "restart" in line for line in lines)
    said = [f"{'ok  ' if good else 'FAIL'} {kind}: allocation {failing} of {program} fails: exit code {code}  {last[:150] if code else ''}"]
    if good:
        shutil.rmtree(pathlib.Path(root) / name, ignore_errors=True)
    return good, said if good else said + ["    " + line for line in lines[-12:]]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=lambda text: pathlib.Path(text).absolute())
    parser.add_argument("--every", type=int, metavar="N", help="let every N-th allocation of a run fail, not seven of them")
    parser.add_argument("--kind", choices=KINDS, help="only runs of this kind")
    parser.add_argument("--program", choices=PROGRAMS, help="only allocations of this one")
    parser.add_argument("--first", type=int, metavar="N", help="with --every: begin with this allocation")
    parser.add_argument("--last", type=int, metavar="N", help="with --every: end with this allocation")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="runs at a time")
    flags = parser.parse_args()
    os.chdir(pathlib.Path(__file__).resolve().parents[2])
    passed = failed = 0
    with tempfile.TemporaryDirectory() as root, concurrent.futures.ThreadPoolExecutor(flags.jobs) as pool:
        cases = []
        for kind in [flags.kind] if flags.kind else KINDS:
            for program, count in allocations(flags.build, root, kind).items():
                failing = [1 + int(part * (count - 1)) for part in SAMPLE[program]]
                if flags.every:
                    failing = range(flags.first or flags.every, min(flags.last or count, count) + 1, flags.every)
                cases += [(kind, program, number) for number in failing if flags.program in (None, program)]
        for good, lines in pool.map(lambda case: check(flags.build, root, *case), cases):
            passed += good
            failed += not good
            print("\n".join(lines), flush=True)
    print(f"full: {passed} passed, {failed} failed")
    return failed > 0 or passed == 0


if __name__ == "__main__":
    sys.exit(main())
