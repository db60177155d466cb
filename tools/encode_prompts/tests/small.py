# SPDX-License-Identifier: Apache-2.0
"""Small random pipelines whose prompts are encoded outside, saved as diffusers saves them, without an autoencoder.

The latents of FLUX.2 and HunyuanVideo are RGB pictures: oxbow has no decoder of theirs.
"""
import json
import pathlib

import diffusers
import tokenizers
import torch
import transformers

TEXT = dict(hidden_size=16, intermediate_size=24, num_hidden_layers=3, num_attention_heads=2, num_key_value_heads=1)
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m['content'] }}<|im_end|>{% endfor %}"


def byte_tokenizer(kind, **special):
    letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    words = letters + ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokenizer = kind(vocab={word: i for i, word in enumerate(words)}, merges=[], **special)
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def qwen_tokenizer():
    return byte_tokenizer(transformers.Qwen2Tokenizer)


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
    tokenizer = qwen_tokenizer()
    tokenizer.chat_template = TEMPLATE.replace("m['content']", "m['content'][0]['text']")
    text = TEXT | dict(model_type="mistral", vocab_size=300, head_dim=4, num_hidden_layers=31, hidden_size=8, intermediate_size=8)
    vision = dict(model_type="pixtral", hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, head_dim=8,
                  patch_size=4, image_size=8)  # Its pipeline takes layers 10, 20 and 30 of the text.
    return diffusers.Flux2Pipeline(
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(), vae=None, tokenizer=tokenizer,
        text_encoder=transformers.Mistral3ForConditionalGeneration(transformers.Mistral3Config(text_config=text, vision_config=vision)),
        transformer=flux2_transformer(guidance_embeds=True))


def hunyuan_video():
    words = ["<pad>", "<s>", "</s>", "<unk>", "\u2581"] + [chr(c) for c in range(33, 127)]
    llama = transformers.LlamaTokenizer(vocab={word: i for i, word in enumerate(words)}, merges=[], pad_token="<pad>")
    letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    clip = letters + [letter + "</w>" for letter in letters] + ["<|startoftext|>", "<|endoftext|>"]
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
