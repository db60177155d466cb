#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Adapters in files of other tools, and what they add to a network's weights: tests/golden/adapter_files.

    make_adapter_file_goldens.py [--out DIRECTORY]

Each case is a directory: the adapter as PEFT or a pipeline of diffusers saves it, or by the names of kohya and ComfyUI as
diffusers reads them; and expected.safetensors, with the change of each weight that the loader of PEFT or diffusers made of
that very file, and the shapes of the network. AdapterFileTest reads the same files. Needs torch, diffusers and peft.
"""
import argparse
import copy
import json
import pathlib

import diffusers
import peft
import safetensors.torch
import torch

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOUBLE, SINGLE = "transformer_blocks.0", "single_transformer_blocks.0"


def flux():
    return diffusers.FluxTransformer2DModel(patch_size=1, in_channels=4, num_layers=1, num_single_layers=1, attention_head_dim=8,
                                            num_attention_heads=2, joint_attention_dim=8, pooled_projection_dim=8,
                                            axes_dims_rope=(2, 2, 4))


def wan():
    return diffusers.WanTransformer3DModel(patch_size=(1, 2, 2), num_attention_heads=2, attention_head_dim=12, in_channels=4,
                                           out_channels=4, text_dim=8, freq_dim=8, ffn_dim=16, num_layers=2, rope_max_seq_len=32)


def z_image():
    return diffusers.ZImageTransformer2DModel(in_channels=4, dim=16, n_layers=1, n_refiner_layers=1, n_heads=2, n_kv_heads=2,
                                              cap_feat_dim=8, axes_dims=[2, 2, 4], axes_lens=[32, 32, 32])


def filled(model, seed):
    generator = torch.Generator().manual_seed(seed)
    for name, tensor in model.named_parameters():
        if "lora_" in name:
            tensor.data = torch.randn(tensor.shape, generator=generator) * 0.3
    return model


def weights(model):
    return {name: tensor.detach().double() for name, tensor in model.state_dict().items()}


def write_expected(directory, model, changes):
    metadata = {"class": type(model).__name__,
                "network": json.dumps({name: list(tensor.shape) for name, tensor in model.state_dict().items()})}
    changes = {name: change.float().contiguous() for name, change in changes.items()}
    safetensors.torch.save_file(changes, directory / "expected.safetensors", metadata=metadata)


def changed(before, after):
    after = {name.replace(".base_layer.", "."): value for name, value in after.items() if "lora_" not in name}
    assert before.keys() == after.keys(), before.keys() ^ after.keys()
    return {name: after[name] - before[name] for name in before if not torch.equal(after[name], before[name])}


def cast(directory, dtype):
    """Rounds a file's tensors, as trainers save them."""
    file = directory / "adapter_model.safetensors"
    safetensors.torch.save_file({k: v.to(dtype) for k, v in safetensors.torch.load_file(file).items()}, file,
                                metadata={"format": "pt"})


def by_peft(directory, model, dtype, **config):
    directory.mkdir(parents=True, exist_ok=True)
    adapted = filled(peft.get_peft_model(copy.deepcopy(model), peft.LoraConfig(**config)), 1)
    adapted.save_pretrained(directory)
    cast(directory, dtype)
    (directory / "README.md").unlink(missing_ok=True)
    loaded = peft.PeftModel.from_pretrained(copy.deepcopy(model).double(), directory)
    merged = loaded.merge_and_unload()
    write_expected(directory, model, changed(weights(model), weights(merged)))


def read_by_diffusers(directory, pipeline, model):
    """The directory's file as the pipeline's own loader reads it."""
    arguments = {"return_alphas": True} if pipeline is diffusers.FluxPipeline else {}
    state, *alphas, metadata = pipeline.lora_state_dict(directory, return_lora_metadata=True, **arguments)
    more = {"network_alphas": alphas[0]} if alphas else {}
    other = copy.deepcopy(model).double()
    pipeline.load_lora_into_transformer(state, transformer=other, adapter_name="default", metadata=metadata, **more)
    for module in other.modules():
        if isinstance(module, peft.tuners.lora.LoraLayer):
            module.merge()
    write_expected(directory, model, changed(weights(model), weights(other)))


def by_diffusers(directory, pipeline, model, **config):
    directory.mkdir(parents=True, exist_ok=True)
    adapted = copy.deepcopy(model)
    lora = peft.LoraConfig(**config)
    adapted.add_adapter(lora)
    filled(adapted, 2)
    layers = peft.utils.get_peft_model_state_dict(adapted)
    pipeline.save_lora_weights(directory, transformer_lora_layers=layers,
                               transformer_lora_adapter_metadata=adapted.peft_config["default"].to_dict())
    read_by_diffusers(directory, pipeline, model)


def by_names(directory, pipeline, model, modules, form, dtype):
    """A file with these modules, {name: (out, in, rank, alpha)}, by the names of another tool."""
    directory.mkdir(parents=True, exist_ok=True)
    generator = torch.Generator().manual_seed(3)
    tensors = {}
    for name, (rows, columns, rank, alpha) in modules.items():
        down, up = form
        tensors[name + down] = (torch.randn(rank, columns, generator=generator) * 0.3).to(dtype)
        tensors[name + up] = (torch.randn(rows, rank, generator=generator) * 0.3).to(dtype)
        if alpha is not None:
            tensors[name + ".alpha"] = torch.tensor(alpha).to(dtype)
    safetensors.torch.save_file(tensors, directory / "pytorch_lora_weights.safetensors")
    read_by_diffusers(directory, pipeline, model)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "tests/golden/adapter_files")
    out = parser.parse_args().out
    torch.manual_seed(0)
    by_peft(out / "peft_patterns", flux(), torch.float16, r=2, lora_alpha=3, target_modules=["to_q", "to_k", "proj_mlp", "ff.net.2"],
            rank_pattern={"to_k": 3, r".*\.proj_mlp": 1},
            alpha_pattern={f"^{DOUBLE}.attn.to_k": 5, "to_k": 7, r"single_transformer_blocks\.\d+\.attn.to_q": 64})
    by_peft(out / "peft_rslora", flux(), torch.bfloat16, r=4, lora_alpha=6, use_rslora=True, target_modules=["attn.to_q", "proj_out"])
    by_peft(out / "peft_layers", wan(), torch.float32, r=2, lora_alpha=4, target_modules=["to_q", "ffn.net.2"],
            layers_to_transform=[1], layers_pattern="blocks")
    by_diffusers(out / "diffusers_patterns", diffusers.FluxPipeline, flux(), r=2, lora_alpha=5, target_modules=["to_q", "add_k_proj"],
                 rank_pattern={f"{DOUBLE}.attn.to_q": 3}, alpha_pattern={f"{SINGLE}.attn.to_q": 9})
    kohya = (".lora_down.weight", ".lora_up.weight")
    by_names(out / "kohya_flux", diffusers.FluxPipeline, flux(),
             {"lora_unet_double_blocks_0_img_attn_qkv": (48, 16, 2, 1.0), "lora_unet_double_blocks_0_txt_attn_proj": (16, 16, 3, 3.0),
              "lora_unet_double_blocks_0_img_mlp_0": (64, 16, 2, 8.0), "lora_unet_single_blocks_0_linear2": (16, 80, 2, 0.5),
              "lora_unet_single_blocks_0_modulation_lin": (48, 16, 2, 2.0)},
             kohya, torch.bfloat16)
    by_names(out / "comfyui_wan", diffusers.WanPipeline, wan(),
             {"diffusion_model.blocks.0.self_attn.q": (24, 24, 2, 4.0), "diffusion_model.blocks.1.cross_attn.o": (24, 24, 2, 1.0),
              "diffusion_model.blocks.1.ffn.0": (16, 24, 4, 2.0)}, kohya, torch.float16)
    by_names(out / "ai_toolkit_z_image", diffusers.ZImagePipeline, z_image(),
             {"diffusion_model.layers.0.attention.to_q": (16, 16, 2, None), "diffusion_model.layers.0.attention.to_out.0": (16, 16, 2, None),
              "diffusion_model.layers.0.feed_forward.w2": (16, 42, 2, None)}, (".lora_A.weight", ".lora_B.weight"), torch.bfloat16)
    for file in sorted(out.rglob("*.safetensors")):
        print(file.relative_to(out), file.stat().st_size)


if __name__ == "__main__":
    main()
