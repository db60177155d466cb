# SPDX-License-Identifier: Apache-2.0
"""Evaluates a function of flow_grpo's config/*.py without running it: no import, no call but a few of these files' own.

Understood are assignments, arithmetic, comparisons, conditional expressions, `if`, `assert`, f-strings, containers,
os.path.join, os.getcwd (which stays the text "."), int, float, ml_collections.ConfigDict, calls of functions of the same
file, and `base.get_config()`, which is read from base.py beside it. Anything else is an error that names its line.
"""
from __future__ import annotations

import ast
import operator
from pathlib import Path

from .settings import Refused, Setting

OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
             ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow, ast.Eq: operator.eq,
             ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge}
DEPTH_MAX = 20
WORK_MAX = 1_000_000  # Values that are evaluated, with their letters and elements.


class Section(dict):
    """A ConfigDict: its values, and where each was set last."""

    def __init__(self):
        super().__init__()
        self.lines = {}


class File:
    """`read` gives a file's text; `work` counts what is evaluated, over all files."""

    def __init__(self, read, path, work=None):
        self.read, self.path, self.work = read, Path(path), work or [0]
        try:
            body = ast.parse(read(str(path)), str(path)).body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise Refused(f"{path}:{getattr(error, 'lineno', None) or 1}: no Python: {error.args[0]}") from None
        self.functions = {node.name: node for node in body if isinstance(node, ast.FunctionDef)}

    def call(self, name, depth=0):
        """(the Section that the function returns, its local variables over those of the functions that it calls)."""
        if name not in self.functions:
            raise Refused(f"{self.path}: no such function: {name}; there are {', '.join(sorted(self.functions))}")
        if depth > DEPTH_MAX:
            raise Refused(f"{self.path}: {name}: calls itself")
        body = Body(self, depth)
        return body.run(self.functions[name].body), {**body.called, **body.names}


class Body:
    """The statements of one call."""

    def __init__(self, file, depth):
        self.file, self.depth = file, depth
        self.names, self.called = {}, {}

    def run(self, statements):
        for statement in statements:
            if isinstance(statement, ast.Return):
                return self.value(statement.value)
            if isinstance(statement, ast.Assign):
                self.assign(statement)
            elif isinstance(statement, ast.If):
                result = self.run(statement.body if self.value(statement.test) else statement.orelse)
                if result is not None:
                    return result
            elif isinstance(statement, ast.Assert):
                if not self.value(statement.test):
                    raise self.error(statement, "the assertion fails")
            elif not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)):
                raise self.error(statement, ast.unparse(statement).splitlines()[0])
        return None

    def assign(self, statement):
        value = self.value(statement.value)
        for target in statement.targets:
            if isinstance(target, ast.Name):
                self.names[target.id] = value
            elif isinstance(target, ast.Attribute):
                section = self.value(target.value)
                if not isinstance(section, Section):
                    raise self.error(target, "an attribute of something that is no config")
                section[target.attr] = value
                section.lines[target.attr] = f"{self.file.path}:{statement.lineno}"
            else:
                raise self.error(target, type(target).__name__)

    def value(self, node):
        value = self.evaluated(node)
        self.file.work[0] += self.size(node, value)
        if self.file.work[0] > WORK_MAX:
            raise self.error(node, f"more than {WORK_MAX} values and letters up to here")
        return value

    def size(self, node, value, depth=0):
        if depth > DEPTH_MAX:
            raise self.error(node, "nested too deep")
        if isinstance(value, str):
            return 1 + len(value)
        if isinstance(value, Section) or not isinstance(value, (list, dict)):
            return 1
        return 1 + sum(self.size(node, one, depth + 1) for one in (value.values() if isinstance(value, dict) else value))

    def evaluated(self, node):
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name) and node.id in self.names:
            return self.names[node.id]
        if isinstance(node, ast.Attribute):
            section = self.value(node.value)
            if isinstance(section, Section) and node.attr in section:
                return section[node.attr]
        if isinstance(node, (ast.Tuple, ast.List)):
            return [self.value(element) for element in node.elts]
        if isinstance(node, ast.Dict):
            return {self.value(key): self.value(item) for key, item in zip(node.keys, node.values)}
        if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
            return self.computed(node, node.op, node.left, node.right)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.Not)):
            return -self.value(node.operand) if isinstance(node.op, ast.USub) else not self.value(node.operand)
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in OPERATORS:
            return self.computed(node, node.ops[0], node.left, node.comparators[0])
        if isinstance(node, ast.IfExp):
            return self.value(node.body if self.value(node.test) else node.orelse)
        if isinstance(node, ast.JoinedStr):
            for part in node.values:
                if isinstance(part, ast.FormattedValue) and (part.format_spec or part.conversion != -1):
                    raise self.error(node, f"a format: {ast.unparse(node)}")
            return "".join(str(self.value(part.value if isinstance(part, ast.FormattedValue) else part))
                           for part in node.values)
        if isinstance(node, ast.Call):
            return self.call(node)
        raise self.error(node, ast.unparse(node))

    def computed(self, node, operation, left, right):
        left, right = self.value(left), self.value(right)
        small = isinstance(left, (int, float)) and isinstance(right, (int, float)) and max(abs(left), abs(right)) < 1e9
        if isinstance(operation, ast.Pow) and not (small and abs(right) <= 64) or not isinstance(
                operation, (ast.Eq, ast.NotEq, ast.Add)) and not small:
            raise self.error(node, ast.unparse(node))
        try:
            return OPERATORS[type(operation)](left, right)
        except (TypeError, ArithmeticError) as error:
            raise self.error(node, f"{ast.unparse(node)}: {error}") from None

    def call(self, node):
        called = ast.unparse(node.func)
        if node.keywords:
            raise self.error(node, f"keywords of {called}")
        if called == "ml_collections.ConfigDict" and not node.args:
            return Section()
        if called == "ml_collections.ConfigDict" and len(node.args) == 1 and isinstance(node.args[0], ast.Dict):
            return self.section(node.args[0])
        if called == "os.getcwd" and not node.args:
            return "."
        values = [self.value(argument) for argument in node.args]
        if called == "os.path.join":
            return "/".join(part for part in values if part != ".")
        if called in ("int", "float") and len(values) == 1:
            return int(values[0]) if called == "int" else float(values[0])
        if called == "base.get_config" and not values:
            return File(self.file.read, self.file.path.with_name("base.py"), self.file.work).call("get_config", self.depth + 1)[0]
        if called in self.file.functions and not values:
            result, names = self.file.call(called, self.depth + 1)
            self.called.update(names)
            return result
        raise self.error(node, f"a call of {called}" + (" with these arguments" if values else ""))

    def section(self, node):
        """A literal dict as a ConfigDict; dicts within it are ConfigDicts, too."""
        section = Section()
        for key, item in zip(node.keys, node.values):
            if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
                raise self.error(node, "a config whose names are no plain texts")
            section[key.value] = self.section(item) if isinstance(item, ast.Dict) else self.value(item)
            section.lines[key.value] = f"{self.file.path}:{item.lineno}"
        return section

    def error(self, node, what):
        return Refused(f"{self.file.path}:{node.lineno}: not understood: {what}")


def flatten(section: Section, above: str = "", seen: set[int] | None = None) -> list[Setting]:
    """The values of a config by their path, each with the line that set it last."""
    values, seen = [], set() if seen is None else seen
    for name, value in section.items():
        path, place = above + name, section.lines.get(name, "")
        if above.count(".") > DEPTH_MAX:
            raise Refused(f"{place}: not understood: nested too deep")
        if isinstance(value, Section):
            if id(value) in seen:
                raise Refused(f"{place}: not understood: the same config in two places, or within itself")
            seen.add(id(value))
            values += flatten(value, f"{path}.", seen)
        elif isinstance(value, dict):
            values += [Setting(f"{path}.{key}", place, [_text(item)]) for key, item in value.items()]
        elif isinstance(value, list):
            values.append(Setting(path, place, [_text(item) for item in value], "list"))
        else:
            values.append(Setting(path, place, [] if value is None else [_text(value)], "null" if value is None else "scalar",
                                  present=value is not None))
    return values


def _text(value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value)) if isinstance(value, float) and value.is_integer() and abs(value) < 1e15 else str(value)
