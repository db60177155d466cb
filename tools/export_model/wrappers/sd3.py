# SPDX-License-Identifier: Apache-2.0
"""Stable Diffusion 3 and 3.5 (arXiv:2403.03206)."""
from export_model.wrapper import Symbol, Wrapper


class Sd3(Wrapper):
    transformer_class = "SD3Transformer2DModel"
    tiny = {"sd3_tiny": dict(
        sample_size=8, patch_size=2, in_channels=4, out_channels=4, num_layers=3, num_attention_heads=2,
        attention_head_dim=4, joint_attention_dim=12, caption_projection_dim=8, pooled_projection_dim=10,
        pos_embed_max_size=12, dual_attention_layers=(0, 1), qk_norm="rms_norm")}

    @classmethod
    def symbols(cls, config):
        patch = config["patch_size"]
        side = Symbol(min=patch, max=patch * config["pos_embed_max_size"], multiple=patch)
        return {"B": Symbol(), "H": side, "W": side, "S": Symbol()}

    @classmethod
    def inputs(cls, config):
        return {"x": ["B", config["in_channels"], "H", "W"], "sigma": ["B"],
                "tokens": ["B", "S", config["joint_attention_dim"]], "pooled": ["B", config["pooled_projection_dim"]]}

    @classmethod
    def latent_size(cls, config):
        return {"side": config["sample_size"]}

    def forward(self, x, sigma, tokens, pooled):
        return self.transformer(hidden_states=x, timestep=sigma * 1000, encoder_hidden_states=tokens,
                                pooled_projections=pooled, return_dict=False)[0]
