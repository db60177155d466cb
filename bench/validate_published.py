#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`oxbow validate` on directories of published sizes: processor time (median of 3) and memory of each, and what it says.

    bench/validate_published.py build/release/bin/oxbow [--only TEXT] [--keep DIR]

A directory has the transformer of a graph in models/graphs, in bfloat16, and text encoders of published size where oxbow runs
them. Its weight files are sparse: headers with names and shapes, and holes in place of values. Tokenizers, schedulers and
model_index.json are those of tests/golden/text. Nothing is read of the values, and nobody could tell.
"""
import argparse
import gzip
import json
import os
import pathlib
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests/golden/text"
T5_XXL = {"model_type": "t5", "architectures": ["T5EncoderModel"], "vocab_size": 32128, "d_model": 4096, "d_kv": 64, "d_ff": 10240,
          "num_layers": 24, "num_heads": 64, "relative_attention_num_buckets": 32, "relative_attention_max_distance": 128,
          "feed_forward_proj": "gated-gelu", "layer_norm_epsilon": 1e-6}
UMT5_XXL = T5_XXL | {"model_type": "umt5", "architectures": ["UMT5EncoderModel"], "vocab_size": 256384}
CLIP_L = {"model_type": "clip_text_model", "architectures": ["CLIPTextModel"], "vocab_size": 49408, "hidden_size": 768,
          "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12, "max_position_embeddings": 77,
          "hidden_act": "quick_gelu", "layer_norm_eps": 1e-5, "projection_dim": 768, "eos_token_id": 2}
# Graph: golden directory, text encoders, size in pixels and frames.
PIPELINES = {
    "flux.1-dev": ("flux", {"text_encoder": CLIP_L, "text_encoder_2": T5_XXL}, (512, 512, 0)),
    "flux.1-schnell": ("flux", {"text_encoder": CLIP_L, "text_encoder_2": T5_XXL}, (512, 512, 0)),
    "wan2.1-t2v-1.3b": ("wan", {"text_encoder": UMT5_XXL}, (240, 416, 33)),
    "wan2.1-t2v-14b": ("wan", {"text_encoder": UMT5_XXL}, (240, 416, 33)),
    "qwen-image": ("qwen_image", {}, (512, 512, 0)),
    "z-image": ("z_image", {}, (512, 512, 0)),
    "flux.2-dev": ("flux2_dev", {}, (512, 512, 0)),
    "flux.2-klein-4b": ("flux2_klein", {}, (512, 512, 0)),
    "flux.2-klein-9b": ("flux2_klein", {}, (512, 512, 0)),
    "hunyuan-video": ("hunyuan_video", {}, (256, 416, 33)),
    "ltx-video-2b": ("ltx", {"text_encoder": T5_XXL}, (512, 768, 33)),
    "ltx-video-13b": ("ltx", {"text_encoder": T5_XXL}, (512, 768, 33)),
}
# Pixels of a latent, and frames, of the decoders that are not here: there the latent is the picture.
LATENTS = {"hunyuan_video": (8, 4), "ltx": (32, 8), "qwen_image": (8, 1), "z_image": (8, 1), "flux2_dev": (16, 1), "flux2_klein": (16, 1), "flux": (8, 1),
           "wan": (8, 4)}


def sparse(path, shapes):
    """A safetensors file of bfloat16 that takes no room; bytes of its tensors."""
    header, end = {}, 0
    for name, shape in sorted(shapes.items()):
        size = 2
        for side in shape:
            size *= side
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + end)
    return end


def clip_shapes(config):
    width, inner = config["hidden_size"], config["intermediate_size"]
    shapes = {"text_model.embeddings.token_embedding.weight": [config["vocab_size"], width],
              "text_model.embeddings.position_embedding.weight": [config["max_position_embeddings"], width],
              "text_model.final_layer_norm.weight": [width], "text_model.final_layer_norm.bias": [width]}
    for i in range(config["num_hidden_layers"]):
        layer = f"text_model.encoder.layers.{i}."
        for name in ("layer_norm1", "layer_norm2"):
            shapes |= {layer + name + ".weight": [width], layer + name + ".bias": [width]}
        for name, (out, into) in {"self_attn.q_proj": (width, width), "self_attn.k_proj": (width, width),
                                  "self_attn.v_proj": (width, width), "self_attn.out_proj": (width, width),
                                  "mlp.fc1": (inner, width), "mlp.fc2": (width, inner)}.items():
            shapes |= {layer + name + ".weight": [out, into], layer + name + ".bias": [out]}
    return shapes


def t5_shapes(config):
    width, inner, heads = config["d_model"], config["d_ff"], config["num_heads"]
    all_heads = heads * config["d_kv"]
    shapes = {"shared.weight": [config["vocab_size"], width], "encoder.final_layer_norm.weight": [width]}
    for i in range(config["num_layers"]):
        block = f"encoder.block.{i}.layer."
        for name in "qkv":
            shapes[f"{block}0.SelfAttention.{name}.weight"] = [all_heads, width]
        shapes |= {block + "0.SelfAttention.o.weight": [width, all_heads], block + "0.layer_norm.weight": [width],
                   block + "1.layer_norm.weight": [width], block + "1.DenseReluDense.wi_0.weight": [inner, width],
                   block + "1.DenseReluDense.wi_1.weight": [inner, width], block + "1.DenseReluDense.wo.weight": [width, inner]}
        if i == 0 or config["model_type"] == "umt5":
            shapes[block + "0.SelfAttention.relative_attention_bias.weight"] = [config["relative_attention_num_buckets"], heads]
    return shapes


def directory(name, root):
    """Writes the model; returns it and the bytes of its weights."""
    golden, encoders, _ = PIPELINES[name]
    model = root / name
    shutil.copytree(GOLDEN / f"pipeline_{golden}", model, ignore=shutil.ignore_patterns("diffusion_pytorch_model.safetensors", "graph.json.gz", "vae"))
    index = json.loads((model / "model_index.json").read_text())
    index["vae"] = [None, None]
    (model / "model_index.json").write_text(json.dumps(index))
    graph = json.loads(gzip.open(next((ROOT / "models/graphs").glob(f"*-{name}.json.gz"))).read())
    (model / "transformer/config.json").write_text(json.dumps(graph["config"] | {"_class_name": graph["class"]}))
    total = sparse(model / "transformer/diffusion_pytorch_model.safetensors",
                   {parameter["name"]: parameter["shape"] for parameter in graph["parameters"]})
    for part, config in encoders.items():
        (model / part).mkdir(exist_ok=True)
        (model / part / "config.json").write_text(json.dumps(config))
        shapes = clip_shapes(config) if config["model_type"] == "clip_text_model" else t5_shapes(config)
        total += sparse(model / part / "model.safetensors", shapes)
    tokenizers = GOLDEN / "pipeline"
    for part in ("tokenizer", "tokenizer_2"):
        if index.get(part, [None])[0] and not (model / part).exists():
            t5 = index[part][1].startswith("T5")
            source = next(tokenizers.glob("**/spiece.model")).parent if t5 else ROOT / "tests/golden/models/tokenizer"
            shutil.copytree(source, model / part)
    return model, total


def validate(oxbow, name, model, root):
    golden, _, (height, width, frames) = PIPELINES[name]
    pixels, per_latent = LATENTS[golden]
    prompts = root / "prompts.txt"
    prompts.write_text("a red cat\na blue dog\n")
    settings = [f"model.path={model}", "model.trained=lora", "model.lora.rank=32", "model.compute_dtype=bf16", "batch.groups=2",
                "model.memory=recompute", f"prompts.train={prompts}", f"prompts.eval={prompts}", f"run.directory={root}",
                "prompts.t5_length=256", f"sampling.height={height // pixels}", f"sampling.width={width // pixels}",
                "reward.terms=[{name: brightness, weight: 1}]", "reward.observed=[]", "batch.rows_per_pass=2", "replay.fraction=0",
                'model.lora.targets=["to_q","to_k","to_v","to_out.0"]']
    if frames:
        settings.append(f"sampling.frames={(frames - 1) // per_latent + 1}")
    if name == "flux.1-schnell":
        settings.append("sampling.shift=1")
    command = [oxbow, "validate", "configs/digits.yaml"] + [word for setting in settings for word in ("--set", setting)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    out = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    return os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("oxbow")
    parser.add_argument("--only", default="")
    parser.add_argument("--keep", type=pathlib.Path)
    args = parser.parse_args()
    print("| network | GB of weights | processor s | MiB at most | the learner, as it says |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as scratch:
        root = args.keep or pathlib.Path(scratch)
        for name in PIPELINES:
            if args.only not in name:
                continue
            model, total = directory(name, root)
            runs = [validate(os.path.abspath(args.oxbow), name, model, root) for _ in range(3)]
            code, _, peak, out = runs[-1]
            seconds = statistics.median(run[1] for run in runs)
            said = next((line[22:].split(";")[0].strip() for line in out.splitlines() if line.startswith("the learner")), "")
            print(f"| {name} | {total / 1e9:.1f} | {seconds:.2f} | {peak:.0f} | {said} |", flush=True)
            if code:
                print(out[-1500:], file=sys.stderr)
                sys.exit(f"{name}: exit code {code}")


if __name__ == "__main__":
    main()
