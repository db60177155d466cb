# SPDX-License-Identifier: Apache-2.0
"""FLUX.1: dev takes guidance as an input, schnell does not."""
import torch

from export_model.wrapper import Symbol, Wrapper
from export_model.wrappers.packing import grid_ids, packed, unpacked


class Flux(Wrapper):
    transformer_class = "FluxTransformer2DModel"
    guidance = 3.5
    tiny = {name: dict(
        patch_size=1, in_channels=16, num_layers=1, num_single_layers=2, attention_head_dim=12, num_attention_heads=2,
        joint_attention_dim=10, pooled_projection_dim=6, axes_dims_rope=(2, 4, 6), guidance_embeds=guided)
        for name, guided in (("flux_dev_tiny", True), ("flux_schnell_tiny", False))}

    @classmethod
    def symbols(cls, config):
        side = Symbol(min=2, multiple=2)
        return {"B": Symbol(), "H": side, "W": side, "S": Symbol()}

    @classmethod
    def inputs(cls, config):
        inputs = {"x": ["B", config["in_channels"] // 4, "H", "W"], "sigma": ["B"],
                  "tokens": ["B", "S", config["joint_attention_dim"]], "pooled": ["B", config["pooled_projection_dim"]]}
        return inputs | ({"guidance": ["B"]} if config["guidance_embeds"] else {})

    def forward(self, x, sigma, tokens, pooled, guidance=None):
        height, width = x.shape[2:]
        v = self.transformer(
            hidden_states=packed(x), timestep=sigma, guidance=guidance, encoder_hidden_states=tokens,
            pooled_projections=pooled, txt_ids=torch.zeros(tokens.shape[1], 3, device=x.device),
            img_ids=grid_ids(height // 2, width // 2, 3, x.device), return_dict=False)[0]
        return unpacked(v, height, width)
