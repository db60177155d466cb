# SPDX-License-Identifier: Apache-2.0
"""Small random pipelines whose prompts a language model reads, saved as diffusers saves them, without an autoencoder.

The latents of FLUX.2 and HunyuanVideo are RGB pictures: oxbow has no decoder of theirs.
"""
import json
import pathlib

import diffusers
import tokenizers
import torch
import transformers

TEXT = dict(hidden_size=16, intermediate_size=24, num_hidden_layers=3, num_attention_heads=2, num_key_value_heads=1)
# From one system message and one of a user they make the text that Qwen3's and Mistral Small 3's own templates make.
QWEN3_TEMPLATE = ("{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
                  "{% if add_generation_prompt %}<|im_start|>assistant\n"
                  "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}{% endif %}")
MISTRAL_TEMPLATE = ("{{ bos_token }}{% for m in messages %}{% if m['role'] == 'system' %}[SYSTEM_PROMPT]{{ m['content'][0]['text'] }}"
                    "[/SYSTEM_PROMPT]{% else %}[INST]{{ m['content'][0]['text'] }}[/INST]{% endif %}{% endfor %}")
TEKKEN_WORDS = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|"
                r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|"
                r"\s*[\r\n]+|\s+(?!\S)|\s+")
LETTERS = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())


def qwen_tokenizer():
    words = LETTERS + ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokenizer = transformers.Qwen2Tokenizer(vocab={word: i for i, word in enumerate(words)}, merges=[])
    tokenizer.add_special_tokens({"additional_special_tokens": words[-2:]})
    tokenizer.chat_template = QWEN3_TEMPLATE
    return tokenizer


def mistral_tokenizer():
    special = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[IMG]", "<pad>"]
    made = tokenizers.Tokenizer(tokenizers.models.BPE(vocab={word: i for i, word in enumerate(special + LETTERS)}, merges=[]))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([
        tokenizers.pre_tokenizers.Split(tokenizers.Regex(TEKKEN_WORDS), "isolated"),
        tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    made.decoder = tokenizers.decoders.ByteLevel()
    made.add_special_tokens(special)
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, bos_token="<s>", eos_token="</s>", unk_token="<unk>", pad_token="<pad>", padding_side="left")
    tokenizer.chat_template = MISTRAL_TEMPLATE
    return tokenizer


def qwen3(kind, **others):
    return kind(transformers.Qwen3Config(vocab_size=300, head_dim=8, **(TEXT | others)))


def qwen_image():
    text = TEXT | {"vocab_size": 300, "rope_scaling": {"type": "mrope", "mrope_section": [1, 1, 2], "rope_type": "default"}}
    vision = dict(depth=1, hidden_size=16, intermediate_size=16, num_heads=2, out_hidden_size=16, patch_size=2)
    return diffusers.QwenImagePipeline(
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(), vae=None, tokenizer=qwen_tokenizer(),
        text_encoder=transformers.Qwen2_5_VLForConditionalGeneration(transformers.Qwen2_5_VLConfig(
            text_config=text, vision_config=vision, vocab_size=300)),
        transformer=diffusers.QwenImageTransformer2DModel(
            patch_size=2, in_channels=16, out_channels=4, num_layers=2, attention_head_dim=12, num_attention_heads=2,
            joint_attention_dim=16, axes_dims_rope=(2, 4, 6)))


def z_image():
    return diffusers.ZImagePipeline(
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(), vae=None, tokenizer=qwen_tokenizer(),
        text_encoder=qwen3(transformers.Qwen3Model),
        transformer=diffusers.ZImageTransformer2DModel(
            in_channels=4, dim=24, n_layers=1, n_refiner_layers=1, n_heads=2, n_kv_heads=2, cap_feat_dim=16,
            axes_dims=[4, 4, 4], axes_lens=[256, 32, 32]))


def flux2_transformer(guidance_embeds):
    return diffusers.Flux2Transformer2DModel(
        patch_size=1, in_channels=8, num_layers=1, num_single_layers=1, attention_head_dim=16, num_attention_heads=2,
        joint_attention_dim=24, timestep_guidance_channels=16, axes_dims_rope=(4, 4, 4, 4), guidance_embeds=guidance_embeds)


def flux2_klein():
    text = qwen3(transformers.Qwen3ForCausalLM, num_hidden_layers=28, hidden_size=8, intermediate_size=8)  # Its pipeline takes layers 9, 18 and 27.
    return diffusers.Flux2KleinPipeline(
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(), vae=None, tokenizer=qwen_tokenizer(), text_encoder=text,
        transformer=flux2_transformer(guidance_embeds=False))


def flux2_dev():
    """Its directory names a processor of pictures, of which a prompt needs the tokenizer alone."""
    text = TEXT | dict(model_type="mistral", vocab_size=300, head_dim=4, num_hidden_layers=31, hidden_size=8, intermediate_size=8,
                       rms_norm_eps=1e-5, sliding_window=None, rope_parameters={"rope_type": "default", "rope_theta": 1e9})
    vision = dict(model_type="pixtral", hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, head_dim=8,
                  patch_size=4, image_size=8)  # Its pipeline takes layers 10, 20 and 30 of the text.
    return diffusers.Flux2Pipeline(
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(), vae=None, tokenizer=mistral_tokenizer(),
        text_encoder=transformers.Mistral3ForConditionalGeneration(transformers.Mistral3Config(text_config=text, vision_config=vision)),
        transformer=flux2_transformer(guidance_embeds=True))


def hunyuan_video():
    words = ["<pad>", "<s>", "</s>", "<unk>", "\u2581"] + [chr(c) for c in range(33, 127)]
    llama = transformers.LlamaTokenizer(vocab={word: i for i, word in enumerate(words)}, merges=[], pad_token="<pad>")
    clip = LETTERS + [letter + "</w>" for letter in LETTERS] + ["<|startoftext|>", "<|endoftext|>"]
    return diffusers.HunyuanVideoPipeline(
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(), vae=None, tokenizer=llama,
        text_encoder=transformers.LlamaModel(transformers.LlamaConfig(vocab_size=120, **TEXT)),
        tokenizer_2=transformers.CLIPTokenizer(vocab={word: i for i, word in enumerate(clip)}, merges=[], model_max_length=77),
        text_encoder_2=transformers.CLIPTextModel(transformers.CLIPTextConfig(
            vocab_size=len(clip), hidden_size=12, intermediate_size=20, num_hidden_layers=2, num_attention_heads=2,
            bos_token_id=len(clip) - 2, eos_token_id=2)),
        transformer=diffusers.HunyuanVideoTransformer3DModel(
            in_channels=3, out_channels=3, num_attention_heads=2, attention_head_dim=12, num_layers=1, num_single_layers=1,
            num_refiner_layers=1, patch_size=2, patch_size_t=1, text_embed_dim=16, pooled_projection_dim=12, rope_axes_dim=(2, 4, 6)))


MAKE = {"QwenImagePipeline": qwen_image, "ZImagePipeline": z_image, "Flux2Pipeline": flux2_dev,
        "Flux2KleinPipeline": flux2_klein, "HunyuanVideoPipeline": hunyuan_video}


def save(name, directory, seed=3):
    torch.manual_seed(seed)
    pipe = MAKE[name]()
    pipe.text_encoder.eval()
    pipe.save_pretrained(directory)
    if name == "Flux2Pipeline":
        path = pathlib.Path(directory) / "model_index.json"
        index = json.loads(path.read_text())
        path.write_text(json.dumps(index | {"tokenizer": ["transformers", "PixtralProcessor"]}, indent=2) + "\n")
    return pipe
