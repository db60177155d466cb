# SPDX-License-Identifier: Apache-2.0
"""HunyuanVideo, text to video: prompts of unequal length come with a mask, guidance is an input."""
import torch

from export_model.tracing import ExportError
from export_model.wrapper import Symbol, Wrapper


class HunyuanVideo(Wrapper):
    transformer_class = "HunyuanVideoTransformer3DModel"
    guidance = 6.0
    tiny = {"hunyuan_video_tiny": dict(
        in_channels=4, out_channels=4, num_attention_heads=2, attention_head_dim=12, num_layers=1, num_single_layers=1,
        num_refiner_layers=1, patch_size=2, patch_size_t=1, text_embed_dim=10, pooled_projection_dim=6,
        rope_axes_dim=(2, 4, 6))}

    @classmethod
    def symbols(cls, config):
        time, space = config["patch_size_t"], config["patch_size"]
        side = Symbol(min=space, multiple=space)
        return {"B": Symbol(), "F": Symbol(min=time, multiple=time), "H": side, "W": side, "S": Symbol()}

    @classmethod
    def inputs(cls, config):
        if config["image_condition_type"] is not None:
            raise ExportError("config.json: 'image_condition_type' is of an image-to-video model; text to video has null")
        inputs = {"x": ["B", config["in_channels"], "F", "H", "W"], "sigma": ["B"],
                  "tokens": ["B", "S", config["text_embed_dim"]], "mask": ["B", "S"],
                  "pooled": ["B", config["pooled_projection_dim"]]}
        return inputs | ({"guidance": ["B"]} if config["guidance_embeds"] else {})

    @classmethod
    def latent_size(cls, config):
        return {"side": 90, "frames": 33}

    def forward(self, x, sigma, tokens, mask, pooled, guidance=None):
        return self.transformer(
            hidden_states=x, timestep=sigma * 1000, encoder_hidden_states=tokens,
            encoder_attention_mask=mask.to(torch.int64), pooled_projections=pooled,
            guidance=None if guidance is None else guidance * 1000, return_dict=False)[0]
