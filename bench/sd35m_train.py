#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a model of SD3.5-M's published size (random weights) on one GPU and prints where time and memory go.

    bench/sd35m_train.py BUILD --out DIR [--recipe sd35m-pickscore-op] [--steps 3] [--set KEY=VALUE ...]
    bench/sd35m_train.py BUILD --out DIR --layers 2 --device cpu --set sampling.height=64 ...     small, without a GPU

Makes the diffusers directory (transformer and autoencoder by diffusers' own classes; text encoders of the published
widths, but one small layer each, because prompts are encoded once), starts a reward server whose score is the mean of
the red channel, and runs `oxbow train`: learner and worker share the GPU. It prints the phases of each step from
metrics.jsonl and what nvidia-smi said each second. Needs torch, diffusers, transformers, safetensors, grpc, protobuf, and
protoc or OXBOW_PROTOS (a FileDescriptorSet of proto/oxbow/v1/reward.proto with imports).
"""
import argparse
import concurrent.futures
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

SOURCE = pathlib.Path(__file__).resolve().parent.parent
PROMPTS = [f"a photo of the {colour} {thing}" for colour in ("red", "blue", "green", "black")
           for thing in ("cat", "dog", "house", "field")]
TRANSFORMER = dict(sample_size=128, patch_size=2, in_channels=16, num_layers=24, attention_head_dim=64,
                   num_attention_heads=24, joint_attention_dim=4096, caption_projection_dim=1536,
                   pooled_projection_dim=2048, out_channels=16, pos_embed_max_size=384, qk_norm="rms_norm",
                   dual_attention_layers=tuple(range(13)))
AUTOENCODER = dict(block_out_channels=(128, 256, 512, 512), layers_per_block=2, latent_channels=16, norm_num_groups=32,
                   down_block_types=("DownEncoderBlock2D",) * 4, up_block_types=("UpDecoderBlock2D",) * 4,
                   use_quant_conv=False, use_post_quant_conv=False, scaling_factor=1.5305, shift_factor=0.0609)


def make_model(directory, layers, device):
    """A pipeline directory with random weights; linear layers keep the variance of what they take."""
    import torch
    from diffusers import AutoencoderKL, SD3Transformer2DModel
    from transformers import CLIPTextConfig, CLIPTextModelWithProjection, T5Config, T5EncoderModel
    torch.manual_seed(1)
    shutil.copytree(SOURCE / "tests/golden/text/pipeline", directory)
    for part in ("transformer", "text_encoder", "text_encoder_2", "text_encoder_3"):
        shutil.rmtree(directory / part)
    words = {n: len(json.loads((directory / n / "vocab.json").read_text())) for n in ("tokenizer", "tokenizer_2")}

    def save(make, name):
        with torch.device(device):
            module = make()
        for key, p in module.named_parameters():
            if p.dim() > 1:
                p.data.normal_(std=p[0].numel() ** -0.5)
        module.to(torch.bfloat16).save_pretrained(directory / name)

    def clip(width, vocabulary):
        return lambda: CLIPTextModelWithProjection(CLIPTextConfig(
            vocab_size=vocabulary, hidden_size=width, intermediate_size=64, num_hidden_layers=2,
            num_attention_heads=width // 64, projection_dim=width, eos_token_id=vocabulary - 1))
    config = TRANSFORMER | dict(num_layers=layers, dual_attention_layers=tuple(range(min(layers, 13))))
    save(lambda: SD3Transformer2DModel(**config), "transformer")
    if layers != TRANSFORMER["num_layers"]:  # Else models/graphs has its graph.
        part = (directory / "transformer").absolute()
        subprocess.run([sys.executable, "-m", "export_model", "export", "SD3Transformer2DModel", "--config",
                        part / "config.json", "--out", part], cwd=SOURCE / "tools", check=True)
    save(lambda: AutoencoderKL(**AUTOENCODER), "vae")
    save(clip(768, words["tokenizer"]), "text_encoder")
    save(clip(1280, words["tokenizer_2"]), "text_encoder_2")
    save(lambda: T5EncoderModel(T5Config(vocab_size=1024, d_model=4096, d_kv=64, d_ff=64, num_layers=1, num_heads=2,
                                         feed_forward_proj="gated-gelu")), "text_encoder_3")
    index = json.loads((directory / "model_index.json").read_text())
    index["vae"] = ["diffusers", "AutoencoderKL"]
    (directory / "model_index.json").write_text(json.dumps(index))
    sys.path.insert(0, str(SOURCE / "tools"))
    from export_model.model_directory import write_graphs
    write_graphs(directory, "text_encoder")


def reward_server(name):
    """Serves proto/oxbow/v1/reward.proto on a free port; returns the server and its address."""
    import grpc
    import numpy
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    path = os.environ.get("OXBOW_PROTOS")
    if not path:
        path = tempfile.mktemp()
        subprocess.run(["protoc", f"-I{SOURCE / 'proto'}", "--include_imports", f"--descriptor_set_out={path}",
                        "oxbow/v1/reward.proto"], check=True)
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(pathlib.Path(path).read_bytes()).file:
        pool.Add(file)
    message = lambda n: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"oxbow.v1.{n}"))
    describe, request, response = message("DescribeResponse"), message("ScoreRequest"), message("ScoreResponse")

    def describe_call(_, context):
        return describe(rewards=[dict(name=name, value_max=1)], batch_max=64, unix_time=time.time())

    def score(batches, context):
        for batch in batches:
            for item in batch.items:
                pixels = numpy.frombuffer(item.image.pixels, numpy.uint8)
                red = float(pixels[::item.image.channels].mean()) / 255
                yield response(item=item.item, rewards=[dict(name=name, value=red)])

    server = grpc.server(concurrent.futures.ThreadPoolExecutor(8),
                         options=[("grpc.max_receive_message_length", 64 << 20)])
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("oxbow.v1.Reward", {
        "Describe": grpc.unary_unary_rpc_method_handler(describe_call, message("DescribeRequest").FromString,
                                                        describe.SerializeToString),
        "Score": grpc.stream_stream_rpc_method_handler(score, request.FromString, response.SerializeToString)})])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    return server, f"127.0.0.1:{port}"


def watch_gpu(stop, samples):
    query = ["nvidia-smi", "--query-gpu=utilization.gpu,memory.used,power.draw", "--format=csv,noheader,nounits"]
    while shutil.which("nvidia-smi") and not stop.wait(1):
        out = subprocess.run(query, capture_output=True, text=True).stdout.splitlines()
        samples.append([float(x) for x in out[0].split(",")])


def report(run, samples):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        phases = {k.split("/")[1][:-2]: v for k, v in line.items() if k.startswith("time/") and k != "time/wall_s"}
        print(f"step {line['step']}: " + "  ".join(f"{k} {v:.2f}" for k, v in sorted(phases.items())))
        keys = ("train/reward_mean", "train/loss", "train/grad_norm", "train/onpolicy_ratio_err", "train/iw_mean",
                "train/groups_replayed", "train/clip_frac_total", "train/ratio_std", "rollout/rows_forward")
        print("        " + "  ".join(f"{k} {line[k]:.4g}" for k in keys if line.get(k) is not None))
    if samples:
        use, memory, power = zip(*samples)
        print(f"GPU: busy {statistics.mean(use):.0f} % (median {statistics.median(use):.0f}), memory at most "
              f"{max(memory) / 1024:.1f} GiB, power mean {statistics.mean(power):.0f} W, {len(samples)} samples")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, required=True, help="for the model and the run; kept")
    parser.add_argument("--recipe", default="sd35m-pickscore-op")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--name", default="sd35m")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    out = args.out.absolute()
    start = time.monotonic()
    if not (out / "model").exists():
        make_model(out / "model", args.layers, args.device)
        print(f"model made in {time.monotonic() - start:.0f} s", flush=True)
    (out / "prompts.txt").write_text("\n".join(PROMPTS) + "\n")
    server, address = reward_server("pickscore")
    plan = out / f"{args.name}.yaml"
    plan.write_text(f"recipe: {args.recipe}\n")
    settings = [f"run.name={args.name}", f"run.directory={out}", f"run.steps={args.steps}", f"model.path={out}/model",
                f"model.device={args.device}", f"prompts.train={out}/prompts.txt", f"prompts.eval={out}/prompts.txt",
                f"prompts.cache={out}/cache", f"reward.endpoints=[{address}]", "eval.every=0", "batch.groups=4",
                "batch.group_size=8", "checkpoint.every=0"] + args.set
    command = [args.build / "bin/oxbow", "train", plan, "--overwrite"] + [x for s in settings for x in ("--set", s)]
    stop, samples = threading.Event(), []
    watcher = threading.Thread(target=watch_gpu, args=(stop, samples))
    watcher.start()
    code = subprocess.run([str(c) for c in command]).returncode
    stop.set()
    watcher.join()
    server.stop(0)
    run = out / args.name
    if (run / "metrics.jsonl").exists():
        report(run, samples)
    if code != 0:
        for log in sorted((run / "logs").glob("*.log")):
            print(f"--- {log.name}\n" + "\n".join(log.read_text().splitlines()[-15:]))
    print(f"sd35m_train: exit {code}, {time.monotonic() - start:.0f} s in all")
    return code


if __name__ == "__main__":
    sys.exit(main())
