# SPDX-License-Identifier: Apache-2.0
"""The graph between torch.export and the file: values and the nodes that write them."""
import dataclasses


class Value:
    """A tensor or a symbolic integer. Its slot is known when the file is written."""

    def __init__(self, name, symbolic=False):
        self.name = name
        self.symbolic = symbolic  # An integer.
        self.slot = None

    def __repr__(self):
        return self.name


@dataclasses.dataclass
class Node:
    """One call. `args` by schema name: Value, number, bool, string, None, JSON-ready dict, or lists of these."""
    op: str
    overload: str
    args: dict
    out: object  # Value, or a list of Values for an operator that returns a list or several tensors.
    module: str = ""  # Path of the module that made the call.
    autocast: bool = True
    writes: bool = False  # Changes an argument in place.

    @property
    def name(self):
        return f"{self.op}.{self.overload}" if self.overload else self.op

    def outputs(self):
        return self.out if isinstance(self.out, list) else [self.out]

    def inputs(self):
        return values_in(list(self.args.values()))


def values_in(argument):
    if isinstance(argument, Value):
        return [argument]
    if isinstance(argument, list):
        return [value for item in argument for value in values_in(item)]
    return []


def without_dead_nodes(nodes, *outputs):
    """Nodes whose results are used, and writes into tensors that are."""
    live, kept = set(outputs), []
    for node in reversed(nodes):
        if node.writes or any(value in live for value in node.outputs()):
            live.update(node.inputs())
            kept.append(node)
    return kept[::-1]


def block_of(path, lists):
    """`transformer_blocks.0` for a path inside it: the outermost element of a ModuleList. None outside of all."""
    parts = path.split(".")
    for end in range(1, len(parts)):
        if ".".join(parts[:end]) in lists and parts[end].isdigit():
            return ".".join(parts[:end + 1])
    return None


def block_runs(nodes, lists):
    """[(block, first, end)]: runs of nodes of one block. Nodes of no module between two of one block are inside."""
    runs = []
    for index, node in enumerate(nodes):
        block = block_of(node.module, lists)
        if block is None:
            continue
        gap = nodes[runs[-1][2]:index] if runs else []
        if runs and runs[-1][0] == block and not any(between.module for between in gap):
            runs[-1][2] = index + 1
        else:
            runs.append([block, index, index + 1])
    return runs
