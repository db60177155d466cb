#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares oxbow's sampling and training step with diffusers and peft in PyTorch's eager mode, on the same files.

    tools/bench_diffusers.py build/release/bin/transformer_bench                  everything; about twenty minutes
    tools/bench_diffusers.py BINARY --models tiny --threads 1 --pairs 5

Makes the models with random weights, then runs both sides as processes in turn, A B A B, with the same number of
threads, and prints medians over pairs of diffusers / oxbow: above 1 oxbow is faster. CPU is user and system time, which
other work on the machine disturbs less than the wall clock. Memory is each process's peak, and its growth since the
libraries were loaded. The results of both must agree, or nothing is printed.

tiny     width 32, 3 layers, 24 tokens per image: overhead of operations
100m     width 512, 10 layers, 102 M weights, 64 tokens per image, 32 of the prompt: matrix products
flux_*, wan_*   the same of FLUX.1 with embedded guidance and of Wan
All: 8 rows, an adapter of rank 32 on the attention's projections.
sampling  10 steps of the ODE without gradients        training  forward, backward, norm limit, AdamW over the adapter
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROWS = 8
TARGETS = ["to_k", "to_out.0", "to_q", "to_v"]
SD3 = dict(qk_norm="rms_norm")
FLUX = dict(guidance_embeds=True, patch_size=1)
MODELS = {
    # name: (class, transformer's config, latent sizes, prompt tokens, repetitions of sampling, of training)
    "tiny": ("SD3Transformer2DModel", SD3 | dict(
        num_attention_heads=2, attention_head_dim=16, caption_projection_dim=32, num_layers=3, sample_size=12,
        in_channels=4, out_channels=4, joint_attention_dim=32, pooled_projection_dim=32, pos_embed_max_size=12,
        dual_attention_layers=(0,)), (12, 8), 8, 20, 60),
    "100m": ("SD3Transformer2DModel", SD3 | dict(
        num_attention_heads=8, attention_head_dim=64, caption_projection_dim=512, num_layers=10, sample_size=16,
        in_channels=16, out_channels=16, joint_attention_dim=2048, pooled_projection_dim=1024,
        pos_embed_max_size=32, dual_attention_layers=(0, 1, 2)), (16, 16), 32, 1, 1),
    "flux_tiny": ("FluxTransformer2DModel", FLUX | dict(
        in_channels=16, num_layers=1, num_single_layers=2, attention_head_dim=16, num_attention_heads=2,
        joint_attention_dim=32, pooled_projection_dim=32, axes_dims_rope=(4, 6, 6)), (12, 8), 8, 20, 60),
    "flux_100m": ("FluxTransformer2DModel", FLUX | dict(
        in_channels=64, num_layers=6, num_single_layers=12, attention_head_dim=64, num_attention_heads=8,
        joint_attention_dim=2048, pooled_projection_dim=768, axes_dims_rope=(8, 28, 28)), (16, 16), 32, 1, 1),
    "wan_tiny": ("WanTransformer3DModel", dict(
        patch_size=(1, 2, 2), num_attention_heads=2, attention_head_dim=24, in_channels=4, out_channels=4, text_dim=32,
        freq_dim=32, ffn_dim=96, num_layers=3, cross_attn_norm=True), (2, 12, 8), 8, 20, 60),
    "wan_100m": ("WanTransformer3DModel", dict(
        patch_size=(1, 2, 2), num_attention_heads=8, attention_head_dim=72, in_channels=16, out_channels=16,
        text_dim=2048, freq_dim=256, ffn_dim=2560, num_layers=16, cross_attn_norm=True), (3, 16, 16), 32, 1, 1),
}
RANK, ALPHA, STEPS = 32, 64, 10
TOLERANCE = 1e-4  # Relative; for results after ten steps, or for the movement of an adapter.


def make(name, directory):
    """Weights, graph, adapter and inputs of one model."""
    import peft
    import torch
    from export_model.graph_file import exported_graph, write_graph
    from export_model.tracing import full_config, make_transformer
    from export_model.wrappers import WRAPPERS
    from peft.utils import get_peft_model_state_dict
    from safetensors.torch import save_file
    class_name, config, latent, tokens, _, _ = MODELS[name]
    torch.manual_seed(1)
    wrapper = WRAPPERS[class_name]
    write_graph(exported_graph(wrapper, make_transformer(wrapper, config, fake=True)),
                directory / "transformer" / "graph.json.gz")
    model = make_transformer(wrapper, config)
    for p in model.parameters():  # No layer may be zero: it would still cost time, but hide errors.
        p.data = torch.randn(p.shape) * (0.02 if p.dim() == 1 else p[0].numel() ** -0.5)
    for key, p in model.named_parameters():
        if "norm" in key and key.endswith("weight") and p.dim() == 1:
            p.data += 1
    print(f"{name}: {sum(p.numel() for p in model.parameters()) / 1e6:.1f} M weights", end="")
    model.save_pretrained(directory / "transformer")
    model.add_adapter(peft.LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=TARGETS))
    matrices = {k: torch.randn(v.shape) * (0.3 / v.shape[1]) for k, v in get_peft_model_state_dict(model).items()}
    print(f", {sum(m.numel() for m in matrices.values()) / 1e6:.2f} M of the adapter", file=sys.stderr)
    save_file(matrices, directory / "adapter.safetensors",
              metadata={"rank": str(RANK), "alpha": str(ALPHA), "targets": json.dumps(TARGETS)})
    sizes = dict(zip("FHW"[-len(latent):], latent)) | {"B": ROWS, "S": tokens}
    draw = torch.Generator().manual_seed(2)
    inputs = {key: wrapper.example(key, [sizes.get(size, size) for size in shape], draw)
              for key, shape in wrapper.inputs(full_config(model)).items()}
    save_file(inputs | {"direction": torch.randn(inputs["x"].shape)}, directory / "inputs.safetensors")


def eager(args):
    """The other side: does in PyTorch what transformer_bench does. Prints and writes the same."""
    import diffusers
    import peft
    import torch
    from diffusers import FlowMatchEulerDiscreteScheduler
    from export_model.wrappers import WRAPPERS
    from peft.utils import get_peft_model_state_dict, set_peft_model_state_dict
    from safetensors.torch import load_file, save_file
    torch.set_num_threads(args.threads)
    torch.ones(64, 64) @ torch.ones(64, 64)
    # Not from getrusage, whose peak starts from that of the parent process.
    status = lambda: pathlib.Path("/proc/self/status").read_text()
    peak = lambda: int(status().split("VmHWM:")[1].split()[0]) / 1024
    before = peak()
    class_name = json.loads((args.model / "transformer" / "config.json").read_text())["_class_name"]
    model = getattr(diffusers, class_name).from_pretrained(args.model, subfolder="transformer")
    model.requires_grad_(False)
    model.add_adapter(peft.LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=TARGETS))
    set_peft_model_state_dict(model, load_file(args.model / "adapter.safetensors"))
    inputs, result = load_file(args.model / "inputs.safetensors"), {}
    direction = inputs.pop("direction")
    network = WRAPPERS[class_name](model)  # Gives diffusers' module its arguments.

    def sample():
        scheduler = FlowMatchEulerDiscreteScheduler(shift=3.0)
        scheduler.set_timesteps(STEPS)
        x = inputs["x"]
        with torch.no_grad():
            for t in scheduler.timesteps:
                v = network(**inputs | {"x": x, "sigma": t.expand(ROWS) / 1000})
                x = scheduler.step(v, t, x, return_dict=False)[0]
        result["x"] = x

    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=3e-4, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-4)

    def train():
        optimizer.zero_grad()
        (network(**inputs) * direction).mean().backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()

    wall, cpu = [], []
    for i in range(args.repeat + 1):
        cpu_before, wall_before = time.process_time(), time.perf_counter()
        {"sampling": sample, "training": train}[args.what]()
        if i > 0:
            wall.append(time.perf_counter() - wall_before)
            cpu.append(time.process_time() - cpu_before)
    report = {"wall_s": wall, "cpu_s": cpu, "before_mb": before, "peak_mb": peak()}
    save_file(result or {k: v.contiguous() for k, v in get_peft_model_state_dict(model).items()}, args.out)
    print(json.dumps(report))


def run(command, threads):
    environment = os.environ | {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads),
                                "OMP_WAIT_POLICY": "PASSIVE"}
    done = subprocess.run([str(c) for c in command], env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def agreement(what, directory):
    """Largest relative difference of the two results: of images, or of the movement of the adapter."""
    from safetensors.torch import load_file
    ours, theirs = load_file(directory / "ours.safetensors"), load_file(directory / "theirs.safetensors")
    if ours.keys() != theirs.keys():
        sys.exit(f"different tensors: {sorted(ours.keys() ^ theirs.keys())[:4]}")
    zero = load_file(directory / "adapter.safetensors") if what == "training" else {}
    gone = sum((theirs[k] - zero.get(k, 0)).double().square().sum().item() for k in theirs) ** 0.5
    return sum((ours[k] - theirs[k]).double().square().sum().item() for k in theirs) ** 0.5 / gone


def compare(args, name, what, threads, directory):
    repeat = MODELS[name][4 if what == "sampling" else 5] * args.repeat
    common = [what, directory, "--threads", threads, "--repeat", repeat]
    sides = {"ours": [args.binary], "theirs": [sys.executable, __file__, "--eager"]}
    runs = {side: [] for side in sides}
    for _ in range(args.pairs):
        for side, command in sides.items():
            runs[side].append(run(command + common + ["--out", directory / f"{side}.safetensors"], threads))
    difference = agreement(what, directory)
    if difference > (TOLERANCE if what == "sampling" else 100 * TOLERANCE):
        sys.exit(f"{name}, {what}: the two sides do not compute the same: {difference:.1e}")
    best = lambda r, key: statistics.median(r[key])
    ratio = lambda key: statistics.median(best(t, key) / best(o, key) for o, t in zip(runs["ours"], runs["theirs"]))
    seconds = statistics.median(best(r, "cpu_s") for r in runs["ours"])
    megabytes = lambda side, own: max(r["peak_mb"] - (r["before_mb"] if own else 0) for r in runs[side])
    print(f"| {name} | {what} | {threads} | {seconds:.3g} | {ratio('wall_s'):.2f} | {ratio('cpu_s'):.2f}"
          f" | {megabytes('ours', False):.0f} / {megabytes('theirs', False):.0f}"
          f" | {megabytes('ours', True):.0f} / {megabytes('theirs', True):.0f} | {difference:.0e} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    if "--eager" in sys.argv:
        parser.add_argument("--eager", action="store_true")
        parser.add_argument("what", choices=("sampling", "training"))
        parser.add_argument("model", type=pathlib.Path)
        parser.add_argument("--out", required=True)
        parser.add_argument("--threads", type=int, default=1)
        parser.add_argument("--repeat", type=int, default=1)
        return eager(parser.parse_args())
    parser.add_argument("binary", type=pathlib.Path, help="transformer_bench")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--what", nargs="+", choices=("sampling", "training"), default=("sampling", "training"))
    parser.add_argument("--threads", nargs="+", type=int, default=(1, 2))
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--repeat", type=int, default=1, help="times the repetitions a process makes of its work")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        for name in args.models:
            directory = pathlib.Path(scratch) / name
            directory.mkdir()
            make(name, directory)
        print("| model | what | threads | our CPU s | wall | CPU | peak MB, ours / theirs | after libraries | difference |")
        print("|---|---|---|---|---|---|---|---|---|")
        for name in args.models:
            for what in args.what:
                for threads in args.threads:
                    compare(args, name, what, threads, pathlib.Path(scratch) / name)


if __name__ == "__main__":
    main()
