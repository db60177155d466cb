#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A LoRA's learner and worker on one GPU have its base there once: tests/rehearsal/lent_base.py BUILD

A run that shares it makes the weights of one that may not, bit for bit. One whose learner is killed comes to its end: the
worker lets go of the base, or ends as well where it is in the midst of a batch, and shares the next learner's. The last
line is a summary.
"""
# Promise: Where weights are changes no bit.
import hashlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

import worker_per_gpu

SETTINGS = ["model.trained=lora", "model.lora.rank=8", "model.compute_dtype=bf16", "model.device=cuda", "run.deterministic=true",
            "off_policy.staleness_max=0", "eval.every=0", "batch.groups=4", "batch.group_size=4"]
LIMIT = 300
SHARES = "base weights are the learner's"
ALONE = "have base weights of their own"


def start(build, root, name, settings, **environment):
    words = [word for one in SETTINGS + settings + [f"run.directory={root}", f"run.name={name}"] for word in ("--set", one)]
    log = open(root / f"{name}.log", "w")
    return subprocess.Popen([str(build / "rehearsal/bin/oxbow"), "train", "configs/digits.yaml", "--no-progress", *words],
                            stdout=log, stderr=log, env=os.environ | {"OXBOW_REHEARSAL_DEVICES": "1"} | environment)


def expect(root, name, child, text, times):
    log = (root / name / "logs" / f"{child}.log").read_text()
    assert log.count(text) == times, f"{child} of {name} says {log.count(text)} times, and not {times}: {text}: {log[-3000:]}"


def ends_well(root, name, train):
    assert train.wait(LIMIT) == 0, (root / f"{name}.log").read_text()[-2000:]


def weights(root, name):
    """The hashes of the final weights' bytes: of safetensors files, without the header, which has the run's name."""
    hashes = {}
    for file in (root / name / "weights").rglob("*.safetensors"):
        content = file.read_bytes()
        hashes[str(file.relative_to(root / name))] = hashlib.sha256(content[8 + int.from_bytes(content[:8], "little"):]).hexdigest()
    assert hashes
    return hashes


def a_shared_base_changes_no_bit(build, root):
    for name, ipc in (("shared", "yes"), ("alone", "no")):
        ends_well(root, name, start(build, root, name, ["run.steps=3", "checkpoint.every=0"], OXBOW_REHEARSAL_IPC=ipc))
    expect(root, "shared", "rollout_worker-0", SHARES, 1)
    expect(root, "shared", "learner", ALONE, 0)
    expect(root, "alone", "rollout_worker-0", SHARES, 0)
    expect(root, "alone", "learner", ALONE, 1)
    assert weights(root, "shared") == weights(root, "alone")


def a_worker_shares_the_base_of_the_next_learner(build, root):
    train = start(build, root, "killed", ["run.steps=8", "checkpoint.every=1"])
    metrics = root / "killed/metrics.jsonl"
    worker_per_gpu.until("three steps", lambda: metrics.exists() and metrics.read_text().count("\n") >= 3, LIMIT)
    services = json.loads((root / "killed/endpoints.json").read_text())["services"]
    os.kill(next(service["pid"] for service in services if service["name"] == "learner"), signal.SIGKILL)
    ends_well(root, "killed", train)
    expect(root, "killed", "rollout_worker-0", SHARES, 2)
    assert max(json.loads(line)["step"] for line in metrics.read_text().splitlines()) == 8


def main():
    build = pathlib.Path(sys.argv[1]).absolute()
    os.chdir(pathlib.Path(__file__).resolve().parents[2])
    passed, cases = 0, [a_shared_base_changes_no_bit, a_worker_shares_the_base_of_the_next_learner]
    for case in cases:
        with tempfile.TemporaryDirectory() as root:
            try:
                case(build, pathlib.Path(root))
                passed += 1
                print(f"ok    {case.__name__}", flush=True)
            except (AssertionError, subprocess.TimeoutExpired) as error:
                print(f"FAIL  {case.__name__}: {error!r}", flush=True)
    print(f"lent base: {passed} passed, {len(cases) - passed} failed")
    return passed != len(cases)


if __name__ == "__main__":
    sys.exit(main())
