# SPDX-License-Identifier: Apache-2.0
"""Weights of mmdetection 2's Mask2Former with Swin under the names of transformers: the same network.

Names: mmdet/models of github.com/open-mmlab/mmdetection 2.28. M is "model.pixel_level_module.":

    backbone.X                            M encoder.X'
    panoptic_head.pixel_decoder.X         M decoder.X'
    panoptic_head.cls_embed.X             class_predictor.X
    panoptic_head.X                       model.transformer_module.X'
"""
from __future__ import annotations

import re
from typing import TYPE_CHECKING, Iterator

if TYPE_CHECKING:
    import torch

MARK = "panoptic_head.query_feat.weight"

# `#` is a number, the same on both sides; the rest of a name follows. A row with `?` is cut in three, for q, k and v.
# None: the tensor is left out. UNFOLDED: its last dimension has another order.
BACKBONE = {
    "patch_embed.projection.": "swin.embeddings.patch_embeddings.projection.",
    "patch_embed.norm.": "swin.embeddings.norm.",
    "stages.#.blocks.#.norm1.": "swin.encoder.layers.#.blocks.#.layernorm_before.",
    "stages.#.blocks.#.norm2.": "swin.encoder.layers.#.blocks.#.layernorm_after.",
    "stages.#.blocks.#.attn.w_msa.relative_position_bias_table":
        "swin.encoder.layers.#.blocks.#.attention.relative_position_bias.relative_position_bias_table",
    "stages.#.blocks.#.attn.w_msa.relative_position_index": None,
    "stages.#.blocks.#.attn.w_msa.qkv.": "swin.encoder.layers.#.blocks.#.attention.?_proj.",
    "stages.#.blocks.#.attn.w_msa.proj.": "swin.encoder.layers.#.blocks.#.attention.o_proj.",
    "stages.#.blocks.#.ffn.layers.0.0.": "swin.encoder.layers.#.blocks.#.mlp.fc1.",
    "stages.#.blocks.#.ffn.layers.1.": "swin.encoder.layers.#.blocks.#.mlp.fc2.",
    "stages.#.downsample.norm.": "swin.encoder.layers.#.downsample.norm.",
    "stages.#.downsample.reduction.": "swin.encoder.layers.#.downsample.reduction.",
    "norm0.": "hidden_states_norms.stage1.",
    "norm1.": "hidden_states_norms.stage2.",
    "norm2.": "hidden_states_norms.stage3.",
    "norm3.": "hidden_states_norms.stage4."}
UNFOLDED = ("stages.#.downsample.norm.", "stages.#.downsample.reduction.")

PIXEL_DECODER = {
    "input_convs.#.conv.": "input_projections.#.0.",
    "input_convs.#.gn.": "input_projections.#.1.",
    "encoder.layers.#.attentions.0.": "encoder.layers.#.self_attn.",
    "encoder.layers.#.norms.0.": "encoder.layers.#.self_attn_layer_norm.",
    "encoder.layers.#.norms.1.": "encoder.layers.#.final_layer_norm.",
    "encoder.layers.#.ffns.0.layers.0.0.": "encoder.layers.#.fc1.",
    "encoder.layers.#.ffns.0.layers.1.": "encoder.layers.#.fc2.",
    "level_encoding.weight": "level_embed",
    "lateral_convs.0.conv.": "adapter_1.0.",
    "lateral_convs.0.gn.": "adapter_1.1.",
    "output_convs.0.conv.": "layer_1.0.",
    "output_convs.0.gn.": "layer_1.1.",
    "mask_feature.": "mask_projection."}

DECODER = {
    "transformer_decoder.layers.#.attentions.0.attn.": "decoder.layers.#.cross_attn.",
    "transformer_decoder.layers.#.attentions.1.attn.in_proj_": "decoder.layers.#.self_attn.?_proj.",
    "transformer_decoder.layers.#.attentions.1.attn.out_proj.": "decoder.layers.#.self_attn.out_proj.",
    "transformer_decoder.layers.#.norms.0.": "decoder.layers.#.cross_attn_layer_norm.",
    "transformer_decoder.layers.#.norms.1.": "decoder.layers.#.self_attn_layer_norm.",
    "transformer_decoder.layers.#.norms.2.": "decoder.layers.#.final_layer_norm.",
    "transformer_decoder.layers.#.ffns.0.layers.0.0.": "decoder.layers.#.fc1.",
    "transformer_decoder.layers.#.ffns.0.layers.1.": "decoder.layers.#.fc2.",
    "transformer_decoder.post_norm.": "decoder.layernorm.",
    "query_embed.": "queries_embedder.",
    "query_feat.": "queries_features.",
    "level_embed.": "level_embed.",
    "mask_embed.0.": "decoder.mask_predictor.mask_embedder.0.0.",
    "mask_embed.2.": "decoder.mask_predictor.mask_embedder.1.0.",
    "mask_embed.4.": "decoder.mask_predictor.mask_embedder.2.0."}

PARTS = (("backbone.", "model.pixel_level_module.encoder.", BACKBONE),
         ("panoptic_head.pixel_decoder.", "model.pixel_level_module.decoder.", PIXEL_DECODER),
         ("panoptic_head.cls_embed.", "class_predictor.", {"": ""}),
         ("panoptic_head.", "model.transformer_module.", DECODER))


def _row(name: str) -> tuple[str, str | None]:
    """The pattern that `name` matches, and its other name, None where it is left out. ValueError if there is none."""
    for source, target, rows in PARTS:
        if not name.startswith(source):
            continue
        for pattern, other in rows.items():
            match = re.match(re.escape(pattern).replace(r"\#", r"(\d+)"), name[len(source):])
            if match is None:
                continue
            if other is None:
                return pattern, None
            numbers = iter(match.groups())
            renamed = re.sub("#", lambda _: next(numbers), other)
            return pattern, target + renamed + name[len(source) + match.end():]
    raise ValueError(f"no tensor of mmdetection 2's Mask2Former with Swin: {name}")


def unfolded(tensor: torch.Tensor) -> torch.Tensor:
    """mmdetection merges 2 x 2 pixels by channel (C, row, column), transformers by pixel (column, row, C)."""
    channels = tensor.shape[-1] // 4
    pixels = tensor.reshape(*tensor.shape[:-1], channels, 2, 2)
    return pixels.movedim((-1, -2, -3), (-3, -2, -1)).reshape(tensor.shape)


def renamed(tensors: dict[str, torch.Tensor]) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors under the names of transformers. ValueError, naming the tensor: one that this network does not have, or
    that cannot be cut."""
    for name, tensor in tensors.items():
        pattern, other = _row(name)
        if other is None:
            continue
        parts = 3 if "?" in other else 4 if pattern in UNFOLDED else 1
        if tensor.dim() == 0 or tensor.shape[0 if parts == 3 else -1] % parts:
            raise ValueError(f"cannot be cut as mmdetection's Mask2Former has it: {name}")
        if parts == 3:
            for letter, third in zip("qkv", tensor.chunk(3), strict=True):
                yield other.replace("?", letter), third
        else:
            yield other, unfolded(tensor) if parts == 4 else tensor
