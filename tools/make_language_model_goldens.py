#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Golden tokenizers of language models, and prompts that they read, from transformers and diffusers.

    make_language_model_goldens.py [--out DIR] [--seed N] [NAME...]   all, or those parts

Writes, under tests/golden/text unless told otherwise:

    tokenizer_qwen2/, tokenizer_tekken/    tokenizers, and byte_pairs_*.json the ids that they give difficult texts
    pipeline_qwen_image/ and others        tiny random ones whose prompts a language model reads, with its graph
    qwen_image_prompts.safetensors and others   the result of encode_prompt for `prompts` in the metadata
    encoded_hunyuan_video/                 the room that tools/encode_prompts fills

Needs the packages of tools/make_text_goldens.py, and peft.
"""
import argparse
import json
import pathlib
import random
import shutil
import subprocess
import sys

import diffusers
import tokenizers
import torch
import transformers

TOOLS = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(TOOLS), str(TOOLS / "encode_prompts"), str(TOOLS / "encode_prompts" / "tests")]
import small  # noqa: E402
from export_model.model_directory import write_graphs  # noqa: E402
from make_text_goldens import TROUBLE, WORDS, corpus, graph_and_adapter, half_files, prompts, randomise, save  # noqa: E402

QWEN2_WORDS = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
# Name: words, NFC, whether words that are tokens are merged, class, special tokens, the end of the text among them.
BYTE_PAIRS = {
    "qwen2": (QWEN2_WORDS, True, False, "Qwen2Tokenizer", ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]),
    "tekken": (small.TEKKEN_WORDS, False, True, "PreTrainedTokenizerFast",
               ["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "<pad>"])}


def byte_pairs(out, seed, name, count=180):
    """A small tokenizer with the rules of a published one, and ids of difficult texts: tokenizer_NAME/ and byte_pairs_NAME.json."""
    words, composes, ignore_merges, kind, special = BYTE_PAIRS[name]
    directory = out / f"tokenizer_{name}"
    directory.mkdir(parents=True, exist_ok=True)
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.normalizer = tokenizers.normalizers.NFC() if composes else None
    made.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([
        tokenizers.pre_tokenizers.Split(tokenizers.Regex(words), "isolated"),
        tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    made.train_from_iterator(corpus(seed), tokenizers.trainers.BpeTrainer(
        vocab_size=600, special_tokens=[] if composes else special, show_progress=False,
        initial_alphabet=sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())))
    made.add_special_tokens([tokenizers.AddedToken(token, special=True, normalized=False) for token in special])
    made.add_tokens([tokenizers.AddedToken("<think>", normalized=False), tokenizers.AddedToken("neon glow", normalized=True)])
    made.decoder = tokenizers.decoders.ByteLevel()
    file = json.loads(made.to_str())
    file["model"]["ignore_merges"] = ignore_merges
    (directory / "tokenizer.json").write_text(json.dumps(file, separators=(",", ":")) + "\n")
    ends = {"pad_token": special[0] if composes else special[-1], "eos_token": special[-1] if composes else special[2]}
    config = {"tokenizer_class": kind, **ends} | ({} if composes else {"bos_token": "<s>", "unk_token": "<unk>", "padding_side": "left"})
    (directory / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n")
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(directory))
    rng = random.Random(seed + 1)
    texts = prompts(seed, count) + ["Neon GLOW neon glow", "'S'T'\u017f 'Ll'\u017fx", "a<think>b", "<|im_start|>user\n[INST]hi[/INST]<|im_end|>"]
    texts += ["".join(rng.choice(special + TROUBLE + WORDS + ["\n", " ", "  ", "/", "\r\n"]) for _ in range(rng.randint(1, 12)))
              for _ in range(count)]
    cases = [{"text": t, "ids": tokenizer(t, add_special_tokens=False).input_ids} for t in texts]
    (out / f"byte_pairs_{name}.json").write_text(json.dumps(
        {"directory": directory.name, "transformers": transformers.__version__, "cases": cases},
        separators=(",", ":")).replace("},{", "},\n{") + "\n")
    print(f"byte_pairs_{name}.json", len(cases), "texts,", len(tokenizer), "tokens")


# Pipelines whose prompts a language model reads: how many tokens a prompt has, targets of an adapter.
READ = {
    "qwen_image": ("QwenImagePipeline", 256, ["attn.to_q", "attn.add_k_proj", "img_mlp.net.2"]),
    "z_image": ("ZImagePipeline", 64, ["attention.to_q", "attention.to_out.0", "feed_forward.w2"]),
    "flux2_dev": ("Flux2Pipeline", 256, ["attn.to_q", "attn.to_out.0", "attn.to_qkv_mlp_proj", "ff.linear_in"]),
    "flux2_klein": ("Flux2KleinPipeline", 80, ["attn.to_q", "attn.to_out.0", "attn.to_qkv_mlp_proj", "ff.linear_in"])}
HUNYUAN_VIDEO = ("HunyuanVideoPipeline", 128, ["attn.to_q", "attn.to_add_out", "proj_mlp", "ff.net.0.proj"])


def small_pipeline(root, seed, pipeline_class, keeps_transformer=False):
    """A small pipeline in the directory, weights in 16 bits; tests draw those of the transformer."""
    if root.exists():
        shutil.rmtree(root)
    pipe = small.save(pipeline_class, root, seed)
    for encoder in root.glob("text_encoder*"):
        half_files(encoder)
    half_files(root / "transformer", "diffusion_pytorch_model.safetensors")
    if not keeps_transformer:
        (root / "transformer" / "diffusion_pytorch_model.safetensors").unlink()
    return pipe


def read_prompts(pipe, texts, tokens):
    """The result of encode_prompt, as the transformer's wrapper in tools/export_model takes it."""
    from pipelines import filled
    kind = type(pipe).__name__
    with torch.no_grad():
        if kind == "ZImagePipeline":
            rows, _ = pipe.encode_prompt(list(texts), device="cpu", do_classifier_free_guidance=False, max_sequence_length=tokens)
        else:
            rows, mask = pipe.encode_prompt(texts, device="cpu", max_sequence_length=tokens)
    if kind.startswith("Flux2"):
        return {"out.tokens": rows}
    if kind == "QwenImagePipeline":
        rows = [row if mask is None else row[mask[i].bool()] for i, row in enumerate(rows)]
    whole, mask = filled(rows, tokens)
    return {"out.tokens": whole, "out.mask": mask}


def read(out, seed, name):
    """A pipeline, the graphs of its transformer and text encoder, adapter.json, and the result of encode_prompt: NAME_prompts."""
    pipeline_class, tokens, targets = READ[name]
    root = out / f"pipeline_{name}"
    pipe = small_pipeline(root, seed, pipeline_class, name == "qwen_image")
    graph_and_adapter(root, pipe.transformer, targets)
    reader(out, seed, name, pipe)


def reader(out, seed, name, pipe):
    """The text encoder's part of `read`."""
    _, tokens, _ = READ[name]
    root = out / f"pipeline_{name}"
    randomise(pipe.text_encoder, torch.Generator().manual_seed(seed + 5))
    pipe.text_encoder.save_pretrained(root / "text_encoder")
    half_files(root / "text_encoder")
    write_graphs(root, "text_encoder")
    texts = ["a red cat", "", "\u4f60\u597d [IMG]<|im_end|>it's \U0001f600 " + "a long prompt " * 20]
    save(out / f"{name}_prompts.safetensors", read_prompts(pipe, texts, tokens),
         {"prompts": json.dumps(texts), "directory": root.name, "t5_length": str(tokens), "seed": str(seed)})
    for path in [*root.rglob("*.safetensors"), out / f"{name}_prompts.safetensors"]:
        path.chmod(0o644)


def hunyuan_video(out, seed):
    """A pipeline whose prompts are encoded outside: the graph of its transformer, adapter.json, the room of tools/encode_prompts."""
    pipeline_class, tokens, targets = HUNYUAN_VIDEO
    root, room = out / "pipeline_hunyuan_video", out / "encoded_hunyuan_video"
    if room.exists():
        shutil.rmtree(room)
    pipe = small_pipeline(root, seed, pipeline_class)
    graph_and_adapter(root, pipe.transformer, targets)
    texts = out / "texts.jsonl"
    texts.write_text('{"prompt": "a red cat"}\n{"prompt": ""}\n')
    subprocess.run([sys.executable, TOOLS / "encode_prompts", "--model", root, "--cache", room, "--tokens", str(tokens),
                    "--prompts", texts], check=True)
    texts.unlink()
    for path in root.rglob("*.safetensors"):
        path.chmod(0o644)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("tests/golden/text"))
    parser.add_argument("--seed", type=int, default=20260202)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join([*BYTE_PAIRS, *READ, "hunyuan_video"]))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    diffusers.utils.logging.set_verbosity_error()
    transformers.logging.set_verbosity_error()
    for name in args.names or [*BYTE_PAIRS, *READ, "hunyuan_video"]:
        if name in BYTE_PAIRS:
            byte_pairs(args.out, args.seed, name)
        elif name in READ:
            read(args.out, args.seed, name)
        elif name == "hunyuan_video":
            hunyuan_video(args.out, args.seed)
        else:
            parser.error(f"no part '{name}'")


if __name__ == "__main__":
    main()
