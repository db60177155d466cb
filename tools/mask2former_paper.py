# SPDX-License-Identifier: Apache-2.0
"""Mask2Former with Swin, a second time: over mmdetection 2's names, as the papers and its config have it.

For golden files alone: graph, name map and conventions are checked against something other than transformers.
Swin: arXiv:2103.14030. Deformable attention: arXiv:2010.04159. Mask2Former: arXiv:2112.01527.
"""
import math

import torch
import torch.nn.functional as F

LEVELS, POINTS, GROUPS = 3, 4, 32


def linear(x, s, name):
    return F.linear(x, s[name + ".weight"], s.get(name + ".bias"))


def norm(x, s, name):
    return F.layer_norm(x, x.shape[-1:], s[name + ".weight"], s[name + ".bias"])


def convolved(x, s, name, **given):
    """Convolution and group normalisation."""
    x = F.conv2d(x, s[name + ".conv.weight"], s.get(name + ".conv.bias"), **given)
    return F.group_norm(x, GROUPS, s[name + ".gn.weight"], s[name + ".gn.bias"])


def regions(length, window, shift):
    """The region of each row of a shifted map: rows of different regions do not see each other."""
    at = torch.arange(length)
    return (at >= length - window).long() + (at >= length - shift).long()


def windows(x, size):
    """[B, H, W, C] -> [B, windows, size * size, C]"""
    b, h, w, c = x.shape
    return x.view(b, h // size, size, w // size, size, c).permute(0, 1, 3, 2, 4, 5).reshape(b, -1, size * size, c)


def window_attention(x, s, at, heads, size, shift):
    """x [B, H, W, C]. Windows of size x size over the map, shifted cyclically; padded with zeros."""
    b, h, w, c = x.shape
    x = F.pad(x, (0, 0, 0, -w % size, 0, -h % size))
    high, wide = x.shape[1:3]
    x = x.roll((-shift, -shift), (1, 2))
    q, k, v = (t.unflatten(-1, (heads, -1)).transpose(2, 3) for t in windows(linear(x, s, at + "qkv"), size).chunk(3, -1))
    place = torch.stack(torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")).flatten(1)
    far = place[:, :, None] - place[:, None] + size - 1
    bias = s[at + "relative_position_bias_table"][far[0] * (2 * size - 1) + far[1]].permute(2, 0, 1)
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5 + bias
    if shift:
        region = 3 * regions(high, size, shift)[:, None] + regions(wide, size, shift)[None]
        region = windows(region[None, :, :, None], size)[0, :, :, 0]
        scores = scores + torch.where(region[:, :, None] == region[:, None], 0.0, -100.0)[None, :, None]
    out = linear((scores.softmax(-1) @ v).transpose(2, 3).flatten(3), s, at + "proj")
    out = out.view(b, high // size, wide // size, size, size, c).permute(0, 1, 3, 2, 4, 5).reshape(b, high, wide, c)
    return out.roll((shift, shift), (1, 2))[:, :h, :w]


def swin(pixels, s, config):
    """Maps [B, C, H, W] of four scales, from fine to coarse."""
    x = F.conv2d(pixels, s["backbone.patch_embed.projection.weight"], s["backbone.patch_embed.projection.bias"], stride=4)
    x = norm(x.permute(0, 2, 3, 1), s, "backbone.patch_embed.norm")
    maps = []
    for stage, (depth, heads) in enumerate(zip(config["depths"], config["heads"])):
        for index in range(depth):
            at = f"backbone.stages.{stage}.blocks.{index}."
            shift = config["window"] // 2 if index % 2 else 0
            x = x + window_attention(norm(x, s, at + "norm1"), s, at + "attn.w_msa.", heads, config["window"], shift)
            x = x + linear(F.gelu(linear(norm(x, s, at + "norm2"), s, at + "ffn.layers.0.0")), s, at + "ffn.layers.1")
        maps.append(norm(x, s, f"backbone.norm{stage}").permute(0, 3, 1, 2))
        if stage < 3:
            at, (b, h, w, c) = f"backbone.stages.{stage}.downsample.", x.shape
            x = F.unfold(F.pad(x.permute(0, 3, 1, 2), (0, w % 2, 0, h % 2)), 2, stride=2).transpose(1, 2)
            x = linear(norm(x, s, at + "norm"), s, at + "reduction").view(b, (h + 1) // 2, (w + 1) // 2, 2 * c)
    return maps


def waves(size, width):
    """[H * W, width]: sines and cosines of the place, rows first."""
    half, parts = width // 2, []
    period = 10000 ** (torch.arange(half).div(2, rounding_mode="floor") * 2 / half)
    for axis in (0, 1):
        place = torch.arange(1, size[axis] + 1) / (size[axis] + 1e-6) * 2 * math.pi
        angle = (place[:, None] if axis == 0 else place[None]).expand(*size)[..., None] / period
        parts.append(torch.stack((angle[..., 0::2].sin(), angle[..., 1::2].cos()), -1).flatten(-2))
    return torch.cat(parts, -1).flatten(0, 1)


def sampled(values, x, y):
    """values [H, W, C] at the pixels x, y [...], between their centres, 0 outside."""
    high, wide, _ = values.shape
    x0, y0, out = x.floor(), y.floor(), 0
    for dy in (0, 1):
        for dx in (0, 1):
            at_x, at_y = x0 + dx, y0 + dy
            weight = (1 - (x - at_x).abs()) * (1 - (y - at_y).abs())
            inside = (at_x >= 0) & (at_x < wide) & (at_y >= 0) & (at_y < high)
            picked = values[at_y.clamp(0, high - 1).long(), at_x.clamp(0, wide - 1).long()]
            out = out + torch.where(inside, weight, 0.0)[..., None] * picked
    return out


def deformable(x, place, s, at, sizes, heads):
    """x [N, C], all levels after each other. Each token looks at POINTS places of each level around its own."""
    query = x + place
    values = linear(x, s, at + "value_proj").unflatten(-1, (heads, -1))
    offsets = linear(query, s, at + "sampling_offsets").view(-1, heads, LEVELS, POINTS, 2)
    weights = linear(query, s, at + "attention_weights").view(-1, heads, LEVELS * POINTS).softmax(-1).view(-1, heads, LEVELS, POINTS)
    own = torch.cat([torch.stack(torch.meshgrid((torch.arange(w) + 0.5) / w, (torch.arange(h) + 0.5) / h, indexing="xy"), -1).flatten(0, 1)
                     for h, w in sizes])  # x, y in 0..1
    out, begin = [], 0
    for level, (h, w) in enumerate(sizes):
        plane = values[begin:begin + h * w].view(h, w, heads, -1)
        begin += h * w
        at_x = own[:, None, None, 0] * w + offsets[:, :, level, :, 0] - 0.5
        at_y = own[:, None, None, 1] * h + offsets[:, :, level, :, 1] - 0.5
        found = torch.stack([sampled(plane[:, :, head], at_x[:, head], at_y[:, head]) for head in range(heads)], 1)
        out.append((found * weights[:, :, level, :, None]).sum(2))
    return linear(sum(out).flatten(1), s, at + "output_proj")


def pixel_decoder(maps, s, config):
    """(mask features [C, h, w], three maps [C, h, w] from coarse to fine) of maps of one image."""
    at, width = "panoptic_head.pixel_decoder.", config["feature_size"]
    coarse = [convolved(m, s, f"{at}input_convs.{i}")[0] for i, m in enumerate(maps[:0:-1])]
    sizes = [m.shape[1:] for m in coarse]
    x = torch.cat([m.flatten(1).T for m in coarse])
    place = torch.cat([waves(size, width) + level for size, level in zip(sizes, s[at + "level_encoding.weight"])])
    for index in range(config["encoder_layers"]):
        layer = f"{at}encoder.layers.{index}."
        x = norm(x + deformable(x, place, s, layer + "attentions.0.", sizes, config["decoder_heads"]), s, layer + "norms.0")
        x = norm(x + linear(linear(x, s, layer + "ffns.0.layers.0.0").relu(), s, layer + "ffns.0.layers.1"), s, layer + "norms.1")
    levels = [part.T.unflatten(1, size) for part, size in zip(x.split([h * w for h, w in sizes]), sizes)]
    fine = convolved(maps[0], s, at + "lateral_convs.0")
    fine = fine + F.interpolate(levels[-1][None], fine.shape[-2:], mode="bilinear")
    fine = convolved(fine, s, at + "output_convs.0", padding=1).relu()
    return F.conv2d(fine, s[at + "mask_feature.weight"], s[at + "mask_feature.bias"])[0], levels


def attention(query, key, value, s, at, heads, blocked=None):
    """Softmax attention [N, C]; `blocked` [N, keys] says what a query does not see."""
    parts = zip(s[at + "in_proj_weight"].chunk(3), s[at + "in_proj_bias"].chunk(3), (query, key, value))
    q, k, v = (F.linear(x, weight, bias).unflatten(-1, (heads, -1)).transpose(0, 1) for weight, bias, x in parts)
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    if blocked is not None:
        scores = scores.masked_fill(blocked, -math.inf)
    return linear((scores.softmax(-1) @ v).transpose(0, 1).flatten(1), s, at + "out_proj")


def heads_of(x, features, s):
    """Logits of classes [Q, K + 1] and of masks [Q, h, w]."""
    x = norm(x, s, "panoptic_head.transformer_decoder.post_norm")
    mask = x
    for index in (0, 2, 4):
        mask = linear(mask if index == 0 else mask.relu(), s, f"panoptic_head.mask_embed.{index}")
    return linear(x, s, "panoptic_head.cls_embed"), torch.einsum("qc,chw->qhw", mask, features)


def detect(pixels, s, config):
    """(classes [Q, K + 1], masks [Q, h, w]) of one image [1, 3, H, W]."""
    features, levels = pixel_decoder(swin(pixels, s, config), s, config)
    x, place, heads = s["panoptic_head.query_feat.weight"], s["panoptic_head.query_embed.weight"], config["decoder_heads"]
    classes, masks = heads_of(x, features, s)
    for index in range(config["decoder_layers"]):
        level, layer = levels[index % LEVELS], f"panoptic_head.transformer_decoder.layers.{index}."
        seen = level.flatten(1).T + s["panoptic_head.level_embed.weight"][index % LEVELS]
        blocked = F.interpolate(masks[None], level.shape[1:], mode="bilinear")[0].flatten(1).sigmoid() < 0.5
        blocked &= ~blocked.all(1, keepdim=True)
        h = attention(x + place, seen + waves(level.shape[1:], x.shape[1]), seen, s, layer + "attentions.0.attn.", heads, blocked)
        x = norm(x + h, s, layer + "norms.0")
        x = norm(x + attention(x + place, x + place, x, s, layer + "attentions.1.attn.", heads), s, layer + "norms.1")
        x = norm(x + linear(linear(x, s, layer + "ffns.0.layers.0.0").relu(), s, layer + "ffns.0.layers.1"), s, layer + "norms.2")
        classes, masks = heads_of(x, features, s)
    return classes, masks


def shapes(config):
    """Name -> shape of every tensor of a checkpoint of mmdetection 2, by the source of its 2.28."""
    named, width, window = {}, config["feature_size"], config["window"]

    def dense(name, into, out, bias=True, kernel=()):
        named[name + ".weight"] = (out, into, *kernel)
        if bias:
            named[name + ".bias"] = (out,)

    def scale(name, size):
        named[name + ".weight"] = named[name + ".bias"] = (size,)

    def feed_forward(at, size, inner, number=""):
        dense(f"{at}ffn{number}.layers.0.0", size, inner)
        dense(f"{at}ffn{number}.layers.1", inner, size)

    dense("backbone.patch_embed.projection", 3, config["embed_dim"], kernel=(4, 4))
    scale("backbone.patch_embed.norm", config["embed_dim"])
    channels = [config["embed_dim"] * 2 ** stage for stage in range(4)]
    for stage, (size, heads) in enumerate(zip(channels, config["heads"])):
        for index in range(config["depths"][stage]):
            at = f"backbone.stages.{stage}.blocks.{index}."
            scale(at + "norm1", size), scale(at + "norm2", size)
            named[at + "attn.w_msa.relative_position_bias_table"] = ((2 * window - 1) ** 2, heads)
            dense(at + "attn.w_msa.qkv", size, 3 * size), dense(at + "attn.w_msa.proj", size, size)
            feed_forward(at, size, 4 * size)
        if stage < 3:
            scale(f"backbone.stages.{stage}.downsample.norm", 4 * size)
            dense(f"backbone.stages.{stage}.downsample.reduction", 4 * size, 2 * size, bias=False)
        scale(f"backbone.norm{stage}", size)
    at = "panoptic_head.pixel_decoder."
    for index, size in enumerate(channels[:0:-1]):
        dense(f"{at}input_convs.{index}.conv", size, width, kernel=(1, 1)), scale(f"{at}input_convs.{index}.gn", width)
    dense(at + "lateral_convs.0.conv", channels[0], width, False, (1, 1)), scale(at + "lateral_convs.0.gn", width)
    dense(at + "output_convs.0.conv", width, width, False, (3, 3)), scale(at + "output_convs.0.gn", width)
    dense(at + "mask_feature", width, config["mask_size"], kernel=(1, 1))
    named[at + "level_encoding.weight"] = (LEVELS, width)
    points = config["decoder_heads"] * LEVELS * POINTS
    for index in range(config["encoder_layers"]):
        layer = f"{at}encoder.layers.{index}."
        dense(layer + "attentions.0.sampling_offsets", width, 2 * points), dense(layer + "attentions.0.attention_weights", width, points)
        dense(layer + "attentions.0.value_proj", width, width), dense(layer + "attentions.0.output_proj", width, width)
        feed_forward(layer, width, config["encoder_mlp"], "s.0")
        scale(layer + "norms.0", width), scale(layer + "norms.1", width)
    at = "panoptic_head.transformer_decoder."
    for index in range(config["decoder_layers"]):
        for number in (0, 1):
            attn = f"{at}layers.{index}.attentions.{number}.attn."
            named[attn + "in_proj_weight"], named[attn + "in_proj_bias"] = (3 * width, width), (3 * width,)
            dense(attn + "out_proj", width, width)
        feed_forward(f"{at}layers.{index}.", width, config["decoder_mlp"], "s.0")
        for number in (0, 1, 2):
            scale(f"{at}layers.{index}.norms.{number}", width)
    scale(at + "post_norm", width)
    for name in ("query_embed", "query_feat"):
        named[f"panoptic_head.{name}.weight"] = (config["queries"], width)
    named["panoptic_head.level_embed.weight"] = (LEVELS, width)
    dense("panoptic_head.cls_embed", width, config["classes"] + 1)
    for index, out in ((0, width), (2, width), (4, config["mask_size"])):
        dense(f"panoptic_head.mask_embed.{index}", width, out)
    return named
