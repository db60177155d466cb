#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Names of ComfyUI's adapters and modules of diffusers' networks: tests/golden/comfy_names.json.

    make_comfy_goldens.py [--out FILE]

"modules" are the linear layers of diffusers' networks with the shapes of small ones; {} is a block's number. "keys" are
names, read out of ComfyUI's sources, under which it looks for a module's adapter; SOURCE says which ones. Only names were
taken. ComfyNamesTest compares what is exported with them. Needs torch and diffusers.
"""
import argparse
import json
import pathlib
import re

import diffusers
import torch

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCE = "ComfyUI 0.7.0, and Comfy-Org/ComfyUI at 17358c8f (comfy/lora.py) and 09708eae (comfy/utils.py); comfy/ldm"
QKV = ["to_q", "to_k", "to_v"]
ADDED = ["add_q_proj", "add_k_proj", "add_v_proj"]


def networks():
    """Small ones, of two blocks of each kind."""
    yield diffusers.SD3Transformer2DModel(sample_size=8, in_channels=4, num_layers=2, attention_head_dim=4, num_attention_heads=2,
                                          joint_attention_dim=8, caption_projection_dim=8, pooled_projection_dim=8, out_channels=4,
                                          pos_embed_max_size=8, dual_attention_layers=(0,), qk_norm="rms_norm")
    rope = dict(axes_dims_rope=(2, 2, 4))
    sizes = dict(num_layers=2, num_single_layers=2, attention_head_dim=8, num_attention_heads=2)
    yield diffusers.FluxTransformer2DModel(patch_size=1, in_channels=4, joint_attention_dim=8, pooled_projection_dim=8,
                                           guidance_embeds=True, **sizes, **rope)
    yield diffusers.Flux2Transformer2DModel(patch_size=1, in_channels=4, joint_attention_dim=8, timestep_guidance_channels=8,
                                            mlp_ratio=2.0, axes_dims_rope=(2, 2, 2, 2), **sizes)
    yield diffusers.QwenImageTransformer2DModel(in_channels=4, out_channels=4, num_layers=2, attention_head_dim=8, num_attention_heads=2,
                                                joint_attention_dim=8, **rope)
    yield diffusers.ZImageTransformer2DModel(in_channels=4, dim=16, n_layers=2, n_refiner_layers=2, n_heads=2, n_kv_heads=2,
                                             cap_feat_dim=8, axes_dims=[2, 2, 4], axes_lens=[32, 32, 32])
    yield diffusers.WanTransformer3DModel(num_attention_heads=2, attention_head_dim=12, in_channels=4, out_channels=4, text_dim=8,
                                          freq_dim=8, ffn_dim=16, num_layers=2, rope_max_seq_len=32)
    yield diffusers.LTXVideoTransformer3DModel(in_channels=4, out_channels=4, num_attention_heads=2, attention_head_dim=8,
                                               cross_attention_dim=16, num_layers=2, caption_channels=8)
    yield diffusers.HunyuanVideoTransformer3DModel(in_channels=4, out_channels=4, num_attention_heads=2, attention_head_dim=8,
                                                   num_layers=2, num_single_layers=2, num_refiner_layers=2, text_embed_dim=8,
                                                   pooled_projection_dim=8, rope_axes_dim=(2, 2, 4))


def behind(prefix, names):
    return [prefix + name for name in names]


def blocks(prefix, names):
    return behind(f"transformer.{prefix}.{{}}.", names)


JOINT = behind("attn.", QKV + ADDED + ["to_out.0", "to_add_out"])
FEED_FORWARD = ["ff.net.0.proj", "ff.net.2", "ff_context.net.0.proj", "ff_context.net.2"]
TIME_AND_TEXT = [f"transformer.time_text_embed.{part}_embedder.linear_{i}" for part in ("timestep", "text", "guidance") for i in (1, 2)]
ENDS = behind("transformer.", ["norm_out.linear", "proj_out", "context_embedder", "x_embedder"])
FLUX_NATIVE = ["double_blocks.{}." + name for name in ("img_attn.qkv", "txt_attn.qkv", "img_attn.proj", "txt_attn.proj", "img_mlp.0",
                                                       "img_mlp.2", "txt_mlp.0", "txt_mlp.2")]
FLUX_NATIVE += ["single_blocks.{}.linear1", "single_blocks.{}.linear2", "final_layer.linear", "final_layer.adaLN_modulation.1",
                "time_in.in_layer", "time_in.out_layer", "guidance_in.in_layer", "guidance_in.out_layer"]
FLUX_ONE_NATIVE = ["double_blocks.{}.img_mod.lin", "double_blocks.{}.txt_mod.lin", "single_blocks.{}.modulation.lin",
                   "vector_in.in_layer", "vector_in.out_layer"]
REFINER = "txt_in.individual_token_refiner.blocks.{}."
KEYS = {
    "SD3Transformer2DModel": blocks("transformer_blocks", JOINT + FEED_FORWARD + behind("attn2.", QKV + ["to_out.0"]) +
                                    ["norm1.linear", "norm1_context.linear"]) + TIME_AND_TEXT + ENDS,
    "FluxTransformer2DModel": blocks("transformer_blocks", JOINT + FEED_FORWARD + ["norm1.linear", "norm1_context.linear"]) +
    blocks("single_transformer_blocks", behind("attn.", QKV) + ["proj_mlp", "proj_out", "norm.linear"]) + TIME_AND_TEXT + ENDS,
    "Flux2Transformer2DModel": blocks("transformer_blocks", JOINT) + ENDS +
    behind("diffusion_model.", FLUX_NATIVE + ["double_stream_modulation_img.lin", "double_stream_modulation_txt.lin",
                                              "single_stream_modulation.lin"]),
    "QwenImageTransformer2DModel": behind("diffusion_model.transformer_blocks.{}.", JOINT + ["img_mod.1", "txt_mod.1"] + [
        f"{side}_mlp.net.{part}" for side in ("img", "txt") for part in ("0.proj", "2")]) + behind("diffusion_model.", [
            "img_in", "txt_in", "norm_out.linear", "proj_out", "time_text_embed.timestep_embedder.linear_1",
            "time_text_embed.timestep_embedder.linear_2"]),
    "ZImageTransformer2DModel": [f"diffusion_model.{part}.{{}}.{name}" for part in ("layers", "noise_refiner", "context_refiner")
                                 for name in ["attention.qkv", "attention.out", "feed_forward.w1", "feed_forward.w2", "feed_forward.w3"] +
                                 (["adaLN_modulation.0"] if part != "context_refiner" else [])] +
    behind("diffusion_model.", ["final_layer.linear", "final_layer.adaLN_modulation.1", "x_embedder", "cap_embedder.1", "t_embedder.mlp.0",
                                "t_embedder.mlp.2"]),
    "WanTransformer3DModel": [f"diffusion_model.blocks.{{}}.{side}_attn.{part}" for side in ("self", "cross") for part in "qkvo"] +
    behind("diffusion_model.", ["blocks.{}.ffn.0", "blocks.{}.ffn.2", "text_embedding.0", "text_embedding.2", "time_embedding.0",
                                "time_embedding.2", "time_projection.1", "head.head"]),
    "LTXVideoTransformer3DModel": [f"diffusion_model.transformer_blocks.{{}}.attn{i}.{part}" for i in (1, 2) for part in QKV + ["to_out.0"]] +
    behind("diffusion_model.", ["transformer_blocks.{}.ff.net.0.proj", "transformer_blocks.{}.ff.net.2", "patchify_proj", "proj_out",
                                "adaln_single.linear", "adaln_single.emb.timestep_embedder.linear_1",
                                "adaln_single.emb.timestep_embedder.linear_2", "caption_projection.linear_1",
                                "caption_projection.linear_2"]),
    "HunyuanVideoTransformer3DModel": behind("diffusion_model.", FLUX_NATIVE + FLUX_ONE_NATIVE + behind(REFINER, [
        "self_attn.qkv", "self_attn.proj", "mlp.0", "mlp.2", "adaLN_modulation.1"]) + behind("txt_in.", [
            "input_embedder", "t_embedder.in_layer", "t_embedder.out_layer", "c_embedder.in_layer", "c_embedder.out_layer"])),
}


def modules(network):
    """Block 0's stand for all; FLUX.2's and others' names have one number at most."""
    found = {}
    for name, module in network.named_modules():
        if isinstance(module, torch.nn.Linear):
            pattern = re.sub(r"((?:blocks|layers|refiner)\.)\d+(?=\.)", r"\1{}", name)
            found.setdefault(pattern, list(module.weight.shape))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "tests/golden/comfy_names.json")
    out = parser.parse_args().out
    golden = {"source": SOURCE, "classes": {}}
    for network in networks():
        name = type(network).__name__
        golden["classes"][name] = {"modules": modules(network), "keys": sorted(KEYS[name])}
        print(name, len(golden["classes"][name]["modules"]), "modules", len(KEYS[name]), "keys")
    out.write_text(json.dumps(golden, indent=0) + "\n")


if __name__ == "__main__":
    main()
