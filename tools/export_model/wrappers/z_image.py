# SPDX-License-Identifier: Apache-2.0
"""Z-Image. diffusers takes lists of prompts and fixes their lengths in a trace, so this is its forward in batches:

Text and picture are each filled up to a multiple of 32 tokens with a learned token, which is attended to. Text has
positions (1, 0, 0), (2, 0, 0) ...; the picture comes after the filled text of its row; its own fill is at (0, 0, 0).
"""
import torch

from export_model.tracing import ExportError
from export_model.wrapper import Symbol, Wrapper

UNIT = 32


def filled(size):
    return (size + UNIT - 1) // UNIT * UNIT


def lengthened(tokens, size):
    """[B, n, D] -> [B, size, D], the last token repeated: what is behind n is replaced by the caller."""
    index = torch.arange(size, device=tokens.device).clamp(max=tokens.shape[1] - 1)
    return tokens.index_select(1, index)


class ZImage(Wrapper):
    transformer_class = "ZImageTransformer2DModel"
    tiny = {"z_image_tiny": dict(
        in_channels=4, dim=24, n_layers=1, n_refiner_layers=1, n_heads=2, n_kv_heads=2, cap_feat_dim=10,
        axes_dims=[4, 4, 4], axes_lens=[256, 32, 32])}

    @classmethod
    def symbols(cls, config):
        patch = config["all_patch_size"][0]
        text, height, width = config["axes_lens"]
        return {"B": Symbol(), "H": Symbol(min=patch, max=patch * height, multiple=patch),
                "W": Symbol(min=patch, max=patch * width, multiple=patch),
                "S": Symbol(max=(text - 2) // UNIT * UNIT)}

    @classmethod
    def inputs(cls, config):
        if config["siglip_feat_dim"] is not None:
            raise ExportError("config.json: 'siglip_feat_dim' is of Z-Image Omni; text to image has null")
        return {"x": ["B", config["in_channels"], "H", "W"], "sigma": ["B"],
                "tokens": ["B", "S", config["cap_feat_dim"]], "mask": ["B", "S"]}

    def turns(self, positions):
        """[B, n, 3] -> [B, n, head / 2], complex."""
        rope, turns = self.transformer.rope_embedder, []
        for axis, dim in enumerate(rope.axes_dims):
            exponents = torch.arange(0, dim, 2, dtype=torch.float64, device=positions.device) / dim
            frequencies = 1.0 / (rope.theta ** exponents)
            angles = (positions[..., axis, None].to(torch.float64) * frequencies).float()
            turns.append(torch.polar(torch.ones_like(angles), angles))
        return torch.cat(turns, dim=-1)

    def text(self, tokens, mask):
        """Embedded and filled text [B, n, D], which of it is attended to [B, n], its turns, its filled length [B]."""
        t = self.transformer
        size = filled(tokens.shape[1])
        length = mask.sum(dim=1).to(torch.int64)
        place = torch.arange(size, device=tokens.device)[None]
        embedded = lengthened(t.cap_embedder(tokens), size)
        embedded = torch.where((place < length[:, None])[..., None], embedded, t.cap_pad_token)
        whole = (length + UNIT - 1) // UNIT * UNIT
        positions = torch.stack([place + 1, torch.zeros_like(place), torch.zeros_like(place)], dim=-1)
        turns = self.turns(positions).expand(tokens.shape[0], -1, -1)
        attended = place < whole[:, None]
        for layer in t.context_refiner:
            embedded = layer(embedded, attended, turns)
        return embedded, attended, turns, whole

    def picture(self, x, patch, text_length, modulation):
        """Embedded and filled patches [B, n, D] and their turns."""
        t = self.transformer
        rows, channels, height, width = x.shape
        height, width = height // patch, width // patch
        patches = x.view(rows, channels, height, patch, width, patch).permute(0, 2, 4, 3, 5, 1)
        patches = patches.reshape(rows, height * width, patch * patch * channels)
        size = filled(height * width)
        place = torch.arange(size, device=x.device)
        inside = place < height * width
        embedded = lengthened(t.all_x_embedder[f"{patch}-1"](patches), size)
        embedded = torch.where(inside[None, :, None], embedded, t.x_pad_token)
        zero = torch.zeros_like(place)
        row, column = torch.where(inside, place // width, zero), torch.where(inside, place % width, zero)
        time = torch.where(inside[None], (text_length + 1)[:, None], zero[None])
        turns = self.turns(torch.stack([time, row.expand_as(time), column.expand_as(time)], dim=-1))
        for layer in t.noise_refiner:
            embedded = layer(embedded, None, turns, modulation)
        return embedded, turns

    def forward(self, x, sigma, tokens, mask):
        t = self.transformer
        patch = t.all_patch_size[0]
        rows, channels, height, width = x.shape
        modulation = t.t_embedder((1 - sigma) * t.t_scale)
        text, text_attended, text_turns, text_length = self.text(tokens, mask)
        picture, picture_turns = self.picture(x, patch, text_length, modulation)
        joint, turns = torch.cat([picture, text], dim=1), torch.cat([picture_turns, text_turns], dim=1)
        attended = torch.cat([torch.ones_like(picture[..., 0], dtype=torch.bool), text_attended], dim=1)
        for layer in t.layers:
            joint = layer(joint, attended, turns, modulation)
        out = t.all_final_layer[f"{patch}-1"](joint, c=modulation)
        high, wide = height // patch, width // patch
        out = out[:, :high * wide].reshape(rows, high, wide, patch, patch, t.out_channels).permute(0, 5, 1, 3, 2, 4)
        return -out.reshape(rows, t.out_channels, height, width)
