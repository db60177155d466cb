# SPDX-License-Identifier: Apache-2.0
"""From torch.export's graph to nodes: arguments by schema name, no assertions, no subgraphs, no getitem."""
import operator

import torch
from torch._ops import OpOverload
from torch.utils import _pytree as pytree

from export_model.nodes import Node, Value, without_dead_nodes
from export_model.tracing import ExportError
from export_model.wrapper import INNER

SYMBOLIC = {
    operator.add: "add", operator.sub: "sub", operator.mul: "mul", operator.floordiv: "floordiv", operator.mod: "mod",
    operator.neg: "neg", operator.eq: "eq", operator.ne: "ne", operator.lt: "lt", operator.le: "le", operator.gt: "gt",
    operator.ge: "ge", operator.and_: "and", operator.or_: "or", operator.truediv: "truediv", operator.pow: "pow",
    operator.not_: "not", torch.sym_not: "not", torch.sym_min: "min", torch.sym_max: "max", torch.sym_int: "int",
    torch.sym_float: "float", torch.sym_ite: "ite"}
UNARY = {"neg", "not", "int", "float"}
# They check what a trace saw; sizes are checked by the reader.
CHECKS = {"_assert_tensor_metadata", "_assert_scalar", "sym_constrain_range", "sym_constrain_range_for_size",
          "_assert_async"}
END = 2 ** 63 - 1


def module_path(node):
    """The diffusers path of the module that made a call; "" for the wrapper itself."""
    stack = node.meta.get("nn_module_stack") or {}
    path = next(reversed(stack.values()))[0] if stack else ""
    if path == INNER:
        return "."
    return path[len(INNER) + 1:] if path.startswith(INNER + ".") else ""


class Lowering:
    """Walks a graph module and its subgraphs, and collects nodes in their order."""

    def __init__(self):
        self.nodes = []

    def graph(self, module, arguments, autocast=True):
        """Lowers a graph module called with `arguments`; returns what its output node returns."""
        environment, arguments = {}, iter(arguments)
        for node in module.graph.nodes:
            if node.op == "placeholder":
                environment[node] = next(arguments)
            elif node.op == "get_attr":
                environment[node] = getattr(module, node.target)
            elif node.op == "output":
                return pytree.tree_map_only(torch.fx.Node, environment.__getitem__, node.args[0])
            else:
                environment[node] = self.call(node, environment, autocast)
        raise ExportError("the traced graph has no output")

    def call(self, node, environment, autocast):
        args, kwargs = pytree.tree_map_only(torch.fx.Node, environment.__getitem__, (tuple(node.args), dict(node.kwargs)))
        target = node.target
        if target is operator.getitem:
            return args[0][args[1]]
        if isinstance(target, torch._ops.HigherOrderOperator):
            return self.subgraph(target.name(), args, autocast)
        if target in SYMBOLIC:
            return self.symbolic(SYMBOLIC[target], args, node)
        if isinstance(target, OpOverload):
            return self.operator(target, args, kwargs, node, autocast)
        raise ExportError(f"{module_path(node) or 'the wrapper'}: {target} has no place in a graph; rewrite it in the wrapper")

    def subgraph(self, name, args, autocast):
        if name == "wrap_with_autocast":
            _, _, enabled, _, module, *rest = args
            if enabled:
                raise ExportError("autocast inside the model: export it in float32, the reader sets autocast")
            return self.graph(module, rest, autocast=False)
        if name == "wrap_with_set_grad_enabled":
            enabled, module, *rest = args
            outputs = self.graph(module, rest, autocast)
            return outputs if enabled else pytree.tree_map_only(Value, self.detached, outputs)
        raise ExportError(f"higher-order operator '{name}' has no place in a graph; rewrite it in the wrapper")

    def detached(self, value):
        return value if value.symbolic else self.add(Node("aten::detach", "", {"self": value}, Value(value.name)))

    def symbolic(self, op, args, node):
        names = ("cond", "a", "b") if op == "ite" else ("a",) if op in UNARY else ("a", "b")
        return self.add(Node(f"sym::{op}", "", dict(zip(names, args)), Value(node.name, True), module_path(node)))

    def operator(self, target, args, kwargs, node, autocast):
        name, overload = target._schema.name.removeprefix("aten::"), target._overloadname
        if name in CHECKS:
            return None
        if name in ("sym_size", "sym_numel"):
            sized = dict(zip(("x", "dim"), args))
            return self.add(Node(f"sym::{name[4:]}", "", sized, Value(node.name, True), module_path(node)))
        given = by_schema_name(target, args, kwargs)
        if name in ("dropout", "feature_dropout") and given["train"] is False or name in ("alias", "detach_"):
            return given.get("input", given.get("self"))
        if name == "slice" and given.get("start") in (0, None) and given.get("end") in (END, None) and given.get("step", 1) == 1:
            return given["self"]
        if name == "lift_fresh_copy":  # A constant that may be written into later.
            name, overload = "clone", ""
        if not target._schema.name.startswith("aten::"):
            raise ExportError(f"{module_path(node)}: operator {target._schema.name} is not PyTorch's own")
        args = {key: encoded(target, key, value) for key, value in given.items()}
        return self.add(Node(f"aten::{name}", "" if overload == "default" else overload, args, results(node),
                             module_path(node), autocast, writes_into(target)))

    def add(self, node):
        self.nodes.append(node)
        return node.out


def results(node):
    """Values for what a node returns: one, or a list for a list or several tensors."""
    value = node.meta["val"]
    if isinstance(value, (list, tuple)):
        return [Value(f"{node.name}_{index}") for index in range(len(value))]
    return Value(node.name)


def writes_into(target):
    return any(a.alias_info is not None and a.alias_info.is_write for a in target._schema.arguments)


def by_schema_name(target, args, kwargs):
    """Arguments by name, without those that equal the schema's default."""
    given = {}
    for position, argument in enumerate(target._schema.arguments):
        if position < len(args):
            value = args[position]
        elif argument.name in kwargs:
            value = kwargs[argument.name]
        else:
            continue
        default = argument.default_value if argument.has_default_value() else Value
        if type(value) is type(default) and value == default:
            continue
        if value is None and argument.has_default_value() and default is None:
            continue
        given[argument.name] = value
    # Pinned memory and strided layout are what factories do by themselves.
    if given.get("pin_memory") is False:
        del given["pin_memory"]
    if given.get("layout") is torch.strided:
        del given["layout"]
    return given


def encoded(target, key, value):
    """A value as the file has it, but for Values and floats that are not finite."""
    if isinstance(value, (list, tuple)):
        return [encoded(target, key, item) for item in value]
    if isinstance(value, torch.dtype):
        return {"dtype": str(value).removeprefix("torch.")}
    if isinstance(value, torch.device):
        return {"device": True}
    if isinstance(value, torch.layout):
        return {"layout": str(value).removeprefix("torch.")}
    if isinstance(value, torch.memory_format):
        return {"memory_format": str(value).removeprefix("torch.")}
    if value is None or isinstance(value, (Value, bool, int, float, str)):
        return value
    raise ExportError(f"{target}: argument '{key}' is a {type(value).__name__}, which a graph cannot hold")


def lowered(program, count):
    """(nodes, outputs, [(input spec, Value)]) of an ExportedProgram that returns `count` tensors."""
    specs = program.graph_signature.input_specs
    values = [Value(spec.arg.name) for spec in specs]
    lowering = Lowering()
    outputs = lowering.graph(program.graph_module, values)
    if len(outputs) != count:
        raise ExportError("a wrapper returns one tensor, a network those that it names; neither writes into a buffer or an input")
    return without_dead_nodes(lowering.nodes, *outputs), list(outputs), list(zip(specs, values))
