# SPDX-License-Identifier: Apache-2.0
"""Published models whose config.json is known: models/graphs has a graph for each."""

SD35 = dict(in_channels=16, out_channels=16, patch_size=2, sample_size=128, attention_head_dim=64,
            joint_attention_dim=4096, pooled_projection_dim=2048, qk_norm="rms_norm")
FLUX = dict(patch_size=1, in_channels=64, num_layers=19, num_single_layers=38, attention_head_dim=128,
            num_attention_heads=24, joint_attention_dim=4096, pooled_projection_dim=768)
WAN = dict(patch_size=[1, 2, 2], attention_head_dim=128, in_channels=16, out_channels=16, text_dim=4096, freq_dim=256,
           cross_attn_norm=True, qk_norm="rms_norm_across_heads", eps=1e-06, rope_max_seq_len=1024)
KLEIN = dict(patch_size=1, in_channels=128, attention_head_dim=128, timestep_guidance_channels=256, mlp_ratio=3.0,
             axes_dims_rope=[32, 32, 32, 32], rope_theta=2000, eps=1e-6, guidance_embeds=False)
# PP-OCRv5: PaddleOCR's networks for training (ppocr/modeling/backbones/rec_lcnetv3.py, configs/rec/PP-OCRv5), under the
# keys of transformers; the recogniser keeps columns where the detector halves both sides.
INTRACLASS_BLOCK = dict(
    reduce_channel=[1, 1, 0], return_channel=[1, 1, 0],
    vertical_long_to_small_conv_longratio=[[7, 1], [1, 1], [3, 0]],
    vertical_long_to_small_conv_midratio=[[5, 1], [1, 1], [2, 0]],
    vertical_long_to_small_conv_shortratio=[[3, 1], [1, 1], [1, 0]],
    horizontal_small_to_long_conv_longratio=[[1, 7], [1, 1], [0, 3]],
    horizontal_small_to_long_conv_midratio=[[1, 5], [1, 1], [0, 2]],
    horizontal_small_to_long_conv_shortratio=[[1, 3], [1, 1], [0, 1]],
    symmetric_conv_long_longratio=[[7, 7], [1, 1], [3, 3]],
    symmetric_conv_long_midratio=[[5, 5], [1, 1], [2, 2]],
    symmetric_conv_long_shortratio=[[3, 3], [1, 1], [1, 1]])
HEIGHT, WIDTH = [2, 1], [1, 2]
LCNET_LINE = [
    [[3, 16, 32, 1, False]],
    [[3, 32, 64, 1, False], [3, 64, 64, 1, False]],
    [[3, 64, 128, HEIGHT, False], [3, 128, 128, 1, False]],
    [[3, 128, 256, WIDTH, False], *[[5, 256, 256, 1, False]] * 4],
    [[5, 256, 512, HEIGHT, True], [5, 512, 512, 1, True], [5, 512, 512, HEIGHT, False], [5, 512, 512, 1, False]]]



def lcnet_v4(stem, *stages):
    """A backbone_config of PP-LCNetV4: stages of (channels, stride, squeezes of its blocks, one letter each)."""
    before, blocks = stem[-1], []
    for channels, stride, squeezes in stages:
        blocks.append([[3, channels if i else before, channels, 1 if i else stride, squeeze == "s"] for i, squeeze in enumerate(squeezes)])
        before = channels
    return dict(model_type="pp_lcnet_v4", stem_channels=stem, block_configs=blocks)


def detector_v4(stem, *channels):
    backbone = lcnet_v4(stem, *zip(channels, (1, 2, 2, 2), ("s-", "-s-", "-s-s-", "-s-")))
    return dict(backbone_config=backbone | dict(out_features=[f"stage{number}" for number in (1, 2, 3, 4)]))


# LTX-Video's autoencoders: what scripts/convert_ltx_to_diffusers.py of diffusers writes.
LTX_DECODER = dict(
    decoder_block_out_channels=[256, 512, 1024], decoder_spatio_temporal_scaling=[True] * 3, upsample_residual=[True] * 3,
    upsample_factor=[2] * 3, timestep_conditioning=True)

# SD3's and FLUX.1's autoencoders, which differ in their scales.
KL = dict(block_out_channels=[128, 256, 512, 512], layers_per_block=2, latent_channels=16,
          down_block_types=["DownEncoderBlock2D"] * 4, up_block_types=["UpDecoderBlock2D"] * 4, use_quant_conv=False,
          use_post_quant_conv=False)
# Language models that read prompts: the config.json of Qwen2.5-VL-7B-Instruct, Qwen3-4B and 8B, Mistral-Small-3.2-24B-Instruct.
QWEN3 = dict(vocab_size=151936, num_hidden_layers=36, num_attention_heads=32, num_key_value_heads=8, head_dim=128,
             rms_norm_eps=1e-6, rope_theta=1000000.0)
QWEN3_4B = QWEN3 | dict(hidden_size=2560, intermediate_size=9728)
# Text encoders as SD3, FLUX.1, HunyuanVideo, LTX-Video and Wan ship them. Their configs have an older number for the end
# of text.
CLIP_L = dict(hidden_size=768, intermediate_size=3072, num_attention_heads=12, eos_token_id=2)
T5_XXL = dict(d_model=4096, d_ff=10240, num_layers=24, num_heads=64, feed_forward_proj="gated-gelu")

PUBLISHED = {
    # name: (class, config); keys that are left out are the class's defaults
    "sd3-medium": ("SD3Transformer2DModel", SD35 | dict(
        num_layers=24, num_attention_heads=24, caption_projection_dim=1536, pos_embed_max_size=192, qk_norm=None)),
    "sd3.5-medium": ("SD3Transformer2DModel", SD35 | dict(
        num_layers=24, num_attention_heads=24, caption_projection_dim=1536, pos_embed_max_size=384,
        dual_attention_layers=list(range(13)))),
    "sd3.5-large": ("SD3Transformer2DModel", SD35 | dict(
        num_layers=38, num_attention_heads=38, caption_projection_dim=2432, pos_embed_max_size=192)),
    "flux.1-dev": ("FluxTransformer2DModel", FLUX | dict(guidance_embeds=True)),
    "flux.1-schnell": ("FluxTransformer2DModel", FLUX | dict(guidance_embeds=False)),
    "wan2.1-t2v-1.3b": ("WanTransformer3DModel", WAN | dict(num_layers=30, num_attention_heads=12, ffn_dim=8960)),
    "wan2.1-t2v-14b": ("WanTransformer3DModel", WAN | dict(num_layers=40, num_attention_heads=40, ffn_dim=13824)),
    "z-image": ("ZImageTransformer2DModel", dict(axes_lens=[1536, 512, 512])),
    "flux.2-klein-4b": ("Flux2Transformer2DModel", KLEIN | dict(
        num_layers=5, num_single_layers=20, num_attention_heads=24, joint_attention_dim=7680)),
    "flux.2-klein-9b": ("Flux2Transformer2DModel", KLEIN | dict(
        num_layers=8, num_single_layers=24, num_attention_heads=32, joint_attention_dim=12288)),
    "flux.2-dev": ("Flux2Transformer2DModel", {}),
    "hunyuan-video": ("HunyuanVideoTransformer3DModel", {}),
    "ltx-video-2b": ("LTXVideoTransformer3DModel", {}),
    "ltx-video-13b": ("LTXVideoTransformer3DModel", dict(
        num_layers=48, attention_head_dim=128, cross_attention_dim=4096)),
    "qwen-image": ("QwenImageTransformer2DModel", {}),
    "sd3": ("AutoencoderKL", KL | dict(scaling_factor=1.5305, shift_factor=0.0609)),
    "flux.1": ("AutoencoderKL", KL | dict(scaling_factor=0.3611, shift_factor=0.1159)),
    "flux.2": ("AutoencoderKLFlux2", {}),
    "flux.2-small-decoder": ("AutoencoderKLFlux2", dict(decoder_block_out_channels=[96, 192, 384, 384])),
    "wan2.1-decoder": ("AutoencoderKLWan", {}),
    "qwen-image-decoder": ("AutoencoderKLQwenImage", {}),
    "hunyuan-video-decoder": ("AutoencoderKLHunyuanVideo", {}),
    "ltx-video-0.9.0": ("AutoencoderKLLTXVideo", {}),
    "ltx-video-0.9.1": ("AutoencoderKLLTXVideo", LTX_DECODER | dict(
        decoder_layers_per_block=[5, 6, 7, 8], decoder_inject_noise=[True, True, True, False])),
    "ltx-video-0.9.5": ("AutoencoderKLLTXVideo", LTX_DECODER | dict(
        block_out_channels=[128, 256, 512, 1024, 2048], down_block_types=["LTXVideo095DownBlock3D"] * 4,
        layers_per_block=[4, 6, 6, 2, 2], decoder_layers_per_block=[5] * 4, spatio_temporal_scaling=[True] * 4,
        decoder_inject_noise=[False] * 4, downsample_type=["spatial", "temporal", "spatiotemporal", "spatiotemporal"],
        spatial_compression_ratio=32, temporal_compression_ratio=8)),
    "qwen2.5-vl-7b": ("Qwen2_5_VLForConditionalGeneration", dict(
        vocab_size=152064, hidden_size=3584, intermediate_size=18944, num_hidden_layers=28, num_attention_heads=28,
        num_key_value_heads=4, rms_norm_eps=1e-6, rope_theta=1000000.0)),
    "z-image-qwen3-4b": ("Qwen3Model", QWEN3_4B),
    "flux.2-klein-qwen3-4b": ("Qwen3ForCausalLM", QWEN3_4B),
    "flux.2-klein-qwen3-8b": ("Qwen3ForCausalLM", QWEN3 | dict(hidden_size=4096, intermediate_size=12288)),
    "flux.2-dev-mistral-small-3.2": ("Mistral3ForConditionalGeneration", dict(
        vocab_size=131072, hidden_size=5120, intermediate_size=32768, num_hidden_layers=40, num_attention_heads=32,
        num_key_value_heads=8, head_dim=128, rms_norm_eps=1e-5, rope_theta=1000000000.0)),
    "clip-l": ("CLIPTextModel", CLIP_L),
    "clip-l-projected": ("CLIPTextModelWithProjection", CLIP_L | dict(projection_dim=768)),
    "clip-bigg": ("CLIPTextModelWithProjection", dict(
        hidden_size=1280, intermediate_size=5120, projection_dim=1280, num_hidden_layers=32, num_attention_heads=20,
        hidden_act="gelu", eos_token_id=2)),
    "t5-v1.1-xxl": ("T5EncoderModel", T5_XXL),
    "umt5-xxl": ("UMT5EncoderModel", T5_XXL | dict(vocab_size=256384)),
    "imagereward": ("ImageReward", {}),
    "mask2former-swin-s-coco": ("Mask2Former", {}),
    "pp-ocrv5-mobile-det": ("PPOCRV5MobileDetForObjectDetection", {}),
    "pp-ocrv5-mobile-rec": ("PPOCRV5MobileRecForTextRecognition", dict(
        backbone_config=dict(model_type="pp_lcnet_v3", scale=0.95, divisor=16, block_configs=LCNET_LINE))),
    "pp-ocrv5-server-det": ("PPOCRV5ServerDetForObjectDetection", dict(
        intraclass_block_config=INTRACLASS_BLOCK, scale_factor_list=[1, 2, 4, 8], kernel_list=[3, 2, 2])),
    "pp-ocrv5-server-rec": ("PPOCRV5ServerRecForTextRecognition", {}),
    # paddlex/modules/base/utils/pdparams2safetensors/model_config.py of PaddleX 3.7.2.
    "pp-ocrv6-tiny-det": ("PPOCRV6SmallDetForObjectDetection", detector_v4([3, 16, 32], 32, 48, 64, 160) | dict(
        neck_out_channels=64, layer_list_out_channels=[32, 48, 64, 160], dilated_kernel_size=5)),
    "pp-ocrv6-small-det": ("PPOCRV6SmallDetForObjectDetection", detector_v4([3, 24, 48], 48, 96, 192, 384) | dict(
        layer_list_out_channels=[48, 96, 192, 384])),
    "pp-ocrv6-medium-det": ("PPOCRV6MediumDetForObjectDetection", detector_v4([3, 64, 128], 128, 256, 512, 896) | dict(
        intraclass_block_config=INTRACLASS_BLOCK, scale_factor_list=[1, 2, 4, 8], kernel_list=[3, 2, 2])),
    "pp-ocrv6-tiny-rec": ("PPOCRV6TinyRecForTextRecognition", dict(
        backbone_config=lcnet_v4([3, 24, 48], (48, 1, "s"), (48, 1, "-"), (96, HEIGHT, "-s-"), (160, HEIGHT, "-s--")) | dict(
            stem_type="small"), hidden_size=80, head_out_channels=7180)),
    "pp-ocrv6-small-rec": ("PPOCRV6SmallRecForTextRecognition", dict(
        backbone_config=lcnet_v4([3, 48, 96], (96, 1, "s"), (96, 1, "--"), (192, HEIGHT, "-s-s-s-"), (384, HEIGHT, "-s-")))),
    "pp-ocrv6-medium-rec": ("PPOCRV6SmallRecForTextRecognition", dict(
        backbone_config=lcnet_v4([3, 64, 128], (128, 1, "s"), (256, 1, "--s"), (512, HEIGHT, "-s-s-s-"), (768, HEIGHT, "-s-")),
        hidden_size=192, mlp_ratio=4.0)),
}
