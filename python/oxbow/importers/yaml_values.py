# SPDX-License-Identifier: Apache-2.0
"""A YAML document as a flat list of settings, in its order, each with its line."""
from __future__ import annotations

import yaml

from .settings import Refused, Setting

DEPTH_MAX, VALUES_MAX = 16, 10_000  # Aliases make few lines many values.
NULL = "tag:yaml.org,2002:null"


class _Flattening:
    def __init__(self, name: str, lists: set[str], whole: set[str]):
        self.name, self.lists, self.whole, self.values = name, lists, whole, []

    def section(self, node: yaml.MappingNode, path: str, depth: int = 1) -> None:
        seen = set()
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise self._error(key, path, "keys must be plain names")
            under = f"{path}.{key.value}" if path else key.value
            if depth > DEPTH_MAX:
                raise self._error(key, under, "nested too deep")
            if key.value in seen:
                raise self._error(key, under, "the key is given twice; keep one")
            seen.add(key.value)
            self._value(key, value, under, depth)

    def _value(self, key: yaml.Node, node: yaml.Node, path: str, depth: int) -> None:
        null = node.tag == NULL
        if path in self.lists and not null:
            self._elements(node, path, depth)
            return
        if path in self.whole and not null:
            self.values.append(Setting(path, self._place(key), ["{...}"], "section"))
            return
        if isinstance(node, yaml.MappingNode) and node.value:
            self.section(node, path, depth + 1)
            return
        shape, items = "scalar", []
        if isinstance(node, yaml.SequenceNode):
            if not all(isinstance(one, yaml.ScalarNode) for one in node.value):
                raise self._error(node, path, "expected a list of plain values")
            shape, items = "list", ["null" if one.tag == NULL else one.value for one in node.value]
        elif isinstance(node, yaml.MappingNode):
            shape = "section"
        elif null:
            shape = "null"
        else:
            items = [node.value]
        self.values.append(Setting(path, self._place(key), items, shape, present=not null))
        if len(self.values) > VALUES_MAX:
            raise self._error(key, path, f"more than {VALUES_MAX} values")

    def _elements(self, node: yaml.Node, path: str, depth: int) -> None:
        sections = [node] if isinstance(node, yaml.MappingNode) else node.value
        if isinstance(sections, str):
            raise self._error(node, path, "expected a list of sections")
        for index, element in enumerate(sections):
            if not isinstance(element, yaml.MappingNode):
                raise self._error(element, f"{path}[{index}]", "expected a section")
            self.section(element, f"{path}[{index}]", depth + 1)

    def _place(self, node: yaml.Node) -> str:
        return f"{self.name}:{node.start_mark.line + 1}"

    def _error(self, node: yaml.Node, path: str, reason: str) -> Refused:
        return Refused(f"{self._place(node)}: {path}: {reason}")


def flatten(text: str, name: str, lists: set[str], whole: set[str]) -> list[Setting]:
    """`lists` are the paths whose value is a list of sections; a single section counts as a list of one. A value of `whole`
    is not looked into."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise Refused(f"{name}{line}: {error.problem}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise Refused(f"{name}: no YAML: {str(error).splitlines()[0]}") from None
    if not isinstance(root, yaml.MappingNode):
        raise Refused(f"{name}: expected sections such as `train:` at the top level")
    flattening = _Flattening(name, lists, whole)
    flattening.section(root, "")
    return flattening.values
