# SPDX-License-Identifier: Apache-2.0
"""The video autoencoder of Wan (arXiv:2503.20314) and of Qwen-Image: one latent frame after the other.

Every causal convolution over time sees the last two frames of its input before the present ones. These are the states.
The first latent frame sees zeros there, makes one frame and steps over the temporal upsampling. Later ones make `time`.
"""
import contextlib

import torch
import torch.nn.functional as F
from diffusers.models.autoencoders import autoencoder_kl_qwenimage as qwen_image
from diffusers.models.autoencoders import autoencoder_kl_wan as wan

from export_model.tracing import ExportError
from export_model.wrapper import Decoder, replaced

KEPT = wan.CACHE_T  # Frames that a convolution keeps.


def causal(conv, x, cache_x=None):
    """WanCausalConv3d without copies that pad: nothing but zeros is before a clip's first frame."""
    sides = (0, *conv._padding[2::-2])
    if conv._padding[4] == 0:
        return F.conv3d(x, conv.weight, conv.bias)
    if cache_x is None:
        return F.conv3d(x, conv.weight[:, :, KEPT:], conv.bias, padding=sides)
    return F.conv3d(torch.cat([cache_x, x], dim=2), conv.weight, conv.bias, padding=sides)


def normalised(norm, x):
    return F.normalize(x, dim=1).mul_(norm.gamma * norm.scale)


def doubled(upsample, x):
    return F.interpolate(x, scale_factor=2.0, mode="nearest")


def config_of(**keys):
    """A small config whose factors are those of its levels."""
    halved, levels = keys["temperal_downsample"], len(keys["dim_mult"])
    made = dict(base_dim=4, z_dim=3, num_res_blocks=1) | keys
    statistics = dict(latents_mean=[0.5 - 0.25 * c for c in range(made["z_dim"])],
                      latents_std=[0.75 + 0.25 * c for c in range(made["z_dim"])])
    factors = dict(scale_factor_temporal=2 ** sum(halved),
                   scale_factor_spatial=2 ** (levels - 1) * keys.get("patch_size", 1))
    return made | statistics | factors


def without_factors(config):
    return {key: value for key, value in config.items() if not key.startswith("scale_factor")}


class FirstFrame(Decoder):
    """A clip's first latent frame, with its states."""
    source, kind = wan, "Wan"

    @classmethod
    def states(cls, config):
        """{name: shape} of the inputs that the convolutions keep, in the decoder's order."""
        width = config.get("decoder_base_dim") or config["base_dim"]
        widths, upsampled = [width * m for m in config["dim_mult"][::-1]], config["temperal_downsample"][::-1]
        residual = config.get("is_residual", False)
        kept = [("conv_in", config["z_dim"], 0)]
        kept += [(f"mid_block_resnets_{k}_conv{n}", widths[0], 0) for k in range(2) for n in (1, 2)]
        before = widths[0]
        for level, width in enumerate(widths):
            for k in range(config["num_res_blocks"] + 1):
                kept += [(f"up_blocks_{level}_resnets_{k}_conv1", before if k == 0 else width, level),
                         (f"up_blocks_{level}_resnets_{k}_conv2", width, level)]
            if level < len(upsampled) and upsampled[level]:
                kept.append((f"up_blocks_{level}_time_conv", width, level))
            before = width if residual else width // 2
        kept.append(("conv_out", widths[-1], len(widths) - 1))
        side = lambda symbol, level: symbol if level == 0 else f"{2 ** level}{symbol}"
        return {name: ["B", channels, KEPT, side("H", level), side("W", level)] for name, channels, level in kept}

    @classmethod
    def inputs(cls, config):
        return {"latents": ["B", config["z_dim"], 1, "H", "W"]}

    @classmethod
    def output_names(cls, config):
        return ("pixels", *cls.states(config))

    @classmethod
    def decoder(cls, vae):
        config = vae.config
        made = {"time": 2 ** sum(config.temperal_downsample),
                "space": 2 ** (len(config.dim_mult) - 1) * (config.get("patch_size") or 1)}
        for key, factor in (("scale_factor_temporal", made["time"]), ("scale_factor_spatial", made["space"])):
            if config.get(key) not in (None, factor):
                raise ExportError(f"{key} is {config[key]}, the levels make {factor}")
        return made

    @classmethod
    @contextlib.contextmanager
    def traceable(cls, vae):
        in_place = lambda module, x: F.silu(x, inplace=True)
        with replaced(getattr(cls.source, f"{cls.kind}CausalConv3d"), "forward", causal), \
                replaced(getattr(cls.source, f"{cls.kind}RMS_norm"), "forward", normalised), \
                replaced(getattr(cls.source, f"{cls.kind}Upsample"), "forward", doubled), \
                replaced(torch.nn.SiLU, "forward", in_place):  # On a norm's result.
            yield

    @staticmethod
    def unscaled(vae, latents):
        mean, std = (latents.new_tensor(values).view(1, -1, 1, 1, 1)
                     for values in (vae.config.latents_mean, vae.config.latents_std))
        return latents * std + mean

    @classmethod
    def whole(cls, vae, latents):
        return vae.decode(cls.unscaled(vae, latents), return_dict=False)[0]

    def frames(self, latents, cache, **first):
        """Pixels of one latent frame. `cache` holds what each convolution keeps, then and afterwards."""
        vae = self.transformer
        z = vae.post_quant_conv(self.unscaled(vae, latents))
        pixels = vae.decoder(z, feat_cache=cache, feat_idx=[0], **first)
        if vae.config.get("patch_size") is not None:
            pixels = wan.unpatchify(pixels, patch_size=vae.config.patch_size)
        return torch.clamp(pixels, min=-1.0, max=1.0)

    def forward(self, latents):
        states = self.states(self.transformer.config)
        cache = [None] * self.transformer._cached_conv_counts["decoder"]
        pixels = self.frames(latents, cache, **({"first_chunk": True} if self.kind == "Wan" else {}))
        rows, _, _, height, width = latents.shape
        kept = []
        for last, (_, channels, _, tall, _) in zip(cache, states.values()):
            times = int(tall[:-1] or 1)
            empty = latents.new_zeros((rows, channels, KEPT, height * times, width * times)) if last == "Rep" else None
            kept.append(F.pad(last, (0, 0, 0, 0, KEPT - 1, 0)) if empty is None else empty)
        return (pixels, *kept)


class NextFrame(FirstFrame):
    """Each latent frame but the first, from the states of the one before."""

    @classmethod
    def inputs(cls, config):
        return super().inputs(config) | cls.states(config)

    def forward(self, latents, states):
        cache = list(states.values()) + [None] * self.transformer._cached_conv_counts["decoder"]
        return (self.frames(latents, cache), *cache[:len(states)])


class WanNextFrame(NextFrame):
    transformer_class = "AutoencoderKLWan"


class WanDecoder(FirstFrame):
    transformer_class = "AutoencoderKLWan"
    following = WanNextFrame
    tiny = {
        "wan_decoder_tiny": config_of(
            dim_mult=[1, 2, 4, 4], temperal_downsample=[False, True, True], base_dim=3),
        "wan_decoder_one_level": config_of(dim_mult=[2], temperal_downsample=[]),
        "wan_decoder_still": config_of(dim_mult=[1, 3], temperal_downsample=[False]),
        "wan_decoder_twice": config_of(dim_mult=[1, 2], temperal_downsample=[True], z_dim=1, num_res_blocks=2),
        "wan_decoder_late": config_of(dim_mult=[1, 2, 2], temperal_downsample=[False, True], base_dim=3, z_dim=4),
        "wan_decoder_wide": config_of(dim_mult=[1, 2, 2], temperal_downsample=[True, False], decoder_base_dim=6),
        "wan_decoder_eight_times": config_of(dim_mult=[1, 1, 1, 1], temperal_downsample=[True] * 3, attn_scales=[0.5]),
        "wan22_decoder_tiny": config_of(
            dim_mult=[1, 2, 2], temperal_downsample=[False, True], is_residual=True, patch_size=2, in_channels=12,
            out_channels=12, decoder_base_dim=6)}


class QwenImageNextFrame(NextFrame):
    transformer_class = "AutoencoderKLQwenImage"
    source, kind = qwen_image, "QwenImage"


class QwenImageDecoder(FirstFrame):
    transformer_class = "AutoencoderKLQwenImage"
    source, kind = qwen_image, "QwenImage"
    following = QwenImageNextFrame
    tiny = {
        "qwen_image_decoder_tiny": without_factors(config_of(dim_mult=[1, 2], temperal_downsample=[False], base_dim=2, z_dim=4)),
        "qwen_image_decoder_timed": without_factors(config_of(dim_mult=[1, 2, 2], temperal_downsample=[False, True], z_dim=4))}
