# SPDX-License-Identifier: Apache-2.0
"""FLUX.2: dev takes guidance as an input, klein does not. Latents are those of the pipeline: two by two in a channel."""
import torch

from export_model.wrapper import Symbol, Wrapper
from export_model.wrappers.packing import grid_ids


class Flux2(Wrapper):
    transformer_class = "Flux2Transformer2DModel"
    guidance = 4.0
    tiny = {name: dict(
        patch_size=1, in_channels=8, num_layers=1, num_single_layers=2, attention_head_dim=16, num_attention_heads=2,
        joint_attention_dim=10, timestep_guidance_channels=16, axes_dims_rope=(4, 4, 4, 4), guidance_embeds=guided)
        for name, guided in (("flux2_dev_tiny", True), ("flux2_klein_tiny", False))}

    @classmethod
    def symbols(cls, config):
        return {"B": Symbol(), "H": Symbol(), "W": Symbol(), "S": Symbol()}

    @classmethod
    def inputs(cls, config):
        inputs = {"x": ["B", config["in_channels"], "H", "W"], "sigma": ["B"],
                  "tokens": ["B", "S", config["joint_attention_dim"]]}
        return inputs | ({"guidance": ["B"]} if config["guidance_embeds"] else {})

    @classmethod
    def latent_size(cls, config):
        return {"side": 64}

    def forward(self, x, sigma, tokens, guidance=None):
        height, width = x.shape[2:]
        place = torch.arange(tokens.shape[1], device=x.device)
        text_ids = torch.stack([torch.zeros_like(place)] * 3 + [place], dim=-1)
        v = self.transformer(
            hidden_states=x.flatten(2).transpose(1, 2), timestep=sigma, guidance=guidance, encoder_hidden_states=tokens,
            txt_ids=text_ids, img_ids=grid_ids(height, width, 4, x.device), return_dict=False)[0]
        return v.transpose(1, 2).reshape(x.shape)
