#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Golden text encoders, tokenizers and prompt embeddings from transformers and diffusers.

    make_text_goldens.py [--out DIR] [--seed N]         everything, small and random
    make_text_goldens.py --tokenizers MODEL --out DIR   ids of the tokenizers of a model you have

Writes, under tests/golden/text unless told otherwise:

    clip_*.safetensors, t5_*.safetensors   one small random encoder each: `weight.*`, `in.*`, `out.*`, its config.json
                                           in the metadata; weights are exact in float16 and stored so. Beside it its
                                           graph (tools/export_model), and so in each pipeline
    tokenizer_json/                        the pipeline's tokenizers as transformers 5 saves them, for the same ids
    tokens_*.json                          difficult prompts, their ids, and the tokenizer folder that gave them
    pipeline/                              text encoders and tokenizers of a tiny SD3, as diffusers saves them
    pipeline_flux/                         the same of a tiny FLUX.1, whose tokenizers are those of tokenizer_json/
    pipeline_wan/                          the same of a tiny Wan, whose tokenizer is laid out like UMT5's
    pipeline_ltx/                          the same of a tiny LTX-Video, whose tokenizer is in tokenizer_json/
    prompts_*, flux_prompts and others.safetensors   the result of its encode_prompt for `prompts` in the metadata

tools/make_language_model_goldens.py writes those whose prompts a language model reads.

Tests read every file of that shape, so another seed is another test: OXBOW_TEXT_GOLDENS=DIR text_golden_test.
Needs torch, diffusers, transformers, tokenizers and sentencepiece.
"""
import argparse
import io
import json
import pathlib
import random
import shutil
import subprocess
import sys

import diffusers
import sentencepiece
import tokenizers
import torch
import transformers
from safetensors.torch import save_file
from transformers import (CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection, CLIPTokenizer, T5Config, T5EncoderModel,
                          T5Tokenizer, UMT5Config, UMT5EncoderModel)

TOOLS = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(TOOLS))
from export_model.graph_file import exported_graph, write_graph  # noqa: E402
from export_model.model_directory import write_graphs  # noqa: E402
from export_model.tracing import make_transformer  # noqa: E402
from export_model.wrappers import WRAPPERS  # noqa: E402

WORDS = ("a photo of the cat dog red blue house running through field at night with neon sign that says hello world "
         "oil painting detailed caf\u00e9 na\u00efve \u00fcber stra\u00dfe \u041c\u043e\u0441\u043a\u0432\u0430 \u043f\u0440\u0438\u0432\u0435\u0442 \u043c\u0438\u0440 \u4f60\u597d "
         "\u4e16\u754c \u65e5\u672c\u8a9e \u3053\u3093\u306b\u3061\u306f \uc548\ub155 \ud55c\uad6d \u0627\u0644\u0639\u0631\u0628\u064a\u0629 \u0939\u093f\u0928\u094d\u0926\u0940 \u0e44\u0e17\u0e22 12 345 2024 3.14 "
         "it's don't we'll \"OPEN\" (artstation) trending, highly, ultra-realistic! \U0001f600 \U0001f389 text 473 "
         "photograph photography cinematic masterpiece best quality 8k uhd dslr").split()
# Difficult characters: marks, joiners, compatibility forms, every kind of space, brackets of
# special tokens.
TROUBLE = list("\u0301\u0323\u0307\u0308\u030a\u0338\u3099\u309a\u200b\u200c\u200d\u2060\ufeff\u00ad\u034f\ufe0f\u20e3\u202e\u2066"
               "\u0085\u00a0\u1680\u2002\u2003\u2009\u2028\u2029\u202f\u205f\u3000\t\n\r\x0b\x0c\x1f\x00\x07\x7f\ufffd"
               "\ufb01\ufb03\uff21\uff42\uff11\uff76\uff9e\u2460\u2163\u337f\ufdfa\u00bd\u00b2\u2126\u212b\u01c6\u1e9b\u0130\u0131\u00df\u1e9e\u03a3\u03c2\u03c3"
               "\u1100\u1161\u11a8\uac01\u0e33\u0939\u093f\u094d\u0915\u0937\u0958\u0644\u0627\u0660\u4e00\u20bb7\u3042\u304b\u304c"
               "'\"`\u2018\u2019\u201c\u201d\u00ab\u00bb\u2013\u2014\u2026!?.,;:-_/\\|<>()[]{}#*&%$@^~+=\u2581\u2044\u301c\uff5e"
               "aAbZ09 \U0001f600\U0001f468\U0001f1fa\U0001f1f8\U0001f44d\U0001f3fd\U0001d504\U00020000\U000e0001")
CURATED = [
    "", " ", "   ", "\n", "\t\t", "\u3000", "\u200b", "\u00a0", "\u2028", "\x85", "\r\n", "a", "A", ".", "!", "'", "\"", "\u0301", "\u3099",
    "text 473", "A photo of a CAT, it's 3 o'clock!!!", "we'll we're I'm don't they've he'd 'tis", "x's's 's S'S 'S 'LL 'Re",
    "tabs\tand\nnew\r\nlines   and  spaces ", "  leading", "trailing  ", "12345 007 3.14 1,000,000", "caf\u00e9 na\u00efve \u00fcber STRASSE \u1e9e",
    "cafe\u0301 decomposed", "\u304b\u3099 \u304c \uff76\uff9e \u30cf\u309a", "\u1100\u1161\u11a8 \uac01", "\u1e9b\u0323 q\u0307\u0323 e\u0323\u0307", "\ufb01\u0301x \uff11\u0308",
    "\u4f60\u597d\u4e16\u754c \u3053\u3093\u306b\u3061\u306f", "emoji \U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467 end", "\u2764\ufe0f 1\ufe0f\u20e3 \U0001f1fa\U0001f1f8\U0001f1eb\U0001f1f7",
    "\"quoted\" \u201ccurly\u201d \u2018single\u2019 \u00abguillemets\u00bb `tick`", "a sign that says \"Don't Panic\"", "\"\"\"\"''''",
    "<|startoftext|> inside <|endoftext|> text", "<|STARTOFTEXT|> upper <|EndOfText|>", "x<|endoftext|>y<|endoftext|", "<|startoftext|><|endoftext|>",
    "</s> hi", "<pad>x", "<unk>", "<s>", "<extra_id_0>", "a <extra_id_1>b", "<extra_id_99>", "\uff1c/s\uff1e wide", "</S>", "a\u3000</s>\u3000b",
    "under_score-dash/slash\\back", "a" * 200, "ab" * 150, "word " * 120, "\u4e00" * 90, "\U0001f600" * 40, "!" * 100, "the cat " * 30, "a b " * 20,
    "\u0130stanbul I\u0131 \u03a3\u03a3 \u03c3\u03c2 \u039f\u0394\u039f\u03a3", "\u00bd \u00b2 \u0663\u0664 \u216b \u2460", "\u00a0nbsp\u2003em space\u200bzero width\ufeffbom",
    "text\x00null\x07bell\x7f", "!!!???...", "wow! amazing! no!way", "\u0939\u093f\u0928\u094d\u0926\u0940 \u0e44\u0e17\u0e22 \u0627\u0644\u0639\u0631\u0628\u064a\u0629", "\u01c5\ufb01\ud55c\uad6d\uc5b4",
    "\u2028line sep\u0085nel", "a\u2581b \u2581 \u2581\u2581c", "http://example.org/a?b=c&d=%20", "(best quality:1.2), [blurry], {x|y}", "C++ & C# \u2014 50% off @ \u20ac3",
    "\u202eRTL\u202c \u2066iso\u2069", "soft\u00adhyphen a\u034fb \u2060w", "\ufdfa \u337f \u0344 \u0958 \u0e33", "e\u0301\u0301\u0301\u0301", "Z\u0351\u036b\u0343a\u0323l\u0337g\u031ao\u0300",
    "\uff26\uff35\uff2c\uff2c \uff57\uff49\uff44\uff45 \uff8a\uff9d\uff76\uff78", "\U0001d504\U0001d51f\U0001d520", "caf\u00c9 \u00c5 \u212b A\u030a", "1\u20442 \u00bc\u0338", "\u0915\u094d\u0937 \u0915\u094d\u200d\u0937",
]


def prompts(seed, count=180):
    """The curated prompts, then mixtures of words and difficult characters."""
    rng = random.Random(seed)
    mixed = []
    for i in range(count):
        parts = []
        for _ in range(rng.randint(1, 9)):
            parts.append(rng.choice(WORDS) if rng.random() < 0.45 else
                         "".join(rng.choice(TROUBLE) for _ in range(rng.randint(1, 4))))
        mixed.append((" " if i % 3 else "").join(parts))
    return CURATED + mixed


def corpus(seed):
    rng = random.Random(seed)
    lines = [" ".join(rng.choice(WORDS) for _ in range(rng.randint(3, 14))) for _ in range(1500)]
    visible = [c for c in TROUBLE if c.isprintable() and c != " "]
    lines += ["x " + rng.choice(visible) + rng.choice(visible) + " y" + rng.choice(visible) for _ in range(1500)]
    return lines


def clip_tokenizer_files(directory, seed, model_max_length, pad, added=None):
    """A byte-level BPE vocabulary in the layout of CLIP's own: bytes, bytes that end a word, merges, BOS, EOS."""
    directory.mkdir(parents=True, exist_ok=True)
    trained = tokenizers.Tokenizer(tokenizers.models.BPE(end_of_word_suffix="</w>"))
    trained.normalizer = tokenizers.normalizers.Sequence([tokenizers.normalizers.NFC(), tokenizers.normalizers.Lowercase()])
    trained.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([
        tokenizers.pre_tokenizers.WhitespaceSplit(), tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)])
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet(), key=lambda c: (ord(c) >= 256, ord(c)))
    trained.train_from_iterator(corpus(seed), tokenizers.trainers.BpeTrainer(
        vocab_size=620, end_of_word_suffix="</w>", initial_alphabet=alphabet, show_progress=False))
    merges = [" ".join(m) if not isinstance(m, str) else m for m in json.loads(trained.to_str())["model"]["merges"]]
    vocab = list(dict.fromkeys(alphabet + [c + "</w>" for c in alphabet] + [m.replace(" ", "") for m in merges]))
    vocab += ["<|startoftext|>", "<|endoftext|>"]
    ids = {token: i for i, token in enumerate(vocab)}
    (directory / "vocab.json").write_text(json.dumps(ids), encoding="utf-8")
    (directory / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n", encoding="utf-8")
    special = {"bos_token": "<|startoftext|>", "eos_token": "<|endoftext|>", "unk_token": "<|endoftext|>", "pad_token": pad}
    config = special | {"tokenizer_class": "CLIPTokenizer", "model_max_length": model_max_length, "do_lower_case": True}
    if added:
        config["added_tokens_decoder"] = {
            str(ids[token]): {"content": token, "lstrip": False, "normalized": normalized, "rstrip": False,
                              "single_word": False, "special": True} for token, normalized in added.items()}
    (directory / "special_tokens_map.json").write_text(json.dumps(special, indent=1) + "\n")
    (directory / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n")


def t5_tokenizer_files(directory, seed, extra_ids, **layout):
    """A unigram model like T5's: nmt_nfkc, pad 0, EOS 1, unknown 2, no BOS; `layout` may say otherwise."""
    directory.mkdir(parents=True, exist_ok=True)
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus(seed)), model_writer=model, hard_vocab_limit=False, model_type="unigram",
        character_coverage=0.9995, pad_id=0, eos_id=1, num_threads=1, minloglevel=2,
        **{"vocab_size": 420, "unk_id": 2, "bos_id": -1, **layout})
    (directory / "spiece.model").write_bytes(model.getvalue())
    config = {"tokenizer_class": "T5Tokenizer", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>",
              "extra_ids": extra_ids, "model_max_length": 512, "legacy": True}
    (directory / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n")


UMT5_LAYOUT = {"byte_fallback": True, "bos_id": 2, "unk_id": 3, "vocab_size": 700}

TOKENIZERS = {"clip": (CLIPTokenizer, 24), "clip_2": (CLIPTokenizer, 24), "t5": (T5Tokenizer, 32), "umt5": (T5Tokenizer, 32)}


def unknown_by_name(tokenizer):
    """transformers 5 takes token 2 for unknown characters in every T5; in UMT5's vocabulary <unk> is another one."""
    model = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    tokenizer.backend_tokenizer.model = tokenizers.models.Unigram(
        [tuple(piece) for piece in model["vocab"]], unk_id=tokenizer.convert_tokens_to_ids("<unk>"), byte_fallback=False)


def token_ids(out, name, directory, shown_as, seed, length=None):
    kind, small = TOKENIZERS[name]
    length = length or small
    tokenizer = kind.from_pretrained(str(directory))
    if name == "umt5":
        unknown_by_name(tokenizer)
    cases = [{"prompt": p, "ids": tokenizer(p, padding="max_length", truncation=True, max_length=length).input_ids}
             for p in prompts(seed)]
    (out / f"tokens_{name}.json").write_text(json.dumps(
        {"class": kind.__name__, "directory": str(shown_as), "max_length": length, "transformers": transformers.__version__,
         "cases": cases}, separators=(",", ":")).replace("},{", "},\n{") + "\n")
    print(f"tokens_{name}.json", len(cases), "prompts,", len(tokenizer), "tokens")


def one_file(name, directory, out):
    """The same tokenizer as transformers 5 saves it: tokenizer.json without the files that it was made from."""
    kind, length = TOKENIZERS[name]
    tokenizer = kind.from_pretrained(str(directory))
    if name == "umt5":
        unknown_by_name(tokenizer)
    tokenizer.save_pretrained(str(out))
    again = kind.from_pretrained(str(out))
    if name == "umt5":
        unknown_by_name(again)
    for prompt in prompts(0):
        assert tokenizer(prompt).input_ids == again(prompt).input_ids, prompt
    file = out / "tokenizer.json"
    file.write_text(json.dumps(json.loads(file.read_text()), separators=(",", ":")) + "\n")
    print(file, file.stat().st_size)


def randomise(module, generator):
    """Draws every parameter, because zero or unit initialisation could hide errors."""
    for name, p in module.named_parameters():
        std = 0.5 if p.dim() == 1 and "norm" in name else (0.2 if p.dim() == 1 else p[0].numel() ** -0.5)
        if "relative_attention_bias" in name or "embed" in name or "shared" in name:
            std = 0.7
        p.data = torch.randn(p.shape, generator=generator) * std
        if p.dim() == 1 and "norm" in name and name.endswith("weight"):
            p.data += 1
        p.data = p.data.half().float()


def save(path, tensors, metadata):
    half = lambda k, v: v.half() if k.startswith("weight.") else v
    save_file({k: half(k, v).detach().contiguous().clone() for k, v in tensors.items()}, str(path), metadata={
        "format": "pt", "torch": torch.__version__, "diffusers": diffusers.__version__,
        "transformers": transformers.__version__, **metadata})
    print(path.name, path.stat().st_size)


def save_encoder(path, tensors, model, seed):
    """The file of an encoder, and its graph."""
    config, wrapper = model.config, WRAPPERS[type(model).__name__]
    save(path.with_suffix(".safetensors"), tensors, {"config": config.to_json_string(), "seed": str(seed)})
    write_graph(exported_graph(wrapper, make_transformer(wrapper, config.to_dict(), fake=True)), path.with_suffix(".graph.json.gz"))


def clip_config(**kw):
    return CLIPTextConfig(**{**dict(vocab_size=60, bos_token_id=58, eos_token_id=59, pad_token_id=59,
                                    max_position_embeddings=11, hidden_act="quick_gelu"), **kw})


CLIP = {
    # name: (config, batch). eos_token_id 2 is the value in published configs; the pooled token is
    # then argmax(ids).
    "clip_quick_gelu_deep": (dict(hidden_size=24, intermediate_size=40, projection_dim=20, num_hidden_layers=5, num_attention_heads=4), 3),
    "clip_gelu_projection": (dict(hidden_size=20, intermediate_size=48, projection_dim=28, num_hidden_layers=3, num_attention_heads=5, hidden_act="gelu"), 9),
    "clip_one_layer": (dict(hidden_size=16, intermediate_size=24, projection_dim=8, num_hidden_layers=1, num_attention_heads=1), 1),
    "clip_legacy_eos": (dict(hidden_size=32, intermediate_size=32, projection_dim=32, num_hidden_layers=2, num_attention_heads=8, eos_token_id=2, pad_token_id=1), 5),
    "clip_gelu_legacy_eos_pad_0": (dict(hidden_size=18, intermediate_size=72, projection_dim=18, num_hidden_layers=4, num_attention_heads=3, hidden_act="gelu", eos_token_id=2, pad_token_id=0), 8),
    "clip_long": (dict(hidden_size=16, intermediate_size=32, projection_dim=12, num_hidden_layers=2, num_attention_heads=2, max_position_embeddings=77, layer_norm_eps=1e-3), 2),
}


def clip(out, seed):
    for name, (config, batch) in CLIP.items():
        g = torch.Generator().manual_seed(seed)
        config = clip_config(**config)
        model = CLIPTextModelWithProjection(config).eval()
        randomise(model, g)
        length = config.max_position_embeddings
        ids = torch.randint(3, 57, (batch, length), generator=g)
        ids[:, 0] = 58
        for row in range(batch):
            end = int(torch.randint(1, length, (1,), generator=g))
            ids[row, end:] = config.pad_token_id
            ids[row, end] = 59
        with torch.no_grad():
            o = model(input_ids=ids, output_hidden_states=True)
        t = {"in.ids": ids, "out.penultimate": o.hidden_states[-2], "out.pooled": o.text_embeds}
        t |= {"weight." + k: w for k, w in model.state_dict().items()}
        save_encoder(out / name, t, model, seed)


T5 = {
    # name: (config, class, batch, length, names of the token table, with mask)
    "t5_small": (dict(d_model=16, d_kv=4, d_ff=24, num_layers=2, num_heads=3), T5EncoderModel, 3, 9, "shared", False),
    "t5_past_max_distance": (dict(d_model=12, d_kv=6, d_ff=20, num_layers=2, num_heads=2), T5EncoderModel, 1, 150, "shared", False),
    "t5_few_buckets": (dict(d_model=20, d_kv=5, d_ff=28, num_layers=3, num_heads=4, relative_attention_num_buckets=8,
                            relative_attention_max_distance=20), T5EncoderModel, 2, 40, "embed_tokens", False),
    "t5_wide_heads": (dict(d_model=16, d_kv=12, d_ff=16, num_layers=4, num_heads=2, layer_norm_epsilon=1e-3), T5EncoderModel, 5, 6, "both", False),
    "t5_masked": (dict(d_model=24, d_kv=8, d_ff=32, num_layers=2, num_heads=3), UMT5EncoderModel, 4, 21, "shared", True),
    "t5_one_layer_one_token": (dict(d_model=8, d_kv=8, d_ff=12, num_layers=1, num_heads=1), T5EncoderModel, 2, 1, "shared", False),
    "t5_bias_per_block": (dict(d_model=16, d_kv=4, d_ff=24, num_layers=3, num_heads=4), UMT5EncoderModel, 3, 18, "shared", True),
}


def t5(out, seed):
    for name, (config, kind, batch, length, table, masked) in T5.items():
        g = torch.Generator().manual_seed(seed)
        config = (UMT5Config if kind is UMT5EncoderModel else T5Config)(
            vocab_size=50, feed_forward_proj="gated-gelu", dropout_rate=0.0, **config)
        model = kind(config).eval()
        randomise(model, g)
        model.encoder.embed_tokens.weight = model.shared.weight
        ids = torch.randint(0, 50, (batch, length), generator=g)
        t = {"in.ids": ids}
        if masked:
            ends = torch.randint(1, length + 1, (batch,), generator=g)
            t["in.mask"] = torch.arange(length)[None] < ends[:, None]
        with torch.no_grad():
            t["out.hidden"] = model(input_ids=ids, attention_mask=t["in.mask"].long() if masked else None).last_hidden_state
        weights = {k: w for k, w in model.state_dict().items() if k not in ("shared.weight", "encoder.embed_tokens.weight")}
        names = {"shared": ["shared.weight"], "embed_tokens": ["encoder.embed_tokens.weight"],
                 "both": ["shared.weight", "encoder.embed_tokens.weight"]}[table]
        t |= {"weight." + k: w for k, w in weights.items()} | {"weight." + k: model.shared.weight for k in names}
        save_encoder(out / name, t, model, seed)


def half_files(directory, name="model.safetensors"):
    """Stores the weights in 16 bits, in which an encoder's weights are exact: half the size."""
    from safetensors.torch import load_file
    path = directory / name
    save_file({k: v.half() if v.is_floating_point() else v for k, v in load_file(str(path)).items()}, str(path), metadata={"format": "pt"})


def pipeline(out, seed):
    """A tiny SD3: two CLIPs whose tokenizers pad differently, T5, and the result of encode_prompt.

    Its graph.json.gz is not written here: `python -m export_model export SD3Transformer2DModel` writes it."""
    root = out / "pipeline"
    if root.exists():
        shutil.rmtree(root)
    clip_tokenizer_files(root / "tokenizer", seed, 24, "<|endoftext|>", {"<|startoftext|>": True, "<|endoftext|>": False})
    clip_tokenizer_files(root / "tokenizer_2", seed, 24, "!", {"!": False, "<|startoftext|>": True, "<|endoftext|>": True})
    t5_tokenizer_files(root / "tokenizer_3", seed, 5)
    g = torch.Generator().manual_seed(seed)
    first, second = (CLIPTokenizer.from_pretrained(str(root / f)) for f in ("tokenizer", "tokenizer_2"))
    third = T5Tokenizer.from_pretrained(str(root / "tokenizer_3"))
    shared = dict(bos_token_id=len(first) - 2, eos_token_id=2, vocab_size=len(first), max_position_embeddings=24)
    encoders = [
        CLIPTextModelWithProjection(clip_config(hidden_size=12, intermediate_size=20, projection_dim=10, num_hidden_layers=3,
                                                num_attention_heads=2, **shared)),
        CLIPTextModelWithProjection(clip_config(hidden_size=16, intermediate_size=24, projection_dim=14, num_hidden_layers=2,
                                                num_attention_heads=4, hidden_act="gelu", **shared)),
        T5EncoderModel(T5Config(vocab_size=len(third) + 11, d_model=36, d_kv=6, d_ff=24, num_layers=2, num_heads=2,
                                feed_forward_proj="gated-gelu")),
    ]
    for encoder in encoders:
        randomise(encoder.eval(), g)
    encoders[2].encoder.embed_tokens.weight = encoders[2].shared.weight
    transformer = diffusers.SD3Transformer2DModel(
        sample_size=8, patch_size=2, in_channels=4, out_channels=4, num_layers=1, num_attention_heads=1, attention_head_dim=8,
        joint_attention_dim=36, caption_projection_dim=8, pooled_projection_dim=24, pos_embed_max_size=4)
    make = lambda t5_encoder: diffusers.StableDiffusion3Pipeline(
        transformer=transformer, scheduler=diffusers.FlowMatchEulerDiscreteScheduler(shift=3.0), vae=None,
        text_encoder=encoders[0], tokenizer=first, text_encoder_2=encoders[1], tokenizer_2=second,
        text_encoder_3=t5_encoder, tokenizer_3=third)
    transformer.save_pretrained(root / "transformer")
    half_files(root / "transformer", "diffusion_pytorch_model.safetensors")
    make(None).scheduler.save_pretrained(root / "scheduler")
    names = {"transformer": ("diffusers", "SD3Transformer2DModel"), "scheduler": ("diffusers", "FlowMatchEulerDiscreteScheduler"),
             "text_encoder": ("transformers", "CLIPTextModelWithProjection"), "text_encoder_2": ("transformers", "CLIPTextModelWithProjection"),
             "text_encoder_3": ("transformers", "T5EncoderModel"), "tokenizer": ("transformers", "CLIPTokenizer"),
             "tokenizer_2": ("transformers", "CLIPTokenizer"), "tokenizer_3": ("transformers", "T5TokenizerFast"),
             "vae": (None, None), "image_encoder": (None, None), "feature_extractor": (None, None)}
    (root / "model_index.json").write_text(json.dumps({"_class_name": "StableDiffusion3Pipeline"} | names, indent=1) + "\n")
    for i, encoder in enumerate(encoders):
        folder = root / ("text_encoder" if i == 0 else f"text_encoder_{i + 1}")
        encoder.save_pretrained(folder)
        half_files(folder)
    write_graphs(root, "text_encoder")
    texts = ["", "text 473", "A photo of a CAT! it's \"OPEN\" \u304b\u3099", "wow! " * 30, "\u4f60\u597d caf\u00e9 \U0001f600", "a <extra_id_0> b</s>"]
    for name, t5_encoder, length in (("prompts_t5_16", encoders[2], 16), ("prompts_t5_40", encoders[2], 40), ("prompts_without_t5", None, 7)):
        with torch.no_grad():
            tokens, negative, pooled, negative_pooled = make(t5_encoder).encode_prompt(
                texts, None, None, do_classifier_free_guidance=True, max_sequence_length=length, device="cpu")
        save(out / f"{name}.safetensors", {"out.tokens": tokens, "out.pooled": pooled, "out.negative_tokens": negative[:1],
                                           "out.negative_pooled": negative_pooled[:1]},
             {"prompts": json.dumps(texts), "directory": "pipeline", "t5_length": str(length), "width": "36",
              "t5": "yes" if t5_encoder is not None else "no", "seed": str(seed)})
    for path in out.rglob("*.safetensors"):
        path.chmod(0o644)


def flux(out, seed):
    """A tiny FLUX.1 without embedded guidance, saved with transformers 5, and the result of encode_prompt.

    Its two graph.json.gz are not written here: `python -m export_model export` writes them for FluxTransformer2DModel and
    AutoencoderKL.
    """
    root = out / "pipeline_flux"
    if root.exists():
        shutil.rmtree(root)
    g = torch.Generator().manual_seed(seed + 1)
    first = CLIPTokenizer.from_pretrained(str(out / "tokenizer_json" / "tokenizer"))
    second = T5Tokenizer.from_pretrained(str(out / "tokenizer_json" / "tokenizer_3"))
    encoders = [
        CLIPTextModel(clip_config(hidden_size=12, intermediate_size=20, projection_dim=10, num_hidden_layers=2, num_attention_heads=2,
                                  bos_token_id=len(first) - 2, eos_token_id=2, vocab_size=len(first), max_position_embeddings=24)),
        T5EncoderModel(T5Config(vocab_size=len(second) + 11, d_model=20, d_kv=6, d_ff=24, num_layers=2, num_heads=2,
                                feed_forward_proj="gated-gelu")),
    ]
    for encoder in encoders:
        randomise(encoder.eval(), g)
    encoders[1].encoder.embed_tokens.weight = encoders[1].shared.weight
    transformer = diffusers.FluxTransformer2DModel(
        patch_size=1, in_channels=16, num_layers=1, num_single_layers=1, attention_head_dim=16, num_attention_heads=2,
        joint_attention_dim=20, pooled_projection_dim=12, guidance_embeds=False, axes_dims_rope=(4, 6, 6))
    vae = diffusers.AutoencoderKL(
        latent_channels=4, block_out_channels=(4, 8), down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2, layers_per_block=1, norm_num_groups=2, use_quant_conv=False,
        use_post_quant_conv=False, scaling_factor=0.36, shift_factor=0.12, sample_size=32)
    for part in (transformer, vae):
        randomise(part.eval(), g)
    pipe = diffusers.FluxPipeline(
        transformer=transformer, scheduler=diffusers.FlowMatchEulerDiscreteScheduler(), vae=vae, text_encoder=encoders[0],
        tokenizer=first, text_encoder_2=encoders[1], tokenizer_2=second)
    pipe.save_pretrained(root)
    for folder in ("tokenizer", "tokenizer_2"):  # They lie in tokenizer_json.
        shutil.rmtree(root / folder)
    for folder in ("transformer", "vae"):
        half_files(root / folder, "diffusion_pytorch_model.safetensors")
    for folder in ("text_encoder", "text_encoder_2"):
        half_files(root / folder)
    write_graphs(root, "text_encoder")
    texts = ["", "text 473", "A photo of a CAT! it's \"OPEN\" \u304b\u3099", "wow! " * 30, "a <extra_id_0> b</s>"]
    with torch.no_grad():
        tokens, pooled, _ = pipe.encode_prompt(texts, None, device="cpu", max_sequence_length=19)
    save(out / "flux_prompts.safetensors", {"out.tokens": tokens, "out.pooled": pooled},
         {"prompts": json.dumps(texts), "directory": "pipeline_flux", "t5_length": "19", "seed": str(seed)})
    for path in root.rglob("*.safetensors"):
        path.chmod(0o644)


def wan(out, seed):
    """A tiny Wan with UMT5, and the result of encode_prompt with ftfy; its decoder is not written here.

    Its graph.json.gz is not written here: `python -m export_model export WanTransformer3DModel` writes it.
    """
    root = out / "pipeline_wan"
    if root.exists():
        shutil.rmtree(root)
    g = torch.Generator().manual_seed(seed + 2)
    t5_tokenizer_files(root / "tokenizer", seed, 30, **UMT5_LAYOUT)
    tokenizer = T5Tokenizer.from_pretrained(str(root / "tokenizer"))
    unknown_by_name(tokenizer)
    encoder = UMT5EncoderModel(UMT5Config(vocab_size=len(tokenizer) + 3, d_model=20, d_kv=6, d_ff=24, num_layers=3, num_heads=2,
                                          feed_forward_proj="gated-gelu")).eval()
    randomise(encoder, g)
    encoder.encoder.embed_tokens.weight = encoder.shared.weight
    transformer = diffusers.WanTransformer3DModel(
        patch_size=(1, 2, 2), num_attention_heads=2, attention_head_dim=12, in_channels=4, out_channels=4, text_dim=20, freq_dim=16,
        ffn_dim=20, num_layers=2, cross_attn_norm=True, rope_max_seq_len=32)
    randomise(transformer.eval(), g)
    scheduler = diffusers.UniPCMultistepScheduler(prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=3.0)
    pipe = diffusers.WanPipeline(tokenizer=tokenizer, text_encoder=encoder, vae=None, scheduler=scheduler, transformer=transformer)
    for name in ("transformer", "text_encoder", "scheduler"):
        getattr(pipe, name).save_pretrained(root / name)
    names = {"transformer": ("diffusers", "WanTransformer3DModel"), "scheduler": ("diffusers", "UniPCMultistepScheduler"),
             "text_encoder": ("transformers", "UMT5EncoderModel"), "tokenizer": ("transformers", "T5TokenizerFast"),
             "vae": (None, None), "transformer_2": (None, None)}
    (root / "model_index.json").write_text(json.dumps({
        "_class_name": "WanPipeline", "boundary_ratio": None, "expand_timesteps": False} | names, indent=1) + "\n")
    half_files(root / "transformer", "diffusion_pytorch_model.safetensors")
    half_files(root / "text_encoder")
    write_graphs(root, "text_encoder")
    texts = ["", "text 473", "A photo of a CAT! it's \"OPEN\" \u304b\u3099", "wow! " * 40, "a <extra_id_0> b</s> c", "<pad>x",
             "  two\t\n spaces\u3000 ", "caf&eacute; &amp;amp; &lt;neon&gt; &#20320;&#22909;", "\u201cOPEN\u201d \uff26\uff35\uff2c\uff2c \ufb01eld",
             "\u4f60\u597d \U0001f600 \u0416", "a\u0000b\ufeff red"]
    with torch.no_grad():
        tokens, negative = pipe.encode_prompt(texts, None, True, max_sequence_length=37, device="cpu")
    save(out / "wan_prompts.safetensors", {"out.tokens": tokens, "out.negative_tokens": negative[:1]},
         {"prompts": json.dumps(texts), "directory": "pipeline_wan", "t5_length": "37", "seed": str(seed)})
    (out / "clean_prompts.json").write_text(json.dumps(clean_prompts(seed), separators=(",", ":")).replace("],[", "],\n[") + "\n")
    token_ids(out, "umt5", root / "tokenizer", "pipeline_wan/tokenizer", seed)
    one_file("umt5", root / "tokenizer", out / "tokenizer_json" / "tokenizer_umt5")
    for path in [*root.rglob("*.safetensors"), out / "wan_prompts.safetensors"]:
        path.chmod(0o644)


def ltx(out, seed):
    """A tiny LTX-Video without its transformer's weights, and the result of encode_prompt: T5's words and their mask."""
    root = out / "pipeline_ltx"
    if root.exists():
        shutil.rmtree(root)
    tokenizer = T5Tokenizer.from_pretrained(str(out / "tokenizer_json" / "tokenizer_3"))
    encoder = T5EncoderModel(T5Config(vocab_size=len(tokenizer) + 5, d_model=16, d_kv=6, d_ff=24, num_layers=2, num_heads=2,
                                      feed_forward_proj="gated-gelu")).eval()
    randomise(encoder, torch.Generator().manual_seed(seed + 4))
    encoder.encoder.embed_tokens.weight = encoder.shared.weight
    pipe = diffusers.LTXPipeline(
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(), vae=None, tokenizer=tokenizer, text_encoder=encoder,
        transformer=diffusers.LTXVideoTransformer3DModel(
            in_channels=3, out_channels=3, num_attention_heads=2, attention_head_dim=8, cross_attention_dim=16, num_layers=1,
            caption_channels=16))
    pipe.save_pretrained(root)
    shutil.rmtree(root / "tokenizer")  # It lies in tokenizer_json.
    half_files(root / "text_encoder")
    write_graphs(root, "text_encoder")
    texts = ["", "text 473", "A photo of a CAT! it's \"OPEN\" \u304b\u3099", "wow! " * 40, "a <extra_id_0> b</s> c", "<pad>x",
             "x<pad>", "</s>", "  two\t\n spaces\u3000 ", "caf&eacute; &amp;amp; &lt;neon&gt;", "\u201cOPEN\u201d \uff26\uff35\uff2c\uff2c \ufb01eld",
             "\u4f60\u597d \U0001f600 \u0416", "a\u0000b\ufeff red"]
    with torch.no_grad():
        tokens, mask, negative, negative_mask = pipe.encode_prompt(texts, device="cpu", max_sequence_length=37)
    save(out / "ltx_prompts.safetensors",
         {"out.tokens": tokens, "out.mask": mask.float(), "out.negative_tokens": negative[:1], "out.negative_mask": negative_mask[:1].float()},
         {"prompts": json.dumps(texts), "directory": "pipeline_ltx", "t5_length": "37", "seed": str(seed)})
    (root / "transformer" / "diffusion_pytorch_model.safetensors").unlink()  # Tests draw them.
    graph_and_adapter(root, pipe.transformer, LTX_TARGETS)
    for path in [*root.rglob("*.safetensors"), out / "ltx_prompts.safetensors"]:
        path.chmod(0o644)


def clean_prompts(seed):
    """Prompts and WanPipeline's reading of them, with ftfy; without those that need what is left out here."""
    import ftfy
    from diffusers.pipelines.wan.pipeline_wan import prompt_clean
    left_out = ftfy.TextFixerConfig(unescape_html=False, fix_encoding=False, fix_c1_controls=False, remove_terminal_escapes=False)
    html = ["&lt;b&gt;", "&amp;amp;", "&eacute", "&#x1f600;", "&nbsp;&nbsp;a", "&notanentity;", "&quot;OPEN&quot;", "&#0;", "&amp;lt;"]
    rng = random.Random(seed + 3)
    texts = prompts(seed) + html + ["".join(rng.choice(html + TROUBLE + WORDS + [" "]) for _ in range(9)) for _ in range(150)]
    return [[text, prompt_clean(text)] for text in texts if ftfy.fix_text(text) == ftfy.fix_text(text, left_out)]


LTX_TARGETS = ["attn1.to_q", "attn2.to_k", "to_out.0", "ff.net.2"]


def adapter(transformer, targets):
    """The modules that PEFT gives an adapter for these targets."""
    import peft
    transformer.add_adapter(peft.LoraConfig(r=1, target_modules=targets))
    names = sorted(name.removesuffix(".lora_A.default") for name, _ in transformer.named_modules() if name.endswith(".lora_A.default"))
    return {"targets": targets, "modules": names}


def graph_and_adapter(root, transformer, targets):
    """graph.json.gz of a pipeline's transformer, and adapter.json."""
    config = root.absolute() / "transformer" / "config.json"
    subprocess.run([sys.executable, "-m", "export_model", "export", type(transformer).__name__, "--config", config, "--out", config.parent],
                   cwd=TOOLS, check=True)
    (root / "adapter.json").write_text(json.dumps(adapter(transformer, targets)) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("tests/golden/text"))
    parser.add_argument("--seed", type=int, default=20260202)
    parser.add_argument("--tokenizers", type=pathlib.Path, help="a diffusers directory: ids of its tokenizers alone")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    diffusers.utils.logging.set_verbosity_error()
    transformers.logging.set_verbosity_error()
    if args.tokenizers:
        for name, folder, length in (("clip", "tokenizer", 77), ("clip_2", "tokenizer_2", 77), ("t5", "tokenizer_3", 256)):
            if (args.tokenizers / folder).is_dir():
                directory = (args.tokenizers / folder).resolve()
                token_ids(args.out, name, directory, directory, args.seed, length)
        return
    clip(args.out, args.seed)
    t5(args.out, args.seed)
    pipeline(args.out, args.seed)
    for name, folder in (("clip", "tokenizer"), ("clip_2", "tokenizer_2"), ("t5", "tokenizer_3")):
        token_ids(args.out, name, args.out / "pipeline" / folder, pathlib.Path("pipeline") / folder, args.seed)
        one_file(name, args.out / "pipeline" / folder, args.out / "tokenizer_json" / folder)
    flux(args.out, args.seed)
    wan(args.out, args.seed)
    ltx(args.out, args.seed)


if __name__ == "__main__":
    main()
