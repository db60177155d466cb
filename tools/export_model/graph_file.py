"""The file: header, slots, constants and nodes as JSON (docs/formats.md, "Exported graphs")."""
import base64
import gzip
import hashlib
import json
import math

import diffusers
import torch
from torch.export.graph_signature import InputKind

from export_model.lowering import lowered
from export_model.nodes import Value, block_runs
from export_model.tracing import ExportError, class_defaults, full_config, trace, transformer_class
from export_model.wrapper import INNER

FORMAT, VERSION = "oxbow-graph", 1


def config_hash(config):
    """SHA-256 of a full config, keys sorted and nothing between them."""
    return hashlib.sha256(json.dumps(config, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def exported_graph(wrapper, transformer):
    """The whole file as a dict, of a transformer whose parameters may be fake."""
    config = full_config(transformer)
    program = trace(wrapper, transformer)
    nodes, output, inputs = lowered(program)
    fixed = {name: value for (spec, value) in inputs for name in [spec.target] if name}
    used = {value for node in nodes for value in node.inputs()}
    wanted = wrapper.inputs(config)
    header_inputs = []
    for spec, value in inputs:
        if spec.kind == InputKind.USER_INPUT and spec.arg.name in wanted:
            header_inputs.append((spec.arg.name, value))
    if [name for name, _ in header_inputs] != list(wanted):
        raise ExportError(f"{wrapper.__name__}: inputs() and forward() name different tensors")
    parameters, constants = [], []
    for spec, value in inputs:
        persistent = spec.kind == InputKind.PARAMETER or spec.kind == InputKind.BUFFER and spec.persistent
        if spec.kind in (InputKind.BUFFER, InputKind.CONSTANT_TENSOR) and not persistent and value in used:
            constants.append((value, program.constants.get(spec.target)))
    number_slots([value for _, value in header_inputs], [fixed.get(f"{INNER}.{name}") for name in checkpoint(transformer)],
                 [value for value, _ in constants], nodes, used)
    linears = linear_weights(transformer, nodes)
    for name, tensor in checkpoint(transformer).items():
        value = fixed.get(f"{INNER}.{name}")
        entry = {"name": name, "slot": value.slot if value else None, "shape": list(tensor.shape)}
        if not isinstance(tensor, torch.nn.Parameter):
            entry["buffer"] = True
        if name in linears and linears[name](value):
            entry["linear"] = True
        parameters.append(entry)
    lists = {name.removeprefix(INNER + ".") for name, module in wrapper(transformer).named_modules()
             if isinstance(module, torch.nn.ModuleList)}
    cls = transformer_class(wrapper)
    return {
        "format": FORMAT, "version": VERSION, "class": cls.__name__, "config_hash": config_hash(config),
        "torch": torch.__version__.split("+")[0], "diffusers": diffusers.__version__,
        "config": config, "defaults": plain(class_defaults(cls)), "latent": wrapper.latent_size(config),
        "operators": sorted({node.name for node in nodes}),
        "inputs": [{"name": name, "slot": value.slot, "shape": wanted[name], "dtype": "float32"}
                   for name, value in header_inputs],
        "symbols": {name: symbol.header() for name, symbol in wrapper.symbols(config).items()},
        "slots": 1 + max(value.slot for node in nodes for value in node.outputs() if value.slot is not None),
        "parameters": parameters,
        "constants": [constant(f"c{index}", value.slot, tensor) for index, (value, tensor) in enumerate(constants)],
        "output": output.slot,
        "blocks": [{"name": name, "first": first, "end": end} for name, first, end in block_runs(nodes, lists)],
        "nodes": [written(node) for node in nodes]}


def checkpoint(transformer):
    """Name -> tensor of everything a saved model has; parameters stay parameters."""
    return transformer.state_dict(keep_vars=True)


def linear_weights(transformer, nodes):
    """Weight's name -> whether a value of it is only ever a linear's weight."""
    other = {value for node in nodes for key, argument in node.args.items()
             if not (node.op == "aten::linear" and key == "weight") for value in ([argument] if isinstance(argument, Value) else
             [v for v in argument if isinstance(v, Value)] if isinstance(argument, list) else [])}
    names = [f"{name}.weight" for name, module in transformer.named_modules() if isinstance(module, torch.nn.Linear)]
    return {name: lambda value: value not in other for name in names}


def number_slots(inputs, parameters, constants, nodes, used):
    """Numbers inputs, then parameters, constants and results in the order of writing. What nothing reads has none."""
    slot = 0
    for value in inputs + [p for p in parameters if p in used] + constants:
        value.slot, slot = slot, slot + 1
    for index, node in enumerate(nodes):
        last = index + 1 == len(nodes)
        for value in node.outputs():
            if value in used or last or not isinstance(node.out, list):
                value.slot, slot = slot, slot + 1


def plain(value):
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


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
