#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`rollout_worker --gpus` on two of the rehearsal device's GPUs: tests/rehearsal/worker_per_gpu.py BUILD

A run without workers of its own gets one process on each GPU. One of them is killed and comes again; all end with the
run, a process that never saw its learner too. A worker whose first process is killed leaves none behind. The last line is a summary.
"""
# Promise: A worker for each GPU.
import os
import json
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

SETTINGS = ["run.steps=8", "eval.every=0", "checkpoint.every=0", "batch.groups=4", "batch.group_size=4", "model.device=cuda",
            "services.rollout_workers=0", "run.name=gpus"]
ENVIRONMENT = os.environ | {"OXBOW_REHEARSAL_DEVICES": "3", "OMP_NUM_THREADS": "1"}
LIMIT = 120


def until(what, condition, limit=LIMIT):
    end = time.monotonic() + limit
    while time.monotonic() < end:
        if result := condition():
            return result
        time.sleep(0.05)
    raise AssertionError(f"{what}: not within {limit} s")


def children(pid):
    """Processes whose parent it is, with the command of each."""
    found = {}
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1]) == pid:
                found[int(entry.name)] = (entry / "cmdline").read_bytes().decode().split("\0")
        except (OSError, IndexError):
            pass
    return found


def start(build, root, name, *arguments):
    log = open(root / f"{name}.log", "w")
    return subprocess.Popen([str(build / "rehearsal/bin" / name), *map(str, arguments)], stdout=log, stderr=log, env=ENVIRONMENT)


def count(root, text):
    return (root / "rollout_worker.log").read_text().count(text)


def learner_address(root):
    file = root / "gpus/endpoints.json"
    services = json.loads(file.read_text())["services"] if file.exists() else []
    return next((service["grpc"] for service in services if service["name"] == "learner" and service["grpc"]), None)


def a_run_on_two_gpus(build, root):
    train = start(build, root, "oxbow", "train", "configs/digits.yaml", "--no-progress",
                  *[word for setting in SETTINGS + [f"run.directory={root}"] for word in ("--set", setting)])
    address = until("endpoints.json", lambda: learner_address(root))
    worker = start(build, root, "rollout_worker", "--learner", address, "--gpus", "1,2", "--id", "node")
    until("two processes", lambda: count(root, "READY name=rollout_worker") == 2)
    devices = {pid: words[words.index("--device") + 1] for pid, words in children(worker.pid).items()}
    assert sorted(devices.values()) == ["cuda:1", "cuda:2"], devices
    os.kill(next(iter(devices)), signal.SIGKILL)
    until("the killed one again", lambda: count(root, "READY name=rollout_worker") == 3)
    assert train.wait(LIMIT) == 0, (root / "oxbow.log").read_text()[-2000:]
    assert worker.wait(LIMIT) == 0, (root / "rollout_worker.log").read_text()[-2000:]
    assert count(root, "ended by signal 9, starts again") == 1
    steps = [json.loads(line)["step"] for line in (root / "gpus/metrics.jsonl").read_text().splitlines()]
    assert max(steps) == 8, steps


def stop_signals_and_death(build, root):
    for number in (signal.SIGTERM, signal.SIGKILL):
        worker = start(build, root, "rollout_worker", "--learner", "127.0.0.1:1", "--gpus", "all")
        processes = until("three processes", lambda: [pid for pid in children(worker.pid) if count(root, "READY") == 3])
        assert len(processes) == 3, processes
        worker.send_signal(number)
        assert worker.wait(LIMIT) == (0 if number == signal.SIGTERM else -number)
        until("no process left", lambda: not any(pathlib.Path(f"/proc/{pid}").exists() for pid in processes))


def one_that_ends_in_order_takes_the_others_with_it(build, root):
    worker = start(build, root, "rollout_worker", "--learner", "127.0.0.1:1", "--gpus", "all")
    processes = until("three processes", lambda: [pid for pid in children(worker.pid) if count(root, "READY") == 3])
    os.kill(processes[0], signal.SIGTERM)
    assert worker.wait(LIMIT) == 0, (root / "rollout_worker.log").read_text()[-2000:]
    assert count(root, "another GPU's worker has ended in order") == 1


def refusals(build, root):
    for flags, code, said in [(["--gpus", "3"], 3, "this machine has 3"), (["--gpus", "x"], 2, "numbers such as 0,1"),
                              (["--gpus", "all", "--device", "cpu"], 2, "--device")]:
        worker = start(build, root, "rollout_worker", "--learner", "127.0.0.1:1", *flags)
        assert worker.wait(LIMIT) == code, flags
        assert said in (root / "rollout_worker.log").read_text(), flags


def main():
    build = pathlib.Path(sys.argv[1]).absolute()
    os.chdir(pathlib.Path(__file__).resolve().parents[2])
    passed, cases = 0, [a_run_on_two_gpus, stop_signals_and_death,
                           one_that_ends_in_order_takes_the_others_with_it, refusals]
    for case in cases:
        with tempfile.TemporaryDirectory() as root:
            try:
                case(build, pathlib.Path(root))
                passed += 1
                print(f"ok    {case.__name__}", flush=True)
            except (AssertionError, subprocess.TimeoutExpired) as error:
                print(f"FAIL  {case.__name__}: {error}", flush=True)
    print(f"gpus: {passed} passed, {len(cases) - passed} failed")
    return passed != len(cases)


if __name__ == "__main__":
    sys.exit(main())
