# SPDX-License-Identifier: Apache-2.0
"""Decoders of autoencoders: from the latents that a transformer sees to pixels in about [-1, 1].

Each does what its pipeline does before `vae.decode`: statistics of latents, unpacking, the timestep.
"""
import contextlib

import torch
import torch.nn.functional as F
from diffusers.models.autoencoders import autoencoder_kl_hunyuan_video as hunyuan
from diffusers.models.autoencoders.autoencoder_kl_ltx import LTXVideoResnetBlock3d

from export_model.tracing import ExportError
from export_model.wrapper import Decoder, Symbol, replaced


def channels(values, like):
    """[C] as factors or terms of [B, C, ...]."""
    return values.view(1, -1, *[1] * (like.dim() - 2))


def levels(count):
    """Keys that name the kinds of `count` levels."""
    return dict(down_block_types=("DownEncoderBlock2D",) * count, up_block_types=("UpDecoderBlock2D",) * count)


class KlDecoder(Decoder):
    """The Gaussian autoencoder (arXiv:2112.10752) of SD3, FLUX.1 and Z-Image, and the older ones with post_quant_conv."""
    transformer_class = "AutoencoderKL"
    notes = ("sample_size", "force_upcast")  # They concern tiles and float16.
    tiny = {
        "kl_decoder_sd3": dict(
            latent_channels=4, block_out_channels=(2, 4, 4, 4), norm_num_groups=2, scaling_factor=1.5305, shift_factor=0.0609,
            use_quant_conv=False, use_post_quant_conv=False, **levels(4)),
        "kl_decoder_flux": dict(
            latent_channels=4, block_out_channels=(4, 8), layers_per_block=2, norm_num_groups=4, scaling_factor=0.3611,
            shift_factor=0.1159, use_quant_conv=False, use_post_quant_conv=False, **levels(2)),
        "kl_decoder_sd1": dict(block_out_channels=(4, 8), norm_num_groups=1, **levels(2)),
        "kl_decoder_plain": dict(
            latent_channels=1, block_out_channels=(4, 4), norm_num_groups=4, use_quant_conv=False,
            mid_block_add_attention=False, **levels(2)),
        "kl_decoder_one_level": dict(
            in_channels=1, latent_channels=1, block_out_channels=(6,), norm_num_groups=3, use_post_quant_conv=False,
            shift_factor=-0.5),
        "kl_decoder_narrow": dict(
            latent_channels=5, block_out_channels=(4, 2, 6), norm_num_groups=2, scaling_factor=2.0, **levels(3))}

    @classmethod
    def inputs(cls, config):
        if config["latents_mean"] is not None or config["latents_std"] is not None:
            raise ExportError("latents_mean and latents_std: the pipelines take scaling_factor and shift_factor alone")
        return {"latents": ["B", config["latent_channels"], "H", "W"]}

    @classmethod
    def decoder(cls, vae):
        return {"time": 1, "space": 2 ** (len(vae.config.block_out_channels) - 1)}

    def forward(self, latents):
        config = self.transformer.config
        z = latents / config.scaling_factor + (config.shift_factor or 0.0)
        return (self.transformer.decode(z, return_dict=False)[0],)


class Flux2Decoder(Decoder):
    transformer_class = "AutoencoderKLFlux2"
    tiny = {
        "flux2_decoder_tiny": dict(
            latent_channels=2, block_out_channels=(4, 8), down_block_types=("DownEncoderBlock2D",) * 2,
            up_block_types=("UpDecoderBlock2D",) * 2, layers_per_block=1, norm_num_groups=2),
        "flux2_decoder_narrow": dict(
            latent_channels=3, block_out_channels=(4, 4, 8), decoder_block_out_channels=(2, 4, 6), norm_num_groups=2,
            down_block_types=("DownEncoderBlock2D",) * 3, up_block_types=("UpDecoderBlock2D",) * 3, layers_per_block=1,
            batch_norm_eps=0.05),
        "flux2_decoder_plain": dict(
            latent_channels=1, block_out_channels=(4,), down_block_types=("DownEncoderBlock2D",),
            up_block_types=("UpDecoderBlock2D",), layers_per_block=2, norm_num_groups=1, use_quant_conv=False,
            use_post_quant_conv=False, mid_block_add_attention=False)}

    @classmethod
    def inputs(cls, config):
        if list(config["patch_size"]) != [2, 2]:
            raise ValueError(f"patch_size is {config['patch_size']}: the pipeline packs two by two latents")
        return {"latents": ["B", 4 * config["latent_channels"], "H", "W"]}

    @classmethod
    def decoder(cls, vae):
        return {"time": 1, "space": 2 ** len(vae.config.block_out_channels)}

    def forward(self, latents):
        vae, (rows, packed, height, width) = self.transformer, latents.shape
        std = torch.sqrt(vae.bn.running_var + vae.config.batch_norm_eps)
        z = latents * channels(std, latents) + channels(vae.bn.running_mean, latents)
        z = z.reshape(rows, packed // 4, 2, 2, height, width).permute(0, 1, 4, 2, 5, 3)
        return (vae.decode(z.reshape(rows, packed // 4, height * 2, width * 2), return_dict=False)[0],)


def upsampled(module, hidden_states):
    """HunyuanVideoUpsampleCausal3D for any number of frames: all are repeated, the first one only once."""
    x = F.interpolate(hidden_states.contiguous(), scale_factor=module.upsample_factor, mode="nearest")
    return module.conv(x[:, :, module.upsample_factor[0] - 1:])


class HunyuanVideoDecoder(Decoder):
    """One tile: diffusers cuts a longer video along time, and so does the reader of the graph."""
    transformer_class = "AutoencoderKLHunyuanVideo"
    tiny = {
        "hunyuan_decoder_tiny": dict(
            latent_channels=3, block_out_channels=(4, 4, 8), down_block_types=("HunyuanVideoDownBlock3D",) * 3,
            up_block_types=("HunyuanVideoUpBlock3D",) * 3, layers_per_block=1, norm_num_groups=2,
            spatial_compression_ratio=4),
        "hunyuan_decoder_deep": dict(
            latent_channels=2, block_out_channels=(4, 4, 4, 8), down_block_types=("HunyuanVideoDownBlock3D",) * 4,
            up_block_types=("HunyuanVideoUpBlock3D",) * 4, layers_per_block=1, norm_num_groups=4, scaling_factor=0.7),
        "hunyuan_decoder_plain": dict(
            latent_channels=4, block_out_channels=(2, 4, 6), down_block_types=("HunyuanVideoDownBlock3D",) * 3,
            up_block_types=("HunyuanVideoUpBlock3D",) * 3, layers_per_block=2, norm_num_groups=2,
            spatial_compression_ratio=4, mid_block_add_attention=False)}

    @classmethod
    def symbols(cls, config):
        return super().symbols(config) | {"F": Symbol(max=5)}

    @classmethod
    def inputs(cls, config):
        return {"latents": ["B", config["latent_channels"], "F", "H", "W"]}

    @classmethod
    def decoder(cls, vae):
        time = vae.temporal_compression_ratio
        return {"time": time, "space": vae.spatial_compression_ratio,
                "tile": {"frames": vae.tile_sample_min_num_frames // time, "stride": vae.tile_sample_stride_num_frames // time}}

    @classmethod
    @contextlib.contextmanager
    def traceable(cls, vae):
        with replaced(hunyuan.HunyuanVideoUpsampleCausal3D, "forward", upsampled):
            yield

    def forward(self, latents):
        vae = self.transformer
        with replaced(vae, "use_framewise_decoding", False):
            return (vae.decode(latents / vae.config.scaling_factor, return_dict=False)[0],)


@contextlib.contextmanager
def without_noise(vae):
    """Blocks add no noise: pictures of the same latents are the same."""
    with contextlib.ExitStack() as stack:
        for block in vae.decoder.modules():
            if isinstance(block, LTXVideoResnetBlock3d):
                for name in ("per_channel_scale1", "per_channel_scale2"):
                    stack.enter_context(replaced(block, name, None))
        yield


class LtxDecoder(Decoder):
    """Without noise, and at timestep 0 where the network takes one: the pipeline's defaults."""
    transformer_class = "AutoencoderKLLTXVideo"
    tiny = {
        "ltx_decoder_tiny": dict(
            latent_channels=3, block_out_channels=(4, 4), down_block_types=("LTXVideoDownBlock3D",) * 2,
            decoder_block_out_channels=(4, 6), layers_per_block=(1, 1, 1), decoder_layers_per_block=(1, 1, 1),
            spatio_temporal_scaling=(True, False), decoder_spatio_temporal_scaling=(True, False),
            decoder_inject_noise=(False,) * 3, downsample_type=("conv",) * 2, upsample_residual=(False,) * 2,
            upsample_factor=(1, 1), patch_size=2),
        "ltx_decoder_timed": dict(
            latent_channels=6, block_out_channels=(4, 4), down_block_types=("LTXVideoDownBlock3D",) * 2,
            decoder_block_out_channels=(4, 8), layers_per_block=(1, 1, 1), decoder_layers_per_block=(1, 2, 1),
            spatio_temporal_scaling=(True, True), decoder_spatio_temporal_scaling=(True, True),
            decoder_inject_noise=(True, True, False), downsample_type=("conv",) * 2, upsample_residual=(False, True),
            upsample_factor=(2, 2), timestep_conditioning=True, patch_size=1),
        "ltx_decoder_causal": dict(
            latent_channels=4, block_out_channels=(4, 4), down_block_types=("LTXVideoDownBlock3D",) * 2,
            decoder_block_out_channels=(4, 8), layers_per_block=(1, 1, 1), decoder_layers_per_block=(1, 1, 2),
            spatio_temporal_scaling=(True, False), decoder_spatio_temporal_scaling=(False, True),
            decoder_inject_noise=(False,) * 3, downsample_type=("conv",) * 2, upsample_residual=(False, True),
            upsample_factor=(1, 1), patch_size=2, decoder_causal=True, scaling_factor=0.8)}

    @classmethod
    def inputs(cls, config):
        return {"latents": ["B", config["latent_channels"], "F", "H", "W"]}

    @classmethod
    def decoder(cls, vae):
        return {"time": vae.temporal_compression_ratio, "space": vae.spatial_compression_ratio}

    def forward(self, latents):
        vae = self.transformer
        z = latents * channels(vae.latents_std, latents) / vae.config.scaling_factor + channels(vae.latents_mean, latents)
        timestep = latents.new_zeros(latents.shape[:1]) if vae.config.timestep_conditioning else None
        with without_noise(vae):
            return (vae.decode(z, timestep, return_dict=False)[0],)
