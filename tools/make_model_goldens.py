#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Golden models and tokens from diffusers and transformers, as safetensors under tests/golden/models.

Each file holds one small random model: `weight.*` its checkpoint, `in.*` the inputs, `out.*` the outputs,
`grad.*` gradients of sum(out * in.direction) for every trained tensor; its config.json is in the metadata,
with seed and versions. Weights are exact in float16 and stored so. A transformer's exported graph lies beside it, as
NAME.json.gz. Tests read nothing else.
"""
import argparse
import json
import pathlib

import diffusers
import torch
import transformers
from diffusers import SD3Transformer2DModel
from safetensors.torch import save_file
from transformers import CLIPTokenizer

from export_model.graph_file import exported_graph, write_graph
from export_model.tracing import make_transformer
from export_model.wrappers import WRAPPERS

SD3 = {
    # name: (config, batch, height, width, tokens)
    "sd3_digits": (dict(sample_size=20, patch_size=4, in_channels=1, out_channels=1, num_layers=3,
                        num_attention_heads=2, attention_head_dim=8, joint_attention_dim=16,
                        caption_projection_dim=16, pooled_projection_dim=16, pos_embed_max_size=5),
                   5, 8, 20, 6),
    "sd3_dual_rms": (dict(sample_size=8, patch_size=2, in_channels=4, out_channels=4, num_layers=3,
                          num_attention_heads=2, attention_head_dim=8, joint_attention_dim=24,
                          caption_projection_dim=16, pooled_projection_dim=12, pos_embed_max_size=6,
                          dual_attention_layers=(0, 1), qk_norm="rms_norm"),
                     3, 8, 8, 7),
    "sd3_tall_three_heads": (dict(sample_size=8, patch_size=2, in_channels=3, out_channels=3,
                                  num_layers=2, num_attention_heads=3, attention_head_dim=8,
                                  joint_attention_dim=20, caption_projection_dim=24,
                                  pooled_projection_dim=10, pos_embed_max_size=7),
                             9, 14, 6, 3),
    "sd3_last_block_dual": (dict(sample_size=6, patch_size=1, in_channels=2, out_channels=2,
                                 num_layers=2, num_attention_heads=2, attention_head_dim=12,
                                 joint_attention_dim=8, caption_projection_dim=24,
                                 pooled_projection_dim=6, pos_embed_max_size=9,
                                 dual_attention_layers=(1,), qk_norm="rms_norm"),
                            1, 3, 6, 5),
}
PROMPTS = [
    "text 473", "", "   ", "A photo of a CAT, it's 3 o'clock!!!", "we'll we're I'm don't they've he'd 'tis",
    "tabs\tand\nnew\r\nlines   and  spaces ", "12345 007 3.14", "caf\u00e9 na\u00efve \u00fcber STRASSE \u1e9e",
    "cafe\u0301 decomposed", "\u4f60\u597d\u4e16\u754c \u3053\u3093\u306b\u3061\u306f", "emoji \U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467 end",
    "\"quoted\" \u201ccurly\u201d \u2018single\u2019 \u00abguillemets\u00bb", "<|startoftext|> inside <|endoftext|> text",
    "<|STARTOFTEXT|> upper", "under_score-dash/slash\\back", "a" * 200, "\u0130stanbul I\u0131 \u03a3\u03a3 \u03c3\u03c2",
    "\u00bd \u00b2 \u0663\u0664 \u216b", "\u00a0nbsp\u2003em space\u200bzero width\ufeffbom", "text\x00null\x07bell",
    "!!!???...", "the cat the cat the cat the cat the cat the cat the cat the cat the cat the cat the cat",
    "\u0939\u093f\u0928\u094d\u0926\u0940 \u0e44\u0e17\u0e22 \u0627\u0644\u0639\u0631\u0628\u064a\u0629", "\u01c5\ufb01\ud55c\uad6d\uc5b4", "x's's 's S'S", "\u2028line sep\u0085nel",
]


def randomise(module, generator):
    """Draws every parameter, because zero or unit initialisation could hide errors."""
    for name, p in module.named_parameters():
        std = 0.5 if p.dim() == 1 and "norm" in name else (0.2 if p.dim() == 1 else p[0].numel() ** -0.5)
        p.data = torch.randn(p.shape, generator=generator) * std
        if p.dim() == 1 and "norm" in name and name.endswith("weight"):
            p.data += 1
        p.data = p.data.half().float()


def save(path, tensors, config, seed, more=None):
    half = lambda k, v: v.half() if k.startswith("weight.") and not k.endswith("pos_embed.pos_embed") else v
    tensors = {k: half(k, v).detach().contiguous().clone() for k, v in tensors.items()}
    save_file(tensors, str(path), metadata={
        "format": "pt", "config": config, "seed": str(seed), "torch": torch.__version__,
        "diffusers": diffusers.__version__, "transformers": transformers.__version__} | (more or {}))
    print(path.name, path.stat().st_size)


def graph(config, path):
    wrapper = WRAPPERS["SD3Transformer2DModel"]
    write_graph(exported_graph(wrapper, make_transformer(wrapper, config, fake=True)), path)


def sd3(out, seed, configs, gradients=True):
    for name, (config, batch, height, width, tokens) in configs.items():
        g = torch.Generator().manual_seed(seed)
        model = SD3Transformer2DModel(**config)
        randomise(model, g)
        randn = lambda *shape: torch.randn(*shape, generator=g)
        x = randn(batch, config["in_channels"], height, width)
        sigma = torch.rand(batch, generator=g)
        ctx, pooled = randn(batch, tokens, config["joint_attention_dim"]), randn(batch, config["pooled_projection_dim"])
        v = model(hidden_states=x, timestep=sigma * 1000, encoder_hidden_states=ctx, pooled_projections=pooled).sample
        direction = randn(*v.shape)
        (v * direction).sum().backward()
        t = {"in.x": x, "in.sigma": sigma, "in.tokens": ctx, "in.pooled": pooled, "in.direction": direction, "out.v": v}
        t |= {"weight." + k: w for k, w in model.state_dict().items()}
        # Gradients of one tensor of each kind; all of them would double the file.
        wanted = ("pos_embed.proj", "time_text_embed.timestep_embedder.linear_1.bias", "context_embedder.bias",
                  ".norm1.linear.bias", ".norm1_context.linear.bias", ".attn.to_q.weight", ".attn.add_k_proj.weight",
                  ".attn.to_add_out.bias", ".attn2.to_v.weight", ".norm_q.weight", ".norm_added_k.weight",
                  ".ff.net.0.proj.bias", ".ff_context.net.2.bias", "norm_out.linear.bias", "proj_out.weight")
        t |= {"grad." + k: p.grad for k, p in model.named_parameters()
              if gradients and p.grad is not None and any(w in k for w in wanted)}
        save(out / f"{name}.safetensors", t, json.dumps(dict(model.config)), seed)
        graph(config, out / f"{name}.json.gz")


def bytes_to_unicode():
    bs = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    cs, n = bs[:], 0
    for b in range(256):
        if b not in bs:
            bs.append(b)
            cs.append(256 + n)
            n += 1
    return [chr(c) for c in cs]


def tokenizer(out):
    """A vocabulary in which merges compete, and the ids that transformers gives for the prompts."""
    merges = ["t h", "th e</w>", "c a", "ca t</w>", "t e", "x t</w>", "te xt</w>", "i n", "o n</w>", "a a",
              "aa aa", "aaaa aaaa", "e n", "en d</w>", "' s</w>", "l l</w>", "' ll</w>", "o f</w>", "p h",
              "ph o", "t o</w>", "\u00c3 \u00a9</w>", "\u00e4 \u00bd", "! !", "!! !</w>", ". .", "s p", "sp a",
              "u r", "s s", "\u00cf \u0125</w>", "1 2" ]
    alphabet = bytes_to_unicode()
    vocab = alphabet + [c + "</w>" for c in alphabet] + ["".join(m.split()) for m in merges]
    vocab = list(dict.fromkeys(vocab)) + ["<|startoftext|>", "<|endoftext|>"]
    directory = out / "tokenizer"
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "vocab.json").write_text(json.dumps({t: i for i, t in enumerate(vocab)}, ensure_ascii=False), encoding="utf-8")
    (directory / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n", encoding="utf-8")
    special = {k: "<|endoftext|>" for k in ("eos_token", "pad_token", "unk_token")} | {"bos_token": "<|startoftext|>"}
    (directory / "special_tokens_map.json").write_text(json.dumps(special, indent=1) + "\n")
    (directory / "tokenizer_config.json").write_text(json.dumps(
        special | {"tokenizer_class": "CLIPTokenizer", "model_max_length": 24, "do_lower_case": True}, indent=1) + "\n")
    tok = CLIPTokenizer.from_pretrained(str(directory))
    cases = [{"prompt": p, "ids": tok(p, padding="max_length", truncation=True, max_length=24).input_ids} for p in PROMPTS]
    (out / "tokenizer_ids.json").write_text(json.dumps(
        {"transformers": transformers.__version__, "max_length": 24, "cases": cases}, indent=0) + "\n")
    print("tokenizer", len(vocab), type(tok).__name__)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("tests/golden/models"))
    parser.add_argument("--seed", type=int, default=20260101)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    sd3(args.out, args.seed, SD3)
    tokenizer(args.out)


if __name__ == "__main__":
    main()
