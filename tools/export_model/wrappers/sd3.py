"""Stable Diffusion 3 and 3.5 (arXiv:2403.03206)."""
from export_model.wrapper import Symbol, Wrapper


class Sd3(Wrapper):
    transformer_class = "SD3Transformer2DModel"

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
