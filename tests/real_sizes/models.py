# SPDX-License-Identifier: Apache-2.0
"""Narrow random pipelines with real outer sizes, saved as diffusers saves them.

SD3 and FLUX.1 for 512 x 512 pixels, Wan2.1 for 240 x 416 x 17 frames: latents, tokens of a picture, tokens of a prompt and
factors of the autoencoder are those of the published models. One or two layers of 64 channels make a step take seconds.
Tokenizers are those of tests/golden/text. Weights are drawn from a fixed seed. Pictures have about the detail of a photograph, and their
files its size.
"""
import json
import sys
from pathlib import Path

import diffusers
import torch
import transformers

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
from export_model.graph_file import exported_graph, write_graph  # noqa: E402
from export_model.tracing import make_transformer  # noqa: E402
from export_model.wrappers import WRAPPERS  # noqa: E402

TEXT = ROOT / "tests/golden/text"
CLIP_TOKENS = 77
NAMES = ("sd3", "flux", "wan")


def clip_tokenizer(folder):
    tokenizer = transformers.CLIPTokenizer.from_pretrained(str(TEXT / "tokenizer_json" / folder))
    tokenizer.model_max_length = CLIP_TOKENS
    return tokenizer


def clip(tokenizer, kind, width=16, **layout):
    return kind(transformers.CLIPTextConfig(
        vocab_size=len(tokenizer), hidden_size=width, intermediate_size=32, projection_dim=width, num_hidden_layers=2,
        num_attention_heads=2, max_position_embeddings=CLIP_TOKENS, bos_token_id=len(tokenizer) - 2,
        eos_token_id=len(tokenizer) - 1, **layout)).eval()


def t5(tokenizer, kind=transformers.T5EncoderModel, config=transformers.T5Config, width=32):
    return kind(config(vocab_size=len(tokenizer) + 4, d_model=width, d_kv=16, d_ff=48, num_layers=2, num_heads=2,
                       feed_forward_proj="gated-gelu")).eval()


def photographic(module):
    """Convolutions blur, but for those of the largest size, which sharpen: pictures have soft shapes with fine edges."""
    line = torch.tensor([0.25, 0.5, 0.25])
    soft, sharp = line[:, None] * line, torch.full((3, 3), -0.4)
    sharp[1, 1] += 4.6
    for name, part in module.named_modules():
        if not isinstance(part, (torch.nn.Conv2d, torch.nn.Conv3d)) or part.kernel_size[-1] != 3:
            continue
        kernel = sharp if "up_blocks.3" in name or name.endswith("conv_out") else soft
        if isinstance(part, torch.nn.Conv3d):
            kernel = kernel.expand(part.kernel_size[0], 3, 3) / part.kernel_size[0]
        pairs = torch.randn(part.weight.shape[:2]) * part.weight.shape[1] ** -0.5
        part.weight.data = pairs[(...,) + (None,) * kernel.dim()] * kernel
        part.bias.data.zero_()
    return module.eval()


def autoencoder(**numbers):
    return photographic(diffusers.AutoencoderKL(
        latent_channels=16, block_out_channels=(8, 8, 8, 8), down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4, layers_per_block=1, norm_num_groups=4, use_quant_conv=False,
        use_post_quant_conv=False, sample_size=512, **numbers))


def sd3():
    first, second = clip_tokenizer("tokenizer"), clip_tokenizer("tokenizer_2")
    third = transformers.T5Tokenizer.from_pretrained(str(TEXT / "tokenizer_json/tokenizer_3"))
    kind = transformers.CLIPTextModelWithProjection
    return diffusers.StableDiffusion3Pipeline(
        transformer=diffusers.SD3Transformer2DModel(
            sample_size=64, patch_size=2, in_channels=16, out_channels=16, num_layers=2, attention_head_dim=32,
            num_attention_heads=2, joint_attention_dim=32, caption_projection_dim=64, pooled_projection_dim=32,
            pos_embed_max_size=96, qk_norm="rms_norm", dual_attention_layers=(0,)),
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(shift=3.0),
        vae=autoencoder(scaling_factor=1.5305, shift_factor=0.0609), tokenizer=first, text_encoder=clip(first, kind), tokenizer_2=second,
        text_encoder_2=clip(second, kind, hidden_act="gelu"), tokenizer_3=third, text_encoder_3=t5(third))


def flux():
    first = clip_tokenizer("tokenizer")
    second = transformers.T5Tokenizer.from_pretrained(str(TEXT / "tokenizer_json/tokenizer_3"))
    return diffusers.FluxPipeline(
        transformer=diffusers.FluxTransformer2DModel(
            patch_size=1, in_channels=64, num_layers=1, num_single_layers=1, attention_head_dim=32, num_attention_heads=2,
            joint_attention_dim=32, pooled_projection_dim=16, guidance_embeds=True, axes_dims_rope=(8, 12, 12)),
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True, shift=3.0, base_shift=0.5, max_shift=1.15),
        vae=autoencoder(scaling_factor=0.3611, shift_factor=0.1159), tokenizer=first,
        text_encoder=clip(first, transformers.CLIPTextModel), tokenizer_2=second, text_encoder_2=t5(second))


def wan():
    tokenizer = transformers.T5Tokenizer.from_pretrained(str(TEXT / "tokenizer_json/tokenizer_umt5"))
    return diffusers.WanPipeline(
        transformer=diffusers.WanTransformer3DModel(
            patch_size=(1, 2, 2), num_attention_heads=2, attention_head_dim=24, in_channels=16, out_channels=16, text_dim=32,
            freq_dim=32, ffn_dim=96, num_layers=1, cross_attn_norm=True),
        scheduler=diffusers.UniPCMultistepScheduler(prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=3.0),
        vae=photographic(diffusers.AutoencoderKLWan(base_dim=2, z_dim=16, dim_mult=[1, 1, 1, 1], num_res_blocks=1)), tokenizer=tokenizer,
        text_encoder=t5(tokenizer, transformers.UMT5EncoderModel, transformers.UMT5Config))


def save(name, directory):
    """The pipeline in `directory`, with the graph of its transformer."""
    torch.manual_seed(40)
    pipe = {"sd3": sd3, "flux": flux, "wan": wan}[name]()
    pipe.save_pretrained(directory)
    config = json.loads((Path(directory) / "transformer/config.json").read_text())
    wrapper = WRAPPERS[config["_class_name"]]
    graph = exported_graph(wrapper, make_transformer(wrapper, config, fake=True))
    write_graph(graph, Path(directory) / "transformer/graph.json.gz")
