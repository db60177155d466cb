# SPDX-License-Identifier: Apache-2.0
"""Adapters of the narrow models, in bfloat16 and under the names of tools that people train with.

    sd3    diffusers' names, as SimpleTuner and ai-toolkit save them, without a header
    flux   sd-scripts (kohya): fused modules of the publication, lora_unet_..., lora_down, lora_up, alpha
    wan    ComfyUI and musubi-tuner: diffusion_model., lora_down, lora_up, alpha

diffusers reads all of them; what it makes of a file is the truth here.
"""
import json
import sys
from pathlib import Path

import diffusers
import torch
from safetensors.torch import load_file, save_file

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from check_exported_adapter import pipeline  # noqa: E402

RANK, ALPHA = 4, 8
ATTENTION = ["attn.to_q", "attn.to_k", "attn.to_v", "attn.add_q_proj", "attn.add_k_proj", "attn.add_v_proj", "attn.to_out.0",
             "attn.to_add_out"]
TARGETS = {"sd3": ATTENTION, "flux": [f"transformer_blocks.0.{part}" for part in ATTENTION],
           "wan": ["attn1.to_q", "attn1.to_k", "attn1.to_v", "attn1.to_out.0"]}
TRANSFORMERS = {"sd3": diffusers.SD3Transformer2DModel, "flux": diffusers.FluxTransformer2DModel,
                "wan": diffusers.WanTransformer3DModel}
PIPELINES = {"sd3": diffusers.StableDiffusion3Pipeline, "flux": diffusers.FluxPipeline, "wan": diffusers.WanPipeline}
# name: how many modules of diffusers are one here. The single blocks stay as they are: diffusers reads those of 3072 channels alone.
FLUX = {"double_blocks_0_img_attn_qkv": 3, "double_blocks_0_txt_attn_qkv": 3, "double_blocks_0_img_attn_proj": 1,
        "double_blocks_0_txt_attn_proj": 1}
WAN = ("q", "k", "v", "o")


def _pair(rows, columns):
    return torch.randn(RANK, columns) * columns ** -0.5, torch.randn(rows, RANK) * 0.05


def _modules(model, name):
    """(module, rows, columns) of the linear layers that the targets name."""
    weights = load_file(model / "transformer/diffusion_pytorch_model.safetensors")
    for key, value in sorted(weights.items()):
        module = key.removesuffix(".weight")
        if key.endswith(".weight") and any(("." + module).endswith("." + target) for target in TARGETS[name]):
            yield module, *value.shape


def _tensors(name, model):
    found = {}
    if name == "sd3":
        for module, rows, columns in _modules(model, name):
            found[f"transformer.{module}.lora_A.weight"], found[f"transformer.{module}.lora_B.weight"] = _pair(rows, columns)
        return found
    config = json.loads((model / "transformer/config.json").read_text())
    width = config["num_attention_heads"] * config["attention_head_dim"]
    if name == "flux":
        modules = {f"lora_unet_{key}": (fused * width, width) for key, fused in FLUX.items()}
    else:
        modules = {f"diffusion_model.blocks.0.self_attn.{part}": (width, width) for part in WAN}
    for module, shape in modules.items():
        found[f"{module}.lora_down.weight"], found[f"{module}.lora_up.weight"] = _pair(*shape)
        found[f"{module}.alpha"] = torch.tensor(float(ALPHA))
    return found


def save(name, model, path):
    """The adapter of `model`, a directory, as one file."""
    torch.manual_seed(41)
    tensors = {key: value.to(torch.bfloat16).contiguous() for key, value in _tensors(name, Path(model)).items()}
    save_file(tensors, str(path), metadata=None)


def update_of(name, model, path):
    """{module: the product that diffusers adds to its weight} of an adapter in a file or a directory."""
    network = TRANSFORMERS[name].from_pretrained(str(Path(model) / "transformer"))
    pipe = pipeline(PIPELINES[name], network)
    pipe.load_lora_weights(str(path))
    found = {}
    for module, layer in pipe.transformer.named_modules():
        if getattr(layer, "lora_A", None):
            (adapter,) = layer.lora_A
            product = layer.lora_B[adapter].weight @ layer.lora_A[adapter].weight
            found[module] = (layer.scaling[adapter] * product).detach().float()
    return found
