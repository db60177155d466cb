# SPDX-License-Identifier: Apache-2.0
"""LTX-Video at 25 frames a second, with its own decoder's factors: 8 frames and 32 by 32 pixels a latent."""
from export_model.wrapper import Symbol, Wrapper

FRAME_RATE, TIME_FACTOR, SPACE_FACTOR = 25, 8, 32


class Ltx(Wrapper):
    transformer_class = "LTXVideoTransformer3DModel"
    tiny = {"ltx_tiny": dict(
        in_channels=8, out_channels=8, num_attention_heads=2, attention_head_dim=8, cross_attention_dim=16, num_layers=2,
        caption_channels=10)}

    @classmethod
    def symbols(cls, config):
        time, space = config["patch_size_t"], config["patch_size"]
        side = Symbol(min=space, multiple=space)
        return {"B": Symbol(), "F": Symbol(min=time, multiple=time), "H": side, "W": side, "S": Symbol()}

    @classmethod
    def inputs(cls, config):
        channels = config["in_channels"] // (config["patch_size_t"] * config["patch_size"] ** 2)
        return {"x": ["B", channels, "F", "H", "W"], "sigma": ["B"],
                "tokens": ["B", "S", config["caption_channels"]], "mask": ["B", "S"]}

    @classmethod
    def latent_size(cls, config):
        return {"side": 16, "frames": 21}

    def forward(self, x, sigma, tokens, mask):
        time, space = self.transformer.config.patch_size_t, self.transformer.config.patch_size
        rows, _, frames, height, width = x.shape
        frames, height, width = frames // time, height // space, width // space
        packed = x.reshape(rows, -1, frames, time, height, space, width, space)
        packed = packed.permute(0, 2, 4, 6, 1, 3, 5, 7).flatten(4, 7).flatten(1, 3)
        v = self.transformer(
            hidden_states=packed, timestep=sigma * 1000, encoder_hidden_states=tokens, encoder_attention_mask=mask,
            num_frames=frames, height=height, width=width,
            rope_interpolation_scale=(TIME_FACTOR / FRAME_RATE, SPACE_FACTOR, SPACE_FACTOR), return_dict=False)[0]
        v = v.reshape(rows, frames, height, width, -1, time, space, space).permute(0, 4, 1, 5, 2, 6, 3, 7)
        return v.flatten(6, 7).flatten(4, 5).flatten(2, 3)
