# SPDX-License-Identifier: Apache-2.0
"""Small tokenizers and text encoders, with the files that transformers loads them from.

A CLIP reads letters one by one but for one word; a T5 has a piece for each word and each digit of the prompts.
"""
import json

import tokenizers
import torch
import transformers

BEGIN, END = "<|startoftext|>", "<|endoftext|>"
SPACE = "\u2581"


def write_json(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def merges_of(symbols):
    """The merges that make one token of these symbols, halves first: "t e", "x t</w>", "te xt</w>"."""
    if len(symbols) < 2:
        return []
    half = len(symbols) // 2
    return [*merges_of(symbols[:half]), *merges_of(symbols[half:]),
            f"{''.join(symbols[:half])} {''.join(symbols[half:])}"]


def clip_tokenizer(folder, word, prompts):
    """Byte-level BPE: 256 bytes, the same at the end of a word, merges, begin, end."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    alphabet = [chr(byte) for byte in printable] + [chr(256 + i) for i in range(256 - len(printable))]
    merges = merges_of([*word[:-1], word[-1] + "</w>"])
    words = [*alphabet, *(symbol + "</w>" for symbol in alphabet), *(merge.replace(" ", "") for merge in merges), BEGIN, END]
    folder.mkdir(parents=True)
    (folder / "vocab.json").write_text(json.dumps({symbol: i for i, symbol in enumerate(words)}, ensure_ascii=False,
                                                  separators=(",", ":")))
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *merges]) + "\n")
    special = {"bos_token": BEGIN, "eos_token": END, "pad_token": END, "unk_token": END}
    write_json(folder / "special_tokens_map.json", special)
    tokenizer = transformers.CLIPTokenizer.from_pretrained(folder)
    length = max(len(ids) for ids in tokenizer(prompts).input_ids)
    write_json(folder / "tokenizer_config.json", special | {
        "tokenizer_class": "CLIPTokenizer", "model_max_length": length, "do_lower_case": True})
    return transformers.CLIPTokenizer.from_pretrained(folder)


def clip_encoder(tokenizer, projected, width, pooled):
    """Two layers. With a projection `pooled` is its size, else that of the whole encoder."""
    kind = transformers.CLIPTextModelWithProjection if projected else transformers.CLIPTextModel
    config = {
        "architectures": [kind.__name__], "model_type": "clip_text_model", "dtype": "float32", "torch_dtype": "float32",
        "hidden_act": "quick_gelu", "layer_norm_eps": 1e-05, "vocab_size": len(tokenizer), "hidden_size": width,
        "intermediate_size": 2 * width, "projection_dim": pooled, "num_hidden_layers": 2, "num_attention_heads": 2,
        "max_position_embeddings": tokenizer.model_max_length, "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.eos_token_id}
    return fresh(kind, transformers.CLIPTextConfig, config)


def pieces_of(prompt):
    """"text 473" -> "▁text", "▁4", "7", "3"."""
    for word in prompt.split():
        yield from [SPACE + word] if word.isalpha() else [SPACE + word[0], *word[1:]]


def t5_tokenizer(folder, prompts):
    cut = [list(pieces_of(prompt)) for prompt in prompts]
    pieces = ["<pad>", "</s>", "<unk>", *sorted({piece for row in cut for piece in row})]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.Unigram(
        [(piece, 0.0 if i < 3 else -1.0) for i, piece in enumerate(pieces)], unk_id=2))
    tokenizer.add_special_tokens(pieces[:3])
    space = {"replacement": SPACE, "prepend_scheme": "always"}
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [tokenizers.pre_tokenizers.WhitespaceSplit(), tokenizers.pre_tokenizers.Metaspace(**space)])
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)])
    tokenizer.decoder = tokenizers.decoders.Metaspace(**space)
    write_json(folder / "tokenizer_config.json", {
        "tokenizer_class": "T5Tokenizer", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>", "extra_ids": 0,
        "model_max_length": 1 + max(map(len, cut))})
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    return transformers.T5TokenizerFast.from_pretrained(folder)


def t5_encoder(tokenizer, width, multilingual):
    """Two layers of a T5, or of a UMT5."""
    kind = transformers.UMT5EncoderModel if multilingual else transformers.T5EncoderModel
    config_class = transformers.UMT5Config if multilingual else transformers.T5Config
    config = {
        "architectures": [kind.__name__], "model_type": config_class.model_type, "dtype": "float32", "torch_dtype": "float32",
        "feed_forward_proj": "gated-gelu", "is_encoder_decoder": False, "layer_norm_epsilon": 1e-06,
        "vocab_size": len(tokenizer), "d_model": width, "d_kv": 16, "d_ff": 2 * width, "num_layers": 2, "num_heads": 4,
        "relative_attention_num_buckets": 32, "relative_attention_max_distance": 128, "eos_token_id": 1, "pad_token_id": 0}
    return fresh(kind, config_class, config)


def fresh(kind, config_class, config):
    """An encoder and its config.json. Linear layers are as PyTorch makes them, the bias of a distance is N(0, 1), other
    embeddings N(0, .3): with the customary .02 the positions of a short prompt never get through to the picture."""
    encoder = kind(config_class(**config))
    for name, module in encoder.named_modules():
        if isinstance(module, torch.nn.Embedding):
            torch.nn.init.normal_(module.weight, std=1.0 if name.endswith("relative_attention_bias") else 0.3)
        elif isinstance(module, torch.nn.Linear):
            module.reset_parameters()
    return encoder.eval(), config
