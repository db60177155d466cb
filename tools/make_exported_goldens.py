#!/usr/bin/env python3
"""Golden exported graphs: one small random model of each class, run by diffusers itself.

    make_exported_goldens.py [NAME...]                    the committed directories of tests/golden/exported
    make_exported_goldens.py --seed 7 --out /tmp/other    others: other weights, inputs

Each directory: config.json and graph.json.gz (tools/export_model), and golden.safetensors:
`weight.*` its checkpoint (exact in float16 and stored so), for each case N = 0, 1, ... of its own sizes
`N.in.*` the inputs and `N.in.direction`, `N.out.v` the velocity, `N.grad.*` gradients of sum(v * direction) for a
tensor of each kind, `N.grad_norms` the norms of all tensors' gradients in float64, in the order of the graph's
"parameters" (0 where there is none).
"""
import argparse
import json
import pathlib

import torch
from safetensors.torch import save_file

from export_model.graph_file import exported_graph, write_graph

from export_model.tracing import example_inputs, full_config, make_transformer, shapes_at
from export_model.wrappers import TINY, WRAPPERS
from make_model_goldens import randomise

# In the first block and outside of blocks; all gradients would be larger than the model.
GRADIENT_NUMEL_MAX = 64
CASES = 3


def case(wrapper, transformer, index, seed):
    """Inputs, velocity and gradients at the index-th sizes."""
    config = full_config(transformer)
    inputs = example_inputs(wrapper, shapes_at(wrapper, config, index), seed + index)
    transformer.zero_grad()
    v = wrapper(transformer)(**inputs)
    direction = torch.randn(v.shape, generator=torch.Generator().manual_seed(seed + index))
    (v * direction).sum().backward()
    tensors = transformer.state_dict(keep_vars=True)
    norms = [0.0 if t.grad is None else t.grad.double().norm().item() for t in tensors.values()]
    case = {f"in.{name}": value for name, value in inputs.items()}
    case |= {"in.direction": direction, "out.v": v, "grad_norms": torch.tensor(norms, dtype=torch.float64)}
    case |= {f"grad.{name}": t.grad for name, t in tensors.items()
             if t.grad is not None and t.numel() <= GRADIENT_NUMEL_MAX and index < 2}
    return case


def golden(name, out, seed):
    class_name, config = TINY[name]
    wrapper = WRAPPERS[class_name]
    transformer = make_transformer(wrapper, config)
    randomise(transformer, torch.Generator().manual_seed(seed))
    tensors = {f"weight.{key}": value.half() if value.requires_grad else value
               for key, value in transformer.state_dict(keep_vars=True).items()}
    for index in range(CASES):
        tensors |= {f"{index}.{key}": value for key, value in case(wrapper, transformer, index, seed).items()}
    directory = out / name
    write_graph(exported_graph(wrapper, make_transformer(wrapper, config, fake=True)), directory / "graph.json.gz")
    written = {"_class_name": class_name} | full_config(transformer)
    (directory / "config.json").write_text(json.dumps(written, indent=1) + "\n")
    save_file({key: value.detach().contiguous().clone() for key, value in tensors.items()},
              str(directory / "golden.safetensors"), metadata={"format": "pt", "seed": str(seed), "cases": str(CASES)})
    print(name, {path.name: path.stat().st_size for path in sorted(directory.iterdir())})


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(TINY))
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("tests/golden/exported"))
    parser.add_argument("--seed", type=int, default=20260101)
    args = parser.parse_args()
    torch.set_num_threads(1)
    for name in args.names:
        golden(name, args.out, args.seed)


if __name__ == "__main__":
    main()
