#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Golden exported graphs: one small random model of each class, run by diffusers and peft.

    make_exported_goldens.py [NAME...]                          the committed directories of tests/golden/exported
    make_exported_goldens.py --seed 7 --out /tmp/other          others: other weights, inputs and adapters
    make_exported_goldens.py --seed 7 --random 8 --out /tmp/other    others, eight configurations a class drawn
    make_exported_goldens.py --seed 20260102 --random 6 --weights-max 36000 flux_dev_tiny    the committed drawn ones: so were made
        7 wan_tiny of 20000 at most, 7 sd3_tiny of 22000, 2 hunyuan_video_tiny of 85000, 1 flux2_klein_tiny of 60000,
        2 qwen_image_tiny of 31000, 2 ltx_tiny of 15700, 2 z_image_tiny of any

Each directory: config.json and graph.json.gz (tools/export_model), and golden.safetensors:
`weight.*` its checkpoint (exact in float16 and stored so), for each case N = 0, 1, ... of its own sizes
`N.in.*` the inputs and `N.in.direction`, `N.out.v` the velocity, `N.grad.*` gradients of sum(v * direction) for
small tensors, `N.grad_norms` the norms of all tensors' gradients in float64, in the order of the graph's
"parameters" (0 where there is none). `adapter.*` is a PEFT adapter under peft's names; with it and the inputs of
case 0, `0.adapted.v` and `0.adapted.grad.*` of each of its matrices. Metadata: seed, cases, rank, alpha, targets.
bf16.safetensors, of a class that keeps modules in float32: `N.out.v` by the checkpoint as diffusers loads it in
bfloat16; metadata: `float32`, the names of the tensors that it keeps.
"""
import argparse
import json
import pathlib
import random
import tempfile

import torch
from peft import LoraConfig
from peft.utils import get_peft_model_state_dict
from safetensors.torch import load_file, save_file

from export_model.graph_file import exported_graph, write_graph
from export_model.tracing import example_inputs, full_config, make_transformer, shapes_at
from export_model.wrappers import TINY, TINY_TRANSFORMERS, WRAPPERS
from make_model_goldens import randomise

GRADIENT_NUMEL_MAX = 64  # All gradients would be larger than the model.
CASES = 3
RANK, ALPHA, TARGETS = 2, 3, ("to_q", "to_k", "to_v", "to_out.0")


def at_case(wrapper, transformer, index, seed):
    """(inputs, direction) of the index-th sizes."""
    inputs = example_inputs(wrapper, shapes_at(wrapper, full_config(transformer), index), seed + index)
    return inputs, torch.randn(inputs["x"].shape, generator=torch.Generator().manual_seed(seed + index))


def base_case(wrapper, transformer, index, seed):
    inputs, direction = at_case(wrapper, transformer, index, seed)
    transformer.zero_grad()
    v = wrapper(transformer)(**inputs)
    (v * direction).sum().backward()
    tensors = transformer.state_dict(keep_vars=True)
    norms = [0.0 if t.grad is None else t.grad.double().norm().item() for t in tensors.values()]
    found = {f"{index}.in.{name}": value for name, value in inputs.items()}
    found |= {f"{index}.in.direction": direction, f"{index}.out.v": v,
              f"{index}.grad_norms": torch.tensor(norms, dtype=torch.float64)}
    return found | {f"{index}.grad.{name}": t.grad for name, t in tensors.items()
                    if t.grad is not None and t.numel() <= GRADIENT_NUMEL_MAX and index < 2}


def adapted_case(wrapper, transformer, seed):
    """Adds an adapter to the transformer for good."""
    inputs, direction = at_case(wrapper, transformer, 0, seed)
    transformer.requires_grad_(False)
    transformer.add_adapter(LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=list(TARGETS)))
    generator = torch.Generator().manual_seed(seed)
    matrices = {name: p for name, p in transformer.named_parameters() if "lora_" in name}
    for p in matrices.values():
        p.data = torch.randn(p.shape, generator=generator) * 0.3
    v = wrapper(transformer)(**inputs)
    (v * direction).sum().backward()
    plain = lambda name: name.replace(".default", "")
    zero = {name: p for name, p in matrices.items() if p.grad is None}  # Matrices of a text branch that leads nowhere.
    found = {f"adapter.{name}": value for name, value in get_peft_model_state_dict(transformer).items()}
    return found | {"0.adapted.v": v} | {
        f"0.adapted.grad.{plain(name)}": p.grad for name, p in matrices.items() if name not in zero}


def golden(name, class_name, config, out, seed):
    wrapper = WRAPPERS[class_name]
    transformer = make_transformer(wrapper, config)
    randomise(transformer, torch.Generator().manual_seed(seed))
    written = {"_class_name": class_name} | full_config(transformer)
    tensors = {f"weight.{key}": value.half() if value.requires_grad else value
               for key, value in transformer.state_dict(keep_vars=True).items()}
    for index in range(CASES):
        tensors |= base_case(wrapper, transformer, index, seed)
    tensors |= adapted_case(wrapper, transformer, seed)
    directory = out / name
    write_graph(exported_graph(wrapper, make_transformer(wrapper, config, fake=True)), directory / "graph.json.gz")
    (directory / "config.json").write_text(json.dumps(written, indent=1) + "\n")
    save_file({key: value.detach().contiguous().clone() for key, value in tensors.items()},
              str(directory / "golden.safetensors"), metadata={
                  "format": "pt", "seed": str(seed), "cases": str(CASES), "rank": str(RANK), "alpha": str(ALPHA),
                  "targets": json.dumps(TARGETS)})
    (directory / "golden.safetensors").chmod(0o644)
    bf16(directory)
    print(name, {path.name: path.stat().st_size for path in sorted(directory.iterdir())}, flush=True)


def bf16(directory):
    """bf16.safetensors of a class that keeps modules in float32: the checkpoint as diffusers loads it in bfloat16."""
    import diffusers
    written = json.loads((directory / "config.json").read_text())
    wrapper = WRAPPERS[written["_class_name"]]
    transformer_class = getattr(diffusers, written["_class_name"])
    if not transformer_class._keep_in_fp32_modules:
        return
    tensors = load_file(str(directory / "golden.safetensors"))
    cut = lambda prefix: {key[len(prefix):]: value for key, value in tensors.items() if key.startswith(prefix)}
    with tempfile.TemporaryDirectory() as saved:
        (pathlib.Path(saved) / "config.json").write_text(json.dumps(written))
        save_file({key: value.float() for key, value in cut("weight.").items()}, f"{saved}/diffusion_pytorch_model.safetensors")
        loaded = transformer_class.from_pretrained(saved, torch_dtype=torch.bfloat16)
    kept = sorted(key for key, value in loaded.state_dict().items() if value.dtype == torch.float32)
    velocities = {}
    for index in range(CASES):
        inputs = {key: value.bfloat16() if key in ("x", "tokens") else value for key, value in cut(f"{index}.in.").items()}
        inputs.pop("direction")
        with torch.no_grad():
            velocities[f"{index}.out.v"] = wrapper(loaded)(**inputs).float().contiguous()
    save_file(velocities, str(directory / "bf16.safetensors"), metadata={"format": "pt", "float32": json.dumps(kept)})
    (directory / "bf16.safetensors").chmod(0o644)


def drawn(class_name, config, draw):
    """Another small configuration of a class: depths, heads and widths, and what its network has or has not."""
    if class_name == "SD3Transformer2DModel":
        heads, layers = draw.randint(1, 3), draw.randint(1, 4)
        return config | dict(
            num_layers=layers, num_attention_heads=heads, caption_projection_dim=4 * heads,
            patch_size=draw.choice((1, 2)), in_channels=(channels := draw.randint(1, 5)), out_channels=channels,
            joint_attention_dim=draw.randint(4, 16), pooled_projection_dim=draw.randint(4, 12),
            dual_attention_layers=tuple(sorted(draw.sample(range(layers), draw.randint(0, layers)))),
            qk_norm=draw.choice((None, "rms_norm")), pos_embed_max_size=draw.randint(9, 16))
    if class_name == "FluxTransformer2DModel":
        double = draw.randint(0, 2)
        axes = draw.choice(((2, 4, 6), (4, 4, 4), (6, 2, 4)))
        return config | dict(
            num_layers=double, num_single_layers=draw.randint(0 if double else 1, 2), num_attention_heads=draw.randint(1, 3),
            in_channels=4 * draw.randint(1, 5), joint_attention_dim=draw.randint(4, 16),
            pooled_projection_dim=draw.randint(4, 12), axes_dims_rope=axes, guidance_embeds=draw.choice((True, False)))
    if class_name == "WanTransformer3DModel":
        return config | dict(
            num_layers=draw.randint(1, 3), num_attention_heads=draw.randint(1, 3), attention_head_dim=draw.choice((12, 18)),
            in_channels=(channels := draw.randint(1, 5)), out_channels=channels, text_dim=draw.randint(4, 16),
            freq_dim=2 * draw.randint(4, 16), ffn_dim=draw.randint(8, 40), cross_attn_norm=draw.choice((True, False)),
            patch_size=draw.choice(((1, 2, 2), (1, 1, 1), (2, 2, 1))))
    if class_name == "ZImageTransformer2DModel":
        heads, axes = draw.randint(1, 3), draw.choice(((2, 4, 6), (4, 4, 4), (6, 2, 4)))
        return config | dict(
            n_layers=draw.randint(2, 3), n_refiner_layers=draw.randint(1, 2), n_heads=heads, n_kv_heads=heads, dim=12 * heads,
            axes_dims=list(axes), in_channels=draw.randint(1, 5), cap_feat_dim=draw.randint(4, 16))
    depth = {key: draw.randint(1, 3) for key in ("num_layers", "num_single_layers") if key in config}
    text = {key: draw.randint(4, 16) for key in ("joint_attention_dim", "text_embed_dim", "caption_channels")
            if key in config}
    return config | depth | text


def drawn_within(class_name, config, draw, weights_max):
    """The first drawn configuration with at most so many weights; 0: any."""
    for _ in range(1000):
        found = drawn(class_name, config, draw)
        weights = sum(p.numel() for p in make_transformer(WRAPPERS[class_name], found, fake=True).parameters())
        if weights_max == 0 or weights <= weights_max:
            return found
    raise SystemExit(f"{class_name}: no drawn configuration of a thousand has at most {weights_max} weights")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=TINY_TRANSFORMERS, help="of " + ", ".join(TINY_TRANSFORMERS))
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("tests/golden/exported"))
    parser.add_argument("--seed", type=int, default=20260101)
    parser.add_argument("--random", type=int, default=0, metavar="N", help="draw N configurations for each name")
    parser.add_argument("--weights-max", type=int, default=0, metavar="N", help="draw again what has more weights; 0: any")
    args = parser.parse_args()
    torch.set_num_threads(1)
    draw = random.Random(args.seed)
    for name in args.names:
        class_name, config = TINY[name]
        if not args.random:
            golden(name, class_name, config, args.out, args.seed)
        for index in range(args.random):
            found = drawn_within(class_name, config, draw, args.weights_max)
            golden(f"{name}_{index}", class_name, found, args.out, args.seed + index)


if __name__ == "__main__":
    main()
