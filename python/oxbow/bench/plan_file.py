# SPDX-License-Identifier: Apache-2.0
"""A YAML file read by a shape, with the line of what is wrong. Scalars keep their text: 1e-4 is part of a run's name."""
from __future__ import annotations

import difflib
import math
from pathlib import Path
from typing import Any

import yaml

from . import EXIT_DATA, EXIT_USAGE, Refused

# A text (str), a whole number (int), a number (float), a list of one shape, or a section by its keys.
_GRID = [{"key": str, "values": [str]}]
SHAPE: dict[str, Any] = {
    "name": str,
    "source": str,       # The document, and its table or figure; `oxbow reproduce` takes plans that have one.
    "seeds": int,        # Every recipe runs with run.seed first_seed .. first_seed + seeds - 1.
    "first_seed": int,
    "set": [str],        # Overrides for every run: "run.steps=150".
    "baseline": str,     # The recipe that the others are compared with.
    "level": float,      # Held-out reward to reach; 0: the final reward of the baseline, averaged over its seeds.
    "levels": [float],   # Rewards fixed beforehand at which recipes are compared seed by seed.
    # Each recipe runs with each of these learning rates, on seeds and prompts (`set`, applied last) of their own. The rate
    # with the highest held-out reward, averaged over all evaluations, is taken to the comparison.
    "tuning": {"learning_rates": [float], "seeds": int, "first_seed": int, "set": [str]},
    # `file`: a run file; `set` comes after the overrides for every run; `note` is shown in the table. With a grid a recipe
    # becomes one for each combination of values, named NAME-KEY-VALUE with the key's last part. `from`: an earlier recipe; the run
    # starts with the weights that this one's run of the same seed has at its end.
    "recipes": [{"name": str, "file": str, "set": [str], "from": str, "note": str, "grid": _GRID}],
    # Numbers that the document prints: `metric` of metrics.jsonl, for the run of a recipe at a step (0: at its end); `of`: where.
    "published": [{"recipe": str, "metric": str, "step": int, "value": float, "of": str}],
}


class Placed(str):
    """A text of the file, and where it stands there: FILE:LINE."""
    place: str

    @classmethod
    def at(cls, place: str, text: str) -> "Placed":
        placed = cls(text)
        placed.place = place
        return placed


def read_plan_file(path: Path) -> dict[str, Any]:
    """The file's values by SHAPE; a key that it does not have is 0, empty or, of a section, {}. Refused: no file, or an error."""
    try:
        root = yaml.compose(path.read_bytes(), yaml.SafeLoader)
    except OSError as why:
        raise Refused(EXIT_DATA, f"cannot open: {why.strerror}: {path}") from None
    except (yaml.YAMLError, RecursionError) as why:
        mark = getattr(why, "problem_mark", None)
        place = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else str(path)
        raise Refused(EXIT_USAGE, f"{place}: not valid YAML: {getattr(why, 'problem', None) or 'it cannot be read'}") from None
    if not isinstance(root, yaml.MappingNode):
        raise Refused(EXIT_USAGE, f"{path}: expected keys such as `recipes:` at the top level")
    return _Reader(path).value(root, SHAPE, "")


class _Reader:
    def __init__(self, path: Path):
        self._path = path

    def _refuse(self, node: yaml.Node, key: str, reason: str) -> Refused:
        return Refused(EXIT_USAGE, f"{self._path}:{node.start_mark.line + 1}: {key}: {reason}")

    def value(self, node: yaml.Node, shape: Any, key: str) -> Any:
        if isinstance(shape, dict):
            return self._section(node, shape, key)
        if isinstance(shape, list):
            if not isinstance(node, yaml.SequenceNode):
                raise self._refuse(node, key, f"expected a list, each {_named(shape[0])}, got {_found(node)}")
            return [self.value(one, shape[0], f"{key}[{i}]") for i, one in enumerate(node.value)]
        number = _number(node, shape)
        if number is None:
            raise self._refuse(node, key, f"expected {_named(shape)}, got {_found(node)}")
        return Placed.at(f"{self._path}:{node.start_mark.line + 1}", number) if shape is str else number

    def _section(self, node: yaml.Node, shape: dict[str, Any], above: str) -> dict[str, Any]:
        if not isinstance(node, yaml.MappingNode):
            raise self._refuse(node, above, f"expected a section, got {_found(node)}")
        read: dict[str, Any] = {}
        for name_node, value in node.value:
            name = str(name_node.value)
            key = f"{above}.{name}".lstrip(".")
            if name in read:
                raise self._refuse(name_node, key, "the key is given twice; keep one")
            if name not in shape:
                near = difflib.get_close_matches(name, shape, 1)
                raise self._refuse(name_node, key, "unknown key" + (f"; did you mean `{near[0]}`?" if near else ""))
            read[name] = self.value(value, shape[name], key)
        # type() of a shape's list or section is what is empty of it.
        return {name: read.get(name, (one if isinstance(one, type) else type(one))()) for name, one in shape.items()}


def _number(node: yaml.Node, shape: type) -> Any:
    """The scalar as a text or a number of this type; None if it is none."""
    if not isinstance(node, yaml.ScalarNode) or node.tag == "tag:yaml.org,2002:null":
        return None
    if shape is str:
        return node.value
    try:
        number = shape(node.value)
    except ValueError:
        return None
    return number if (math.isfinite(number) if shape is float else 0 <= number < 2**32) else None


def _named(shape: Any) -> str:
    return {str: "text", int: "a whole number from 0 to 4294967295", float: "a number"}.get(shape if isinstance(shape, type) else None,
                                                                                         "a section")


def _found(node: yaml.Node) -> str:
    if isinstance(node, yaml.ScalarNode):
        return "nothing" if node.tag == "tag:yaml.org,2002:null" else f'"{node.value}"'
    return "a list" if isinstance(node, yaml.SequenceNode) else "a section"
