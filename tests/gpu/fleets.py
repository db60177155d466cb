#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains short runs on the CPU and on a GPU with the real binaries and compares their metrics.

    tests/gpu/fleets.py BUILD [--device cuda] [--only NAME ...] [--out DIR] [--rehearse [--late NAME ...]]
    tests/gpu/fleets.py BUILD --cpu-only --out DIR [--only NAME ...]     the CPU's side alone, to carry to a machine with a GPU
    tests/gpu/fleets.py BUILD --cpu-results DIR/cpu [--only NAME ...]    there: the GPU's side alone

Each run has learner, worker, replay buffer and reward server. On the GPU, learner and worker share one device. Both runs
draw the same noise (it comes from the CPU), so they differ by rounding alone until the first update, and by what training
makes of that rounding after it. A run passes if both end with exit code 0 and every compared metric of the first
committed step agrees: within 1e-4 relative in float32, 2e-2 in bf16. Later steps are printed, not judged.
With --rehearse the GPU's side runs on the rehearsal device of BUILD/rehearsal (tests/rehearsal), which has two GPUs. The
runs of --late come once more with kernels that run when somebody waits for them, and not before: a missing wait shows in
the metrics.
Where deterministic runs of one rank and of two are among them, their weights on the GPU must be equal, bit for bit.
The last line is a summary; the exit code is 1 if a run failed.
"""
# Promise: The number of ranks changes no number.
import argparse
import concurrent.futures
import functools
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

SMALL = ["run.steps=3", "eval.every=0", "checkpoint.every=0", "off_policy.staleness_max=0", "batch.groups=4",
         "batch.group_size=8"]
LORA = ["model.trained=lora", "model.lora.rank=8", "model.lora.alpha=16"]
RECOMPUTE = ["model.memory=recompute"]
STATES = ["model.memory=offload_optimizer + offload_average"]
OFFLOADED = ["model.memory=recompute + offload_optimizer + offload_average + offload_weights"]
# name: (recipe, settings of both sides, settings of the GPU alone, tolerance)
FLEETS = {
    "full": ("digits-flow-grpo", [], [], 1e-4),
    "lora": ("digits-flow-grpo", LORA, [], 1e-4),
    "merged": ("digits-flow-grpo", LORA + ["model.lora.merge_for_rollouts=true"], [], 1e-4),
    "bf16": ("digits-flow-grpo", LORA + ["model.compute_dtype=bf16"], [], 2e-2),
    "int8": ("digits-flow-grpo", LORA + ["model.compute_dtype=bf16", "model.memory=int8"], [], 2e-2),
    "recompute": ("digits-flow-grpo", RECOMPUTE, [], 1e-4),
    "rows_per_pass": ("digits-flow-grpo", ["batch.rows_per_pass=10"], [], 1e-4),
    "guided": ("digits-flow-grpo", ["sampling.guidance=2"], [], 1e-4),
    "offload": ("digits-flow-grpo", ["eval.every=1", "eval.images=16", "batch.updates=1"],
                STATES, 1e-4),
    "weights": ("digits-flow-grpo", RECOMPUTE + ["method.kl_weight=0.01", "method.kl_space=mean", "eval.every=1",
                                     "eval.images=16"], OFFLOADED, 1e-4),
    "lora_weights": ("digits-flow-grpo", LORA + RECOMPUTE + ["method.kl_weight=0.01", "method.kl_space=mean", "eval.every=1",
                                                             "eval.images=16"], ["model.memory=recompute + offload_weights"], 1e-4),
    "int8_weights": ("digits-flow-grpo", LORA + ["model.compute_dtype=bf16", "model.memory=recompute + int8"],
                     ["model.memory=recompute + int8 + offload_weights"], 2e-2),
    "weights_nft": ("digits-nft", RECOMPUTE + ["method.reference_every=2"], OFFLOADED, 1e-4),
    "replay": ("digits-op-grpo", ["replay.fraction=0.5", "run.steps=5"], [], 1e-4),
    "kl": ("digits-flow-grpo", ["method.kl_weight=0.01", "method.kl_space=mean"], [], 1e-4),
    "nft": ("digits-nft", [], [], 1e-4),
    "awm": ("digits-diverse", [], [], 1e-4),
    "deterministic": ("digits-flow-grpo", ["run.deterministic=true"], [], 1e-4),
    "recompute_deterministic": ("digits-flow-grpo", RECOMPUTE + ["run.deterministic=true"], [], 1e-4),
    "encoders": ("digits-flow-grpo", [], ["model.encoder_device=cuda"], 1e-4),
    "graphs": ("digits-flow-grpo", [], ["model.cuda_graphs=true"], 1e-4),
    "launched": ("digits-flow-grpo", LORA, ["model.cuda_graphs=false"], 1e-4),
    "broadcast": ("digits-flow-grpo", [], ["publish.transport=broadcast"], 1e-4),
    # Networks that run from exported graphs: an image's and a video's.
    "flux": ("digits-flux", [], [], 1e-4),
    "clip": ("clip", [], [], 1e-4),
}
# These need two GPUs.
FLEETS_OF_TWO = {
    # One of the workers shares a GPU with rank 0.
    "ranks_lora": ("digits-flow-grpo", LORA + ["learner.ranks=2", "services.rollout_workers=2"], [], 1e-4),
    "ranks": ("digits-flow-grpo", ["learner.ranks=2"], [], 1e-4),
    "ranks_deterministic": ("digits-flow-grpo", ["learner.ranks=2", "run.deterministic=true"], [], 1e-4),
    "ranks_offload": ("digits-flow-grpo", ["learner.ranks=2", "eval.every=1", "eval.images=16"],
                      STATES, 1e-4),
    "ranks_shards": ("digits-flow-grpo", ["learner.ranks=2", "batch.rows_per_pass=20"], ["model.memory=shard_gradients"], 1e-4),
    "ranks_weights": ("digits-flow-grpo", RECOMPUTE + ["learner.ranks=2", "batch.rows_per_pass=20"],
                      [OFFLOADED[0] + " + shard_gradients"], 1e-4),
    "ranks_weights_deterministic": ("digits-flow-grpo", RECOMPUTE + ["learner.ranks=2", "run.deterministic=true"],
                                    [OFFLOADED[0] + " + shard_gradients"], 1e-4),
    "ranks_shards_deterministic": ("digits-flow-grpo", ["learner.ranks=2", "run.deterministic=true"],
                                   ["model.memory=shard_gradients"], 1e-4),
}
# One rank and each form of two.
SAME_WEIGHTS = [("deterministic", "ranks_deterministic", "ranks_shards_deterministic"),
                ("recompute_deterministic", "ranks_weights_deterministic")]
WEIGHTS = "raw/transformer/diffusion_pytorch_model.safetensors"
COMPARED = ["train/reward_mean", "train/reward_group_std_mean", "train/loss", "train/grad_norm", "train/kl_div", "train/update_norm",
            "eval/reward_mean"]


def train(build, root, name, device, recipe, settings, environment=None):
    """A run under `root`, under the same name on both sides. `environment` is added to this process's."""
    root.mkdir(parents=True, exist_ok=True)
    directory, plan = root / name, root / f"{name}.yaml"
    plan.write_text(f"recipe: {recipe}\nrun: {{name: {name}, directory: {root}}}\n")
    command = [build / "bin/oxbow", "train", plan]
    for setting in SMALL + settings + [f"model.device={device}"]:
        command += ["--set", setting]
    start = time.monotonic()
    with open(root / f"{name}.log", "w") as log:
        try:
            code = subprocess.run([str(c) for c in command], stdout=log, stderr=log, timeout=400,
                                  env=os.environ | (environment or {})).returncode
        except subprocess.TimeoutExpired:
            code = 124
    return {"code": code, "seconds": time.monotonic() - start} | results(root, name)


def results(root, name):
    """The metrics that a run under `root` has left."""
    path, log = root / name / "metrics.jsonl", root / f"{name}.log"
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return {"log": log, "steps": {line["step"]: line for line in lines}}


def carried(root, name):
    """A run that has ended well elsewhere (--cpu-only)."""
    ended = (root / name / "metrics.jsonl").exists()
    return {"code": 0 if ended else "not carried", "seconds": 0} | results(root, name)


def rehearse(mode, build, root, name, *run):
    """A run on the rehearsal device. It fails unless the learner's kernels ran there."""
    log = root / f"{name}.device"
    log.mkdir(parents=True)
    result = train(build / "rehearsal", root, name, *run, environment={
        "OXBOW_REHEARSAL_DEVICES": "2", "OXBOW_REHEARSAL_LOG": str(log), "OXBOW_REHEARSAL_MODE": mode})
    learners = [json.loads(path.read_text()) for path in log.glob("learner-*.json")]
    if not any(device["kernels"] for learner in learners for device in learner["devices"].values()):
        result["code"] = result["code"] or "no kernel ran"
    return result


def difference(one, two, step):
    """Largest relative difference of the compared metrics of a step, and whose it is."""
    a, b = one["steps"].get(step, {}), two["steps"].get(step, {})
    worst = (0.0, "nothing")
    for key in COMPARED:
        if a.get(key, 0) is None or b.get(key, 0) is None:  # Not a number: memory that nobody wrote.
            worst = max(worst, (float("inf"), key))
        elif key in a and key in b:
            scale = max(abs(a[key]), abs(b[key]), 1e-2)  # A loss is a small difference of large sums.
            worst = max(worst, (abs(a[key] - b[key]) / scale, key))
        elif key in a or key in b:
            worst = max(worst, (float("inf"), key))
    return worst if a and b else (float("inf"), f"step {step} is missing")


def judge(name, cpu, gpu, tolerance):
    worst, key = difference(cpu, gpu, 1)
    last = max(gpu["steps"], default=0)
    passed = cpu["code"] == 0 and gpu["code"] == 0 and worst <= tolerance
    later = difference(cpu, gpu, last)
    print(f"{'ok  ' if passed else 'FAIL'} {name:20} exit {cpu['code']} {gpu['code']}  {cpu['seconds']:5.1f} s {gpu['seconds']:5.1f} s"
          f"  step 1: {worst:.1e} {key}  step {last}: {later[0]:.1e} {later[1]}", flush=True)
    if not passed:
        for side in (cpu, gpu):
            if side["log"].exists():
                print("".join("    " + line for line in side["log"].read_text().splitlines(keepends=True)[-12:]))
    return passed


def weights(root, name):
    """The hash of the final weights' bytes: a safetensors file without its header, which has the run's name."""
    content = (root / name / "weights" / WEIGHTS).read_bytes()
    return hashlib.sha256(content[8 + int.from_bytes(content[:8], "little"):]).hexdigest()


def ranks_agree(root, names):
    """For each family of SAME_WEIGHTS of which two ran: whether its members have made the same weights."""
    verdicts = []
    for family in SAME_WEIGHTS:
        ran = [name for name in family if name in names]
        if len(ran) < 2:
            continue
        hashes = [weights(root, name) for name in ran]
        verdicts.append(len(set(hashes)) == 1)
        print(f"{'ok  ' if verdicts[-1] else 'FAIL'} same weights: {' '.join(f'{n} {h[:12]}' for n, h in zip(ran, hashes))}", flush=True)
    return verdicts


def on_the_cpu(pool, build, root, names):
    """Exit code: whether a run failed."""
    runs = {name: pool.submit(train, build, root, name, "cpu", *(FLEETS | FLEETS_OF_TWO)[name][:2]) for name in names}
    codes = {name: run.result()["code"] for name, run in runs.items()}
    print(f"fleets: {list(codes.values()).count(0)} of {len(codes)} trained on the CPU: {codes}")
    return any(codes.values())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--only", nargs="+", choices=FLEETS | FLEETS_OF_TWO)
    parser.add_argument("--out", type=pathlib.Path, help="keep the runs here")
    parser.add_argument("--cpu-only", action="store_true", help="train on the CPU alone, into --out")
    parser.add_argument("--cpu-results", type=pathlib.Path, metavar="DIR", help="the CPU's side, trained elsewhere")
    parser.add_argument("--jobs", type=int, default=3, help="runs at a time")
    parser.add_argument("--rehearse", action="store_true", help="on the rehearsal device")
    parser.add_argument("--late", nargs="+", default=[], choices=FLEETS | FLEETS_OF_TWO,
                        help="with --rehearse: these with late kernels, too")
    args = parser.parse_args()
    if args.cpu_only and not args.out:
        parser.error("--cpu-only leaves its runs in --out")
    fleets = FLEETS | FLEETS_OF_TWO
    on_gpu = functools.partial(rehearse, "now") if args.rehearse else train
    names = args.only or list(fleets if args.rehearse else FLEETS)
    with tempfile.TemporaryDirectory() as scratch, concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        root = (args.out or pathlib.Path(scratch)).absolute()
        if args.cpu_only:
            return on_the_cpu(pool, args.build, root / "cpu", names)
        on_cpu, pairs = {}, []
        for name in dict.fromkeys(names + args.late):
            recipe, both, gpu_alone, _ = fleets[name]
            on_cpu[name] = (pool.submit(carried, args.cpu_results, name) if args.cpu_results else
                            pool.submit(train, args.build, root / "cpu", name, "cpu", recipe, both))
            run = (name, args.device, recipe, both + gpu_alone)
            if name in names:
                pairs.append((name, name, pool.submit(on_gpu, args.build, root / "gpu", *run)))
            if name in args.late:
                pairs.append((name, name + ", late", pool.submit(rehearse, "late", args.build, root / "late", *run)))
        passed = sum(judge(shown, on_cpu[name].result(), gpu.result(), fleets[name][3]) for name, shown, gpu in pairs)
        agree = ranks_agree(root / "gpu", names) if passed == len(pairs) else []
    checks = len(pairs) + len(agree)
    passed += sum(agree)
    print(f"fleets: {passed} passed, {checks - passed} failed on {args.device}")
    return passed != checks


if __name__ == "__main__":
    sys.exit(main())
