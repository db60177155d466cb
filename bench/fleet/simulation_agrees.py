#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares `oxbow simulate` with the load test of the same small fleet: simulation_agrees.py BUILD.

Both use the product's lease table. The load test has real workers, ranks and connections. What is
compared may differ by 15 %:

- leases that were granted, and bytes of latents and of conditioning in a step: counts;
- seconds of a step, divided by the seconds of a group. The simulation is told how long the
  fleet's workers took from lease to result, so a machine that is slow is slow in both. What is
  left is how leases fill the workers, and how long a step waits for its slowest groups.
"""
import json
import math
import re
import subprocess
import sys

AGREES = 0.15
WORKERS, GROUPS, RANKS, STEPS = 16, 32, 2, 8
GROUP_BYTES, CONDITIONING_BYTES = 128 << 10, 256 << 10
SPREAD = 0.283  # That of a uniform time, half to one and a half of its mean.


def fleet(build):
    command = [f"{build}/bin/fleet_load", "--hosts", "2", "--rewards", "1", "--large-every", "0",
               "--group-seconds", "1", "--workers", str(WORKERS), "--groups", str(GROUPS),
               "--prompts", str(GROUPS), "--ranks", str(RANKS), "--steps", str(STEPS),
               "--small-kib", str(GROUP_BYTES >> 10),
               "--conditioning-kib", str(CONDITIONING_BYTES >> 10)]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    if said.returncode != 0:
        sys.exit(f"the load test failed:\n{said.stdout}{said.stderr}")
    step = re.search(r"a step: ([\d.]+) s, (\d+) bytes of conditioning from rank 0, (\d+) of",
                     said.stdout)
    group = re.search(r"a group: ([\d.]+) s", said.stdout)
    accepted = re.search(r"groups: (\d+) accepted", said.stdout)
    return {"leases granted": float(accepted[1]), "conditioning of a step": float(step[2]),
            "latents of a step": float(step[3]), "step over group": float(step[1]) / float(group[1]),
            "seconds of a group": float(group[1])}


def simulation(build, group_s):
    # Each step takes the same prompts: the learner sends each once, workers the rest.
    # A group's time is lognormal there, and group_s its median.
    costs = {"group_s": group_s / math.exp(SPREAD ** 2 / 2), "spread": SPREAD, "group_bytes": GROUP_BYTES,
             "conditioning_bytes": CONDITIONING_BYTES, "conditioning_new_share": 1 / STEPS}
    for nothing in ("linger_s apply_s reward_latency_s update_group_s publish_s plan_s finish_s eval_s "
                    "checkpoint_s weight_bytes").split():
        costs[nothing] = 0
    command = [f"{build}/bin/oxbow", "simulate", "--json", "--workers", str(WORKERS), "--groups",
               str(GROUPS), "--ranks", str(RANKS), "--steps", str(STEPS), "--staleness", "1",
               "--publish-every", "1", "--in-flight", "1", "--batch", "1", "--speculate", "0"]
    for name, value in costs.items():
        command += ["--cost", f"{name}={value}"]
    out = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return {"leases granted": out["leases_granted"],
            "conditioning of a step": out["learner_egress_bytes_per_s"] * out["step_s"],
            "latents of a step": out["ingest_bytes_per_s"] * out["step_s"],
            "step over group": out["step_s"] / group_s}


def main():
    measured = fleet(sys.argv[1])
    predicted = simulation(sys.argv[1], measured["seconds of a group"])
    wrong = 0
    for name, value in predicted.items():
        ratio = measured[name] / value
        agrees = abs(ratio - 1) <= AGREES
        wrong += not agrees
        print(f"{name}: measured {measured[name]:.4g}, predicted {value:.4g}, "
              f"{100 * (ratio - 1):+.1f} %{'' if agrees else ' WRONG'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
