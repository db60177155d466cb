# SPDX-License-Identifier: Apache-2.0
"""The settings of another tool, translated.

Nothing is dropped silently: a setting is translated, or listed as a difference that the user should know, or as not
needed, with the reason. A setting that would make a different run is refused, and so is an unknown key. The result is a draft:
`oxbow import-config` sets the keys in its own schema, applies its rules and writes the file.
"""
from __future__ import annotations

import difflib
import json
import re
from dataclasses import replace

from .settings import TYPES, Row, Setting, Table

RANKS_MAX = 4096


class Translation:
    def __init__(self, tool: str, name: str, table: Table, values: list[Setting], recipe: str = ""):
        self.tool, self.name, self.table, self.recipe = tool, name, table, recipe
        self.keys: list[list[str]] = []  # Ours, its text, and the origin and name of the setting that it comes from.
        self.problems: list[str] = []
        self.unknown: list[str] = []
        self.different: list[str] = []
        self.needless: list[str] = []
        self.asked: set[str] = set()  # Paths that the importer has read.
        self.given: dict[str, Setting] = {}  # In the file's order; old names stand under the new ones.
        for setting in values:
            self._read(setting)

    def _read(self, s: Setting) -> None:
        s.row = self.table.find(s.key)
        if s.row is None:
            if s.shape not in ("null", "section") or not self.table.has_below(s.key):
                near = difflib.get_close_matches(s.key, self.table, 1, .85)
                hint = f"; did you mean `{near[0]}`?" if near else ""
                self.unknown.append(f"{s.place}: {s.path}: not a key of {self.tool}'s that is known{hint}")
            return
        words, fits = TYPES[s.row.type]
        if s.present and not fits(s):
            got = "a section" if s.shape == "section" else s.yaml
            self.problems.append(f"{s.place}: {s.path}: expected {words}, got {got}")
            return
        if s.row.use != ">":
            self.given[s.path] = s
        else:
            self.given.setdefault(s.row.text, s)

    def _row(self, path: str) -> Row:
        row = self.table.find(re.sub(r"\[\d+\]", "[]", path))
        assert row is not None, path
        return row

    def get(self, path: str) -> Setting:
        """The setting at a path that is in the table. Null means the default, too."""
        row = self._row(path)
        self.asked.add(path)
        s = self.given.get(path) or Setting(path, self.name, given=False, present=False, row=row)
        return s if s.present or row.default is None else replace(s, present=True, items=row.default, shape="scalar")

    def size(self, name: str) -> int:
        """The number of sections in a list."""
        found = (re.match(rf"{re.escape(name)}\[(\d+)\]", path) for path in self.given)
        return max((int(one[1]) + 1 for one in found if one), default=0)

    def put(self, ours: str, value, because: Setting, path: str = "") -> None:
        """Sets an oxbow key. `path` names what it comes from, where that is not one setting alone."""
        because = replace(because, path=path, given=True) if path else because
        text = str(value).lower() if isinstance(value, bool) else repr(value) if isinstance(value, float) else str(value)
        self.keys.append([ours, text, because.origin, because.named])

    def copy(self, *paths: str) -> bool:
        """Sets the keys that the table says for these settings; False if a value has no counterpart."""
        known = True
        for path in paths:
            s, row = self.get(path), self._row(path)
            if not s.present:
                continue
            choices = {theirs.lower(): ours for theirs, ours in row.choices.items()}
            if not choices:
                self.put(row.text, s.yaml, s)
            elif s.text.lower() in choices:
                self.put(row.text, choices[s.text.lower()], s)
            else:
                known = self.refuse(s, f"has no counterpart here; known: {', '.join(row.choices)}")
        return known

    def refuse(self, s: Setting, reason: str) -> bool:
        self.problems.append(f"{s.named}: {reason}" + (f", got {s.yaml}" if s.present else ""))
        return False

    def allow(self, s: Setting, allowed: list[str], reason: str) -> None:
        """Refuses every value except these; a missing value is allowed, too."""
        if s.present and s.yaml.lower() not in allowed:
            self.refuse(s, reason)

    def differs(self, s: Setting, how: str) -> None:
        self.different.append(s.named + (f": {s.yaml}" if s.present else "") + f": {how}")

    def not_needed(self, s: Setting, reason: str) -> None:
        self.needless.append(f"{s.named}: {s.yaml}: {reason}")

    def take_rows(self) -> None:
        """Copies what the table says is taken as it is."""
        self.copy(*(key.replace("[]", "[0]") for key, row in self.table.items() if row.use == "="))

    def sort_out_rest(self) -> None:
        """Judges given settings by the rows of which no code knows, and names those of which nothing became anything."""
        for s in self.given.values():
            if s.row.use == "-":
                self.not_needed(s, s.row.text)
            elif s.row.use == "~":
                values, _, reason = s.row.text.partition(": ")
                self.allow(s, [] if values == "nothing" else values.lower().split(", "), reason)
        said = {named for _, _, _, named in self.keys}
        lines = [*self.problems, *self.different, *self.needless]
        for s in self.given.values():
            if s.present and s.items and s.row.use in "!?=" and s.named not in said and not any(
                    line.startswith(f"{s.named}:") for line in lines):
                self.not_needed(s, "it is part of the values above" if s.path in self.asked else
                                "with the other settings it changes nothing")

    def processes(self, count: int, groups: int, s: Setting, path: str = "") -> None:
        """Ranks and workers of a run that had so many processes, each with a GPU: one of each on every GPU."""
        s = replace(s, path=path or s.path, items=s.items if not path else [str(count)])
        ranks = max(rank for rank in range(1, min(max(count, 1), RANKS_MAX) + 1) if groups % rank == 0)
        self.put("learner.ranks", ranks, s)
        self.put("services.rollout_workers", max(count, 1), s)
        if ranks < count:
            self.differs(s, f"learner.ranks = {ranks}: ranks divide the {groups} groups of a step")
        if count > 8:
            self.differs(s, "on one machine write `auto`: a rank and a worker on each of its GPUs, and the same batch")

    def draft(self) -> str:
        return json.dumps({"title": f"{self.tool}'s {self.name.rpartition('/')[2]}", "recipe": self.recipe,
                           "keys": self.keys, "problems": self.problems, "unknown": self.unknown,
                           "different": self.different, "needless": self.needless})
