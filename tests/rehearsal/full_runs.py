#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Short runs of all programs in which one allocation of each process's GPU fails: tests/rehearsal/full_runs.py BUILD

A run ends with exit code 0, where a worker went on with fewer rows, or with exit code 7 and one line that says what to
set. It is not started again. The last line is a summary; the exit code is 1 if a run ended otherwise.
"""
import os
import pathlib
import subprocess
import sys
import tempfile

FAILING = [1, 10, 50, 120, 300, 700, 1500, 3000, 6000, 12000]
SETTINGS = ["run.steps=3", "eval.every=0", "checkpoint.every=0", "batch.groups=2", "batch.group_size=4", "model.device=cuda"]


def run(build, root, failing):
    command = [build / "rehearsal/bin/oxbow", "train", "configs/digits.yaml", "--no-progress"]
    for setting in SETTINGS + [f"run.directory={root}", f"run.name=full-{failing}"]:
        command += ["--set", setting]
    environment = os.environ | {"OXBOW_REHEARSAL_DEVICES": "1", "OXBOW_REHEARSAL_FAIL": str(failing)}
    ended = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=200, env=environment)
    return ended.returncode, ended.stderr.rstrip().splitlines()


def main():
    build = pathlib.Path(sys.argv[1]).absolute()
    passed = 0
    os.chdir(pathlib.Path(__file__).resolve().parents[2])
    with tempfile.TemporaryDirectory() as root:
        for failing in FAILING:
            code, lines = run(build, root, failing)
            said = code == 7 and "out of memory" in lines[-1] and "ended with exit code 7" in lines[-1]
            good = (code == 0 or said) and not any("terminate called" in line or "restart" in line for line in lines)
            passed += good
            print(f"{'ok  ' if good else 'FAIL'} allocation {failing} fails: exit code {code}  {lines[-1][:150] if code else ''}", flush=True)
            if not good:
                print("\n".join("    " + line for line in lines[-12:]))
    print(f"full: {passed} passed, {len(FAILING) - passed} failed")
    return passed != len(FAILING)


if __name__ == "__main__":
    sys.exit(main())
