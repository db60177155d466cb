# SPDX-License-Identifier: Apache-2.0
"""Runs a graph with torch.ops, to check an export before it is used. oxbow has its own in C++."""
import base64
import operator

import torch

SYMBOLIC = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "floordiv": operator.floordiv, "mod": operator.mod,
    "neg": operator.neg, "min": min, "max": max, "eq": operator.eq, "ne": operator.ne, "lt": operator.lt,
    "le": operator.le, "gt": operator.gt, "ge": operator.ge, "and": lambda a, b: a and b, "or": lambda a, b: a or b,
    "not": operator.not_, "truediv": operator.truediv, "pow": operator.pow, "int": int, "float": float,
    "ite": lambda cond, a, b: a if cond else b}


def constant(entry):
    data = bytearray(base64.b64decode(entry["data"]))
    tensor = torch.frombuffer(data, dtype=getattr(torch, entry["dtype"])).reshape(entry["shape"])
    return torch.view_as_complex(tensor) if entry["complex"] else tensor


def argument(value, slots):
    if isinstance(value, list):
        return [argument(item, slots) for item in value]
    if not isinstance(value, dict):
        return value
    (kind, content), = value.items()
    if kind == "v":
        return slots[content]
    if kind == "device":
        return torch.device("cpu")
    return float(content) if kind == "number" else getattr(torch, content)


def call(node, slots):
    args = {key: argument(value, slots) for key, value in node["args"].items()}
    space, name = node["op"].split("::")
    if space == "aten":
        return getattr(getattr(torch.ops.aten, name), node["overload"] or "default")(**args)
    if name == "size":
        return args["x"].shape[args["dim"]]
    if name == "numel":
        return args["x"].numel()
    return SYMBOLIC[name](*args.values())


def run(graph, tensors, inputs):
    """The graph's velocity, or its outputs in order, for `tensors` by parameter name and `inputs` by name.

    Of a graph with `next` these are the first latent frame's.
    """
    slots = [None] * graph["slots"]
    for entry in graph["inputs"]:
        slots[entry["slot"]] = inputs[entry["name"]]
    for entry in graph["parameters"]:
        if entry["slot"] is not None:
            slots[entry["slot"]] = tensors[entry["name"]]
    for entry in graph["constants"]:
        slots[entry["slot"]] = constant(entry)
    for node in graph["nodes"]:
        result = call(node, slots)
        results = result if isinstance(node["out"], list) else [result]
        for slot, value in zip(node["out"] if isinstance(node["out"], list) else [node["out"]], results):
            if slot is not None:
                slots[slot] = value
    if "outputs" in graph:
        return tuple(slots[entry["slot"]] for entry in graph["outputs"])
    return slots[graph["output"]]


def decoded(graph, tensors, latents):
    """A decoder's pixels. With `next` its states go from one latent frame to the next."""
    if "next" not in graph:
        return run(graph, tensors, {"latents": latents})[0]
    frames = (latents.unsqueeze(2) if latents.dim() == 4 else latents).split(1, dim=2)
    part, states, pixels = graph, {}, []
    for latent in frames:
        made, *kept = run(part, tensors, {"latents": latent} | states)
        pixels.append(made)
        states = dict(zip((entry["name"] for entry in part["outputs"][1:]), kept))
        part = graph | graph["next"]
    return torch.cat(pixels, dim=2).squeeze(2) if latents.dim() == 4 else torch.cat(pixels, dim=2)
