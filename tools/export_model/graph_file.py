# SPDX-License-Identifier: Apache-2.0
"""The file: header, slots, constants and nodes as JSON (docs/formats/exported_graphs.md)."""
import base64
import dataclasses
import gzip
import hashlib
import json
import math

import diffusers
import torch
import transformers
from torch.export.graph_signature import InputKind

from export_model.lowering import lowered
from export_model.nodes import Value, block_runs, values_in
from export_model.tracing import (ExportError, class_defaults, example_inputs, full_config, plain, shapes_at, trace,
                                  transformer_class)
from export_model.wrapper import INNER, Decoder, Network

FORMAT, VERSION = "oxbow-graph", 1
VERSION_OF_STATES = 2  # Its decoder has a second graph.


def config_hash(config):
    """SHA-256 of a full config, keys sorted and nothing between them."""
    return hashlib.sha256(json.dumps(config, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


@dataclasses.dataclass
class Traced:
    """One traced graph. `outputs`: {name: Value}."""
    wrapper: type
    nodes: list
    inputs: dict
    weights: dict
    constants: list
    outputs: dict


def traced(wrapper, transformer):
    names = wrapper.output_names(full_config(transformer)) if issubclass(wrapper, Network) else ("v",)
    program = trace(wrapper, transformer)
    nodes, outputs, bound = lowered(program, len(names))
    used = {value for node in nodes for value in node.inputs()} | set(outputs)
    inputs, weights, constants = sorted_by_kind(program, bound, used)
    inputs = dict(zip(wrapper.inputs(full_config(transformer)), inputs, strict=True))
    weights = {name: value for name, value in weights.items() if value in used}
    return Traced(wrapper, nodes, inputs, weights, constants, dict(zip(names, outputs)))


def part_of_file(part, config, transformer):
    """The parts that differ between the graphs of one file."""
    outputs = [{"name": name, "slot": value.slot} for name, value in part.outputs.items()]
    return {
        "inputs": [input_entry(part.wrapper, config, name, value.slot) for name, value in part.inputs.items()],
        **({"outputs": outputs} if issubclass(part.wrapper, Network) else {"output": outputs[0]["slot"]}),
        "blocks": [{"name": name, "first": first, "end": end}
                   for name, first, end in block_runs(part.nodes, module_lists(transformer))],
        "nodes": [written(node) for node in part.nodes]}


def exported_graph(wrapper, transformer):
    """The whole file as a dict, of a transformer whose parameters may be fake."""
    config, cls = full_config(transformer), transformer_class(wrapper)
    fitting = {key: value for key, value in config.items() if key not in wrapper.notes}
    network, decoder = issubclass(wrapper, Network), issubclass(wrapper, Decoder)
    parts = [traced(kind, transformer) for kind in (wrapper, wrapper.following if decoder else None) if kind]
    weights, slots = {}, 0  # A weight has one slot in all parts.
    for part in parts:
        slots = number_slots(part, weights, slots)
    first, *following = (part_of_file(part, config, transformer) for part in parts)
    nodes = [node for part in parts for node in part.nodes]
    constants = [constant for part in parts for constant in part.constants]
    return {
        "format": FORMAT, "version": VERSION_OF_STATES if following else VERSION, "class": cls.__name__,
        "config_hash": config_hash(fitting), "torch": torch.__version__.split("+")[0],
        **({"transformers": transformers.__version__} if network and not decoder else {"diffusers": diffusers.__version__}),
        "config": fitting, "defaults": plain(class_defaults(cls) | (cls.nested_defaults() if hasattr(cls, "nested_defaults") else {})),
        **({} if network else {"latent": wrapper.latent_size(config) | ({"guidance_norm": True} if wrapper.guidance_norm else {})}),
        **({"decoder": wrapper.decoder(transformer)} if decoder else {}),
        "operators": sorted({node.name for node in nodes}),
        "inputs": first.pop("inputs"),
        "symbols": {name: symbol.header() for name, symbol in wrapper.symbols(config).items()},
        "slots": slots,
        "parameters": parameters(wrapper, transformer, weights, nodes),
        "constants": [constant(f"c{index}", value.slot, tensor) for index, (value, tensor) in enumerate(constants)],
        **first, **({"next": following[0]} if following else {})}


def sorted_by_kind(program, bound, used):
    """([input], {parameter or persistent buffer: Value}, [(Value, constant)]) of a program's bound values."""
    inputs, weights, constants = [], {}, []
    for spec, value in bound:
        if spec.kind == InputKind.USER_INPUT:
            inputs.append(value)
        elif spec.kind == InputKind.PARAMETER or spec.kind == InputKind.BUFFER and spec.persistent:
            weights[spec.target.removeprefix(INNER + ".")] = value
        elif value in used:
            constants.append((value, program.constants[spec.target]))
    return inputs, weights, constants


def input_entry(wrapper, config, name, slot):
    shape = wrapper.inputs(config)[name]
    dtype = example_inputs(wrapper, shapes_at(wrapper, config, 0), seed=0)[name].dtype
    entry = {"name": name, "slot": slot, "shape": shape, "dtype": str(dtype).removeprefix("torch.")}
    if name == "guidance" and wrapper.guidance:
        entry["default"] = wrapper.guidance
    return entry


def module_lists(transformer):
    return {name for name, module in transformer.named_modules() if isinstance(module, torch.nn.ModuleList)}


def parameters(wrapper, transformer, weights, nodes):
    """Every tensor of a checkpoint; those that the graph does not read have no slot."""
    elsewhere = {value.slot for node in nodes for key, argument in node.args.items()
                 if not (node.op == "aten::linear" and key == "weight") for value in values_in(argument)}
    linears = {f"{name}.weight" for name, module in transformer.named_modules() if isinstance(module, torch.nn.Linear)}
    kept = set(getattr(transformer, "_keep_in_fp32_modules", None) or ())
    entries = []
    for name, tensor in transformer.state_dict(keep_vars=True).items():
        value = weights.get(name)
        entry = {"name": wrapper.published_name(name), "slot": value.slot if value else None, "shape": list(tensor.shape)}
        if not isinstance(tensor, torch.nn.Parameter):
            entry["buffer"] = True
        if name in linears and not (value and value.slot in elsewhere):
            entry["linear"] = True
        if kept.intersection(name.split(".")):  # As diffusers compares them.
            entry["float32"] = True
        entries.append(entry)
    return entries


def number_slots(part, weights, slot):
    """Numbers bound values from `slot` on, then results in the order of writing, and returns the next number.

    `weights` ({name: Value}) have theirs, and get what is new. An element of a list that nothing reads has none.
    """
    used = {value for node in part.nodes for value in node.inputs()} | set(part.outputs.values())
    fresh = {name: value for name, value in part.weights.items() if name not in weights}
    for name, value in part.weights.items():
        if name not in fresh:
            value.slot = weights[name].slot
    for value in [*part.inputs.values(), *fresh.values(), *(value for value, _ in part.constants)]:
        value.slot, slot = slot, slot + 1
    weights.update(fresh)
    for node in part.nodes:
        for value in node.outputs():
            if value in used or not isinstance(node.out, list):
                value.slot, slot = slot, slot + 1
    return slot


def constant(name, slot, tensor):
    tensor = tensor.detach().cpu()
    is_complex = tensor.is_complex()
    if is_complex:
        tensor = torch.view_as_real(tensor)
    tensor = tensor.contiguous()
    dtype = str(tensor.dtype).removeprefix("torch.")
    if dtype not in ("float32", "float64", "bfloat16", "int64", "int32", "bool"):
        raise ExportError(f"a constant of type {dtype} has no place in a graph")
    data = tensor.reshape(-1).view(torch.uint8).numpy().tobytes()
    return {"name": name, "slot": slot, "dtype": dtype, "shape": list(tensor.shape), "complex": is_complex,
            "data": base64.b64encode(data).decode()}


def written(node):
    entry = {"op": node.op, "overload": node.overload, "args": {k: argument(v) for k, v in node.args.items()}}
    entry["out"] = [value.slot for value in node.out] if isinstance(node.out, list) else node.out.slot
    if not node.autocast:
        entry["autocast"] = False
    return entry


def argument(value):
    if isinstance(value, Value):
        return {"v": value.slot}
    if isinstance(value, list):
        return [argument(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"number": "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"}
    return value


def graph_bytes(graph):
    """Compressed; the same bytes for the same graph."""
    text = json.dumps(graph, separators=(",", ":"), allow_nan=False)
    return gzip.compress(text.encode(), compresslevel=9, mtime=0)


def write_graph(graph, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(graph_bytes(graph))


def read_graph(path):
    return json.loads(gzip.decompress(path.read_bytes()))
