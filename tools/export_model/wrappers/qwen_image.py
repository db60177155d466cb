# SPDX-License-Identifier: Apache-2.0
"""Qwen-Image: prompts of unequal length come with a mask."""
import contextlib

import torch
from diffusers.models.transformers import transformer_qwenimage

from export_model.tracing import ExportError
from export_model.wrapper import Symbol, Wrapper, replaced
from export_model.wrappers.packing import packed, unpacked


class ComputedRope(torch.nn.Module):
    """Positions centred on the picture, text after its larger half; for sizes that are known when the graph runs."""

    def __init__(self, rope):
        super().__init__()
        self.axes, self.theta = rope.axes_dim, rope.theta

    def turns(self, positions, dim):
        frequencies = 1.0 / torch.pow(self.theta, torch.arange(0, dim, 2, device=positions.device).to(torch.float32).div(dim))
        angles = torch.outer(positions, frequencies)
        return torch.polar(torch.ones_like(angles), angles)

    def forward(self, shapes, max_txt_seq_len, device):
        _, height, width = shapes[0][0]
        frame = torch.zeros(1, dtype=torch.int64, device=device)
        row = torch.arange(height, device=device) - (height - height // 2)
        column = torch.arange(width, device=device) - (width - width // 2)
        image = [self.turns(frame, self.axes[0])[:, None].expand(height, width, -1),
                 self.turns(row, self.axes[1])[:, None].expand(height, width, -1),
                 self.turns(column, self.axes[2])[None].expand(height, width, -1)]
        text = torch.arange(max_txt_seq_len, device=device) + torch.sym_max(height // 2, width // 2)
        return (torch.cat(image, dim=-1).reshape(height * width, -1),
                torch.cat([self.turns(text, dim) for dim in self.axes], dim=-1))


def length_and_mask(tokens, mask):
    return tokens.shape[1], None, mask


class QwenImage(Wrapper):
    transformer_class = "QwenImageTransformer2DModel"
    guidance_norm = True
    tiny = {"qwen_image_tiny": dict(
        patch_size=2, in_channels=16, out_channels=4, num_layers=2, attention_head_dim=12, num_attention_heads=2,
        joint_attention_dim=10, axes_dims_rope=(2, 4, 6))}

    @classmethod
    def symbols(cls, config):
        side = Symbol(min=2, max=8192, multiple=2)
        return {"B": Symbol(), "H": side, "W": side, "S": Symbol(max=1024)}

    @classmethod
    def inputs(cls, config):
        for key in ("guidance_embeds", "zero_cond_t", "use_additional_t_cond", "use_layer3d_rope"):
            if config[key]:
                raise ExportError(f"config.json: '{key}' is of an editing or layered Qwen-Image; text to image has false")
        return {"x": ["B", config["in_channels"] // 4, "H", "W"], "sigma": ["B"],
                "tokens": ["B", "S", config["joint_attention_dim"]], "mask": ["B", "S"]}

    @classmethod
    @contextlib.contextmanager
    def traceable(cls, transformer):
        # diffusers makes numbers of the text's length, which would fix it.
        with replaced(transformer, "pos_embed", ComputedRope(transformer.pos_embed)), \
                replaced(transformer_qwenimage, "compute_text_seq_len_from_mask", length_and_mask):
            yield

    def forward(self, x, sigma, tokens, mask):
        height, width = x.shape[2:]
        v = self.transformer(
            hidden_states=packed(x), timestep=sigma, encoder_hidden_states=tokens,
            encoder_hidden_states_mask=mask > 0, img_shapes=[[(1, height // 2, width // 2)]], return_dict=False)[0]
        return unpacked(v, height, width)
