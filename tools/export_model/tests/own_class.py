# SPDX-License-Identifier: Apache-2.0
"""A wrapper of one's own: the example of README.md. Every corner of lowering is in this network."""
import torch

from export_model.wrapper import Symbol, Wrapper


class Drift(torch.nn.Module):
    """A velocity model of one's own; its arguments are the keys of its config.json."""

    def __init__(self, channels=3, width=8, layers=2, limit=None):
        super().__init__()
        self.limit = limit
        self.enter = torch.nn.Linear(channels, width)
        self.blocks = torch.nn.ModuleList(torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.Dropout(0.1))
                                          for _ in range(layers))
        self.unused = torch.nn.Linear(width, width)
        self.leave = torch.nn.Linear(width, channels)
        self.register_buffer("scale", torch.tensor([0.5, 2.0]))
        self.register_buffer("turn", torch.polar(torch.ones(width // 2), torch.arange(width // 2.0)), persistent=False)

    def forward(self, pixels, level, prompt):
        h = self.enter(pixels)[:, :] + prompt.mean(dim=1, keepdim=True)
        with torch.no_grad():
            strength, count = level * self.scale[0], prompt.shape[1] + 1
        for block in self.blocks:
            first, _, third = torch.stack([h, h * 2, h + 1]).unbind(0)
            h = block(first) + third * strength[:, None, None] / count
        with torch.amp.autocast("cuda", enabled=False):
            turned = torch.view_as_complex(h.reshape(*h.shape[:-1], -1, 2)) * self.turn
            h = torch.view_as_real(turned).flatten(-2)
        return self.leave(h.clamp(max=float("inf") if self.limit is None else self.limit))


class DriftWrapper(Wrapper):
    transformer_class = Drift
    tiny = {"drift": dict(layers=1)}

    @classmethod
    def symbols(cls, config):
        return {"B": Symbol(), "H": Symbol(), "W": Symbol(), "S": Symbol(max=9)}

    @classmethod
    def inputs(cls, config):
        return {"x": ["B", config["channels"], "H", "W"], "sigma": ["B"], "tokens": ["B", "S", config["width"]]}

    def forward(self, x, sigma, tokens):
        pixels = x.flatten(2).transpose(1, 2)
        return self.transformer(pixels, sigma, tokens).transpose(1, 2).reshape(x.shape)
