# SPDX-License-Identifier: Apache-2.0
"""Families of transformers: a pipeline's small text side, and how its transformer is called. Sizes follow from config.json."""
import diffusers
import torch

import text


def empty(*names):
    return {name: [None, None] for name in names}


class Sd3:
    """One CLIP, for tokens and for the whole prompt."""

    index = {"_class_name": "StableDiffusion3Pipeline"} | empty(
        "vae", "text_encoder_2", "text_encoder_3", "tokenizer_2", "tokenizer_3", "image_encoder", "feature_extractor")
    transformer = diffusers.SD3Transformer2DModel

    def __init__(self, folder, config, word, prompts):
        self.tokenizer = text.clip_tokenizer(folder / "tokenizer", word, prompts)
        self.encoders = {"text_encoder": text.clip_encoder(
            self.tokenizer, True, config["joint_attention_dim"], config["pooled_projection_dim"])}
        self.tokenizers = {"tokenizer": "CLIPTokenizer"}

    def encode(self, networks, prompts):
        ids = self.tokenizer(prompts, padding="max_length", return_tensors="pt").input_ids
        out = networks["text_encoder"](ids, output_hidden_states=True)
        return {"encoder_hidden_states": out.hidden_states[-2], "pooled_projections": out.text_embeds}

    def velocity(self, transformer, x, time, encoded):
        return transformer(hidden_states=x, timestep=1000 * time, **encoded, return_dict=False)[0]


class Flux:
    """A CLIP for the whole prompt, a T5 for its tokens. Two by two pixels are a token; no guidance as an input."""

    index = {"_class_name": "FluxPipeline"} | empty("vae", "image_encoder", "feature_extractor")
    transformer = diffusers.FluxTransformer2DModel

    def __init__(self, folder, config, word, prompts):
        self.clip = text.clip_tokenizer(folder / "tokenizer", word, prompts)
        self.t5 = text.t5_tokenizer(folder / "tokenizer_2", prompts)
        pooled = config["pooled_projection_dim"]
        self.encoders = {"text_encoder": text.clip_encoder(self.clip, False, pooled, pooled),
                         "text_encoder_2": text.t5_encoder(self.t5, config["joint_attention_dim"], multilingual=False)}
        self.tokenizers = {"tokenizer": "CLIPTokenizer", "tokenizer_2": "T5TokenizerFast"}

    def encode(self, networks, prompts):
        clip, t5 = (tokenizer(prompts, padding="max_length", return_tensors="pt").input_ids
                    for tokenizer in (self.clip, self.t5))
        return {"encoder_hidden_states": networks["text_encoder_2"](t5).last_hidden_state,
                "pooled_projections": networks["text_encoder"](clip).pooler_output}

    def velocity(self, transformer, x, time, encoded):
        rows, channels, height, width = x.shape
        pipeline = diffusers.FluxPipeline
        packed = pipeline._pack_latents(x, rows, channels, height, width)
        places = pipeline._prepare_latent_image_ids(rows, height // 2, width // 2, x.device, x.dtype)
        v = transformer(hidden_states=packed, timestep=time, img_ids=places,
                        txt_ids=torch.zeros(encoded["encoder_hidden_states"].shape[1], 3), **encoded, return_dict=False)[0]
        return pipeline._unpack_latents(v, 8 * height, 8 * width, 8)


class Wan:
    """A UMT5. Tokens behind the text are zero."""

    index = {"_class_name": "WanPipeline"} | empty("vae", "transformer_2", "image_encoder", "image_processor")
    transformer = diffusers.WanTransformer3DModel

    def __init__(self, folder, config, word, prompts):
        self.tokenizer = text.t5_tokenizer(folder / "tokenizer", prompts)
        self.encoders = {"text_encoder": text.t5_encoder(self.tokenizer, config["text_dim"], multilingual=True)}
        self.tokenizers = {"tokenizer": "T5TokenizerFast"}

    def encode(self, networks, prompts):
        inputs = self.tokenizer(prompts, padding="max_length", return_tensors="pt")
        tokens = networks["text_encoder"](inputs.input_ids, attention_mask=inputs.attention_mask).last_hidden_state
        return {"encoder_hidden_states": tokens * inputs.attention_mask[..., None]}

    velocity = Sd3.velocity


FAMILIES = {family.transformer.__name__: family for family in (Sd3, Flux, Wan)}
