# SPDX-License-Identifier: Apache-2.0
"""Latents as tokens and back, and where each token lies."""
import torch


def packed(x):
    """[B, C, H, W] -> [B, H/2 W/2, 4 C]: each token is a square of two by two latents."""
    rows, channels, height, width = x.shape
    x = x.view(rows, channels, height // 2, 2, width // 2, 2).permute(0, 2, 4, 1, 3, 5)
    return x.reshape(rows, (height // 2) * (width // 2), channels * 4)


def unpacked(tokens, height, width):
    """The inverse of packed()."""
    rows, _, channels = tokens.shape
    tokens = tokens.view(rows, height // 2, width // 2, channels // 4, 2, 2).permute(0, 3, 1, 4, 2, 5)
    return tokens.reshape(rows, channels // 4, height, width)


def grid_ids(height, width, axes, device):
    """[height width, axes] int64: axis 1 is the row, axis 2 the column, others are 0."""
    row = torch.arange(height, device=device)[:, None].expand(height, width)
    column = torch.arange(width, device=device)[None, :].expand(height, width)
    ids = [torch.zeros_like(row), row, column] + [torch.zeros_like(row)] * (axes - 3)
    return torch.stack(ids, dim=-1).reshape(height * width, axes)
