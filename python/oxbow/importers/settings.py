# SPDX-License-Identifier: Apache-2.0
"""A setting of another tool: a value with its place; and the table of a tool's keys.

A table is text with lines KEY TYPE DEFAULT USE. `a.{b,c}` is two keys with the same rest, DEFAULT `.` is none, and @name in
a reason stands for one that many keys share. USE says what becomes of the key:

    = OURS            the oxbow key, which takes the value; `= OURS: a b, c` takes b for a, and c itself
    ? OURS            the same, but only where the importer asks for it (Translation.copy)
    !                 the importer translates it, by itself or with others
    ~ a, b: REASON    only these values are taken, or none
    - REASON          nothing has to be set for it

A name that ends in `.*` stands for everything below; `[]` is any element of a list.
"""
from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import NamedTuple

FLAGS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


class Refused(Exception):
    """The file is none that can be translated; the text is one line that names the place."""


class Row(NamedTuple):
    key: str
    type: str
    default: list[str] | None
    use: str
    text: str
    choices: dict[str, str]


def is_number(text: str) -> bool:
    try:
        return "_" not in text and math.isfinite(float(text))
    except ValueError:
        return False


def is_count(text: str) -> bool:
    return re.fullmatch(r"\+?[0-9]{1,19}", text) is not None


def quoted(text: str) -> str:
    """A text as YAML between quotation marks."""
    return '"' + "".join("\\" + c if c in '"\\' else c if ord(c) >= 32 and ord(c) != 127 else f"\\x{ord(c):02x}"
                         for c in text) + '"'


@dataclass
class Setting:
    path: str  # As in the file: "rewards[1].name".
    place: str  # "FILE:LINE", or "FILE" for a default.
    items: list[str] = field(default_factory=list)  # The elements of a list, or the text of a scalar.
    shape: str = "scalar"  # "scalar", "list", "section" (without keys) or "null".
    given: bool = True
    present: bool = True  # It has a value: given and not null, or a default.
    row: Row | None = None

    @property
    def key(self) -> str:
        return re.sub(r"\[\d+\]", "[]", self.path)

    @property
    def text(self) -> str:
        return self.items[0]

    def number(self, index: int = 0) -> float:
        return float(self.items[index])

    @property
    def count(self) -> int:
        return int(self.items[0])

    @property
    def flag(self) -> bool:
        return FLAGS[self.text.lower()]

    @property
    def yaml(self) -> str:
        """The value as a run file or a message shows it; secrets are in none."""
        if re.search(r"(?:key|token|secret|password)\b", self.path, re.I):
            return "(not repeated)"
        if self.shape == "null":
            return "null"
        return self.items[0] if len(self.items) == 1 else f"[{', '.join(self.items)}]"

    @property
    def named(self) -> str:
        return f"{self.place}: {self.path}{'' if self.given else ' (their default)'}"

    @property
    def origin(self) -> str:
        return self.path if self.given else f"their default of {self.path}"


def _all(fits, s: Setting, *lengths: int) -> bool:
    return (not lengths or len(s.items) in lengths) and all(fits(item) for item in s.items)


TYPES = {  # In words, and whether a value is one.
    "text": ("text", lambda s: s.shape == "scalar"),
    "number": ("a number", lambda s: s.shape == "scalar" and is_number(s.text)),
    "count": ("a whole number", lambda s: s.shape == "scalar" and is_count(s.text)),
    "flag": ("true or false", lambda s: s.shape == "scalar" and s.text.lower() in FLAGS),
    "range": ("a number or a list of two", lambda s: _all(is_number, s, 1 if s.shape == "scalar" else 2)),
    "size": ("a whole number or [height, width]", lambda s: _all(is_count, s, 1, 2)),
    "counts": ("a list of whole numbers", lambda s: s.shape != "scalar" and _all(is_count, s)),
    "texts": ("a text or a list of texts", lambda s: bool(s.items)),
    "any": ("anything", lambda s: True),
}


class Table(dict):
    """Rows by their key. `old` has pairs of an older name and the newer one, which wins if both are given."""

    def __init__(self, text: str, old: str = "", **reasons: str):
        super().__init__()
        for line in filter(str.strip, text.splitlines()):
            names, type_, default, use, rest = (line.split(None, 4) + [""])[:5]
            rest = re.sub(r"@(\w+)", lambda name: reasons[name[1]], rest)
            target, _, choices = rest.partition(": ") if use in "=?" else (rest, "", "")
            pairs = {pair.split()[0]: pair.split()[-1] for pair in choices.split(", ")} if choices else {}
            before, _, inner = names.partition("{")
            for name in inner[:-1].split(",") if inner else [""]:
                items = None if default == "." else default.split(",")
                self[before + name] = Row(before + name, type_, items, use, target.strip(), pairs)
        for name, newer in (pair.split() for pair in old.split(",") if pair.strip()):
            self[name] = self[newer.replace("[0]", "[]")]._replace(key=name, default=None, use=">", text=newer)
        self._below = [key[:-1] for key in self if key.endswith(".*")]

    def find(self, key: str) -> Row | None:
        return self.get(key) or next((self[f"{one}*"] for one in self._below if key.startswith(one)), None)

    def has_below(self, key: str) -> bool:
        return any(one.startswith((f"{key}.", f"{key}[]")) for one in self)
