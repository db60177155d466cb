# SPDX-License-Identifier: Apache-2.0
"""Wan2.1, text to video."""
import contextlib

import torch
from diffusers.models.embeddings import get_1d_rotary_pos_embed

from export_model.tracing import ExportError
from export_model.wrapper import Symbol, Wrapper, replaced


class ComputedRope(torch.nn.Module):
    """The numbers of diffusers' table, computed for the sizes at hand: the table would be a megabyte of the file."""

    def __init__(self, rope):
        super().__init__()
        self.axes, self.patch = (rope.t_dim, rope.h_dim, rope.w_dim), rope.patch_size

    def forward(self, hidden_states):
        sizes = [size // patch for size, patch in zip(hidden_states.shape[2:], self.patch)]
        cosines, sines = [], []
        for axis, (dim, size) in enumerate(zip(self.axes, sizes)):
            positions = torch.arange(size, device=hidden_states.device)
            pair = get_1d_rotary_pos_embed(dim, positions, 10000.0, use_real=True, repeat_interleave_real=True,
                                           freqs_dtype=torch.float64)
            shape = [1, 1, 1, dim]
            shape[axis] = size
            for tables, values in zip((cosines, sines), pair):
                tables.append(values.view(shape).expand(*sizes, dim))
        tokens = sizes[0] * sizes[1] * sizes[2]
        return tuple(torch.cat(tables, dim=-1).reshape(1, tokens, 1, -1) for tables in (cosines, sines))


class PairsAsComplexNumbers:
    """diffusers' attention, but pairs are rotated by one complex product: diffusers writes each half of the result into
    slices, which costs a third of a small model's training step."""

    def __call__(self, attn, hidden_states, encoder_hidden_states=None, attention_mask=None, rotary_emb=None):
        context = hidden_states if encoder_hidden_states is None else encoder_hidden_states
        parts = attn.norm_q(attn.to_q(hidden_states)), attn.norm_k(attn.to_k(context)), attn.to_v(context)
        query, key, value = (part.unflatten(2, (attn.heads, -1)) for part in parts)
        if rotary_emb is not None:
            turns = torch.view_as_complex(torch.stack((rotary_emb[0][..., 0::2], rotary_emb[1][..., 1::2]), -1))
            query, key = self.turned(query, turns), self.turned(key, turns)
        query, key, value = (part.transpose(1, 2) for part in (query, key, value))
        result = torch.nn.functional.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2, 3)
        return attn.to_out[1](attn.to_out[0](result.type_as(query)))

    def turned(self, x, turns):
        pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))
        return torch.view_as_real(pairs * turns).flatten(-2).type_as(x)


class Wan(Wrapper):
    transformer_class = "WanTransformer3DModel"
    tiny = {"wan_tiny": dict(
        patch_size=(1, 2, 2), num_attention_heads=2, attention_head_dim=12, in_channels=4, out_channels=4, text_dim=10,
        freq_dim=16, ffn_dim=20, num_layers=2, cross_attn_norm=True, rope_max_seq_len=32)}

    @classmethod
    def symbols(cls, config):
        frames, height, width = (
            Symbol(min=patch, max=patch * config["rope_max_seq_len"], multiple=patch) for patch in config["patch_size"])
        return {"B": Symbol(), "F": frames, "H": height, "W": width, "S": Symbol()}

    @classmethod
    def inputs(cls, config):
        for key in ("image_dim", "added_kv_proj_dim", "pos_embed_seq_len"):
            if config[key] is not None:
                raise ExportError(f"config.json: '{key}' is of an image-to-video model; text to video has null")
        return {"x": ["B", config["in_channels"], "F", "H", "W"], "sigma": ["B"],
                "tokens": ["B", "S", config["text_dim"]]}

    @classmethod
    def latent_size(cls, config):
        return {"side": 60, "frames": 21}

    @classmethod
    @contextlib.contextmanager
    def traceable(cls, transformer):
        with contextlib.ExitStack() as stack:
            stack.enter_context(replaced(transformer, "rope", ComputedRope(transformer.rope)))
            for block in transformer.blocks:
                for attention in (block.attn1, block.attn2):
                    stack.enter_context(replaced(attention, "processor", PairsAsComplexNumbers()))
            yield

    def forward(self, x, sigma, tokens):
        return self.transformer(hidden_states=x, timestep=sigma * 1000, encoder_hidden_states=tokens,
                                return_dict=False)[0]
