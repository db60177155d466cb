#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every key of a run file with its type, default and meaning.

    tools/config_reference.py            as Markdown: `make docs` appends it to docs/config_reference.md
    tools/config_reference.py --check    only counts the keys

It is made of proto/oxbow/v1/config.proto (types, choices, comments, what may differ over a resume) and of
configs/defaults.yaml (defaults, comments). Exits 1 with what to do if a key is in one of the two files alone, or if no
comment says what it means.
"""
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROTO, DEFAULTS = "proto/oxbow/v1/config.proto", "configs/defaults.yaml"
FIELD = re.compile(r"^\s*(repeated |optional )?([\w.]+) (\w+) = \d+(?: (\[.*?\]))?;\s*(?://\s*(.*))?$")
ENUM_VALUE = re.compile(r"^\s*(\w+) = (\d+);")
KEY = re.compile(r"^( *)(\w+):(?:\s+((?:\"[^\"]*\"|[^#\s]|\s(?!\s*#))+))?\s*(?:#\s*(.*))?$")
# A clause that is a range: src/config/key_names.h.
BOUND = r"(?:at least|above|at most|below) [-+.e\d]+"
RANGE = re.compile(rf"(?:{BOUND}(?: and {BOUND})?|[-+.e\d]+ to [-+.e\d]+)(?:, or 0)?")
NEVER = re.compile(r"never (\w+)")
TYPES = {"bool": "true or false", "double": "number", "string": "text", "uint32": "whole number", "uint64": "whole number"}

# Fields that entered the fingerprints of older checkpoints alone.
FORMER = set(re.findall(r'"oxbow\.v1\.(\w+\.\w+)"', (ROOT / "src/config/fingerprint.cc").read_text()))


@dataclass
class Field:
    name: str
    type: str
    repeated: bool
    left_out: bool
    comment: str


@dataclass
class Default:
    value: str  # "" of a section.
    comment: str
    keys: dict = field(default_factory=dict)


def read_proto(text):
    """({message: [Field]}, {enum: [choice]})."""
    messages, enums, stack, above = {}, {}, [], []
    for line in text.splitlines():
        opened = re.match(r"^\s*(message|enum) (\w+) \{(\})?", line)
        value, found = ENUM_VALUE.match(line), FIELD.match(line)
        if opened:
            (messages if opened.group(1) == "message" else enums)[opened.group(2)] = []
            if not opened.group(3):
                stack.append(opened.groups()[:2])
        elif stack and stack[-1][0] == "enum" and value:
            if value.group(2) != "0":
                prefix = re.sub(r"(?<!^)(?=[A-Z])", "_", stack[-1][1]).upper() + "_"
                enums[stack[-1][1]].append(value.group(1).removeprefix(prefix).lower())
        elif stack and stack[-1][0] == "message" and found:
            repeated, kind, name, options, comment = found.groups()
            messages[stack[-1][1]].append(Field(name, kind, repeated == "repeated ", "left_out" in (options or ""),
                                                comment or " ".join(above)))
        elif line.strip() == "}" and stack:
            stack.pop()
        comment = re.match(r"^\s*//\s*(.*)$", line)
        above = [*above, comment.group(1)] if comment else []
    return messages, enums


def read_defaults(text):
    """The sections and keys as nested Default.keys. A comment of its own line after a key goes on with the key's."""
    root = Default("", "")
    open_keys = [(-1, root)]
    last = None
    for number, line in enumerate(text.splitlines(), 1):
        more = re.match(r"^ +#\s*(.*)$", line)
        if more and last:
            last.comment += " " + more.group(1)
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        found = KEY.match(line)
        if not found:
            sys.exit(f"{DEFAULTS}:{number}: not KEY: VALUE  # COMMENT")
        indent, name, value, comment = len(found.group(1)), found.group(2), found.group(3) or "", found.group(4) or ""
        while open_keys[-1][0] >= indent:
            open_keys.pop()
        last = open_keys[-1][1].keys[name] = Default(value.strip(), comment)
        if not value:
            open_keys.append((indent, last))
    return root


def type_text(one, enums):
    if one.type in enums:
        text = " \\| ".join(f"`{choice}`" for choice in enums[one.type])
    else:
        text = TYPES.get(one.type, "entries")
    return f"list of {text}" if one.repeated else text


def range_and_rest(comment):
    """(a comment's range, "" if it has none; the other clauses)."""
    clauses = comment.split("; ")
    ranges = [clause for clause in clauses if RANGE.fullmatch(clause)]
    return ", ".join(ranges), "; ".join(clause for clause in clauses if clause not in ranges)


def without_never(values, comment):
    """Choices and comment: a clause "never f16" takes one away."""
    clauses = comment.split("; ")
    for clause in [clause for clause in clauses if NEVER.fullmatch(clause)]:
        clauses.remove(clause)
        word = f"`{NEVER.fullmatch(clause).group(1)}`"
        values = " \\| ".join(choice for choice in values.split(" \\| ") if choice != word)
    return values, "; ".join(clauses)


def cell(text):
    return re.sub(r"(?<!\\)\|", r"\\|", text.strip())


def sections(message, default, path, messages, enums, left_out):
    """Lines of a section and those in it; sys.exit if the two files disagree."""
    fields = [one for one in messages[message] if messages.get(one.type) != []]  # All keys of some sections are former ones.
    here = {one.name for one in fields}
    if here != set(default.keys):
        sys.exit(f"{PROTO} and {DEFAULTS} do not have the same keys in {path or 'the top level'}: "
                 f"{', '.join(sorted(here ^ set(default.keys)))}")
    plain = [one for one in fields if one.repeated or one.type not in messages]
    lines = []
    if plain:
        lines += ["", f"## {path}", ""]
        if default.comment:
            lines += [cell(default.comment[0].upper() + default.comment[1:]) + ".", ""]
        lines += ["| key | values | default | meaning |", "|---|---|---|---|"]
    for one in plain:
        told = default.keys[one.name]
        mark = "\\*" if left_out or one.left_out or f"{message}.{one.name}" in FORMER else ""
        meaning = told.comment or one.comment
        if not meaning:
            sys.exit(f"{DEFAULTS}: {path}.{one.name}: no comment that says what it means")
        values, meaning = range_and_rest(meaning)
        choices, meaning = without_never(type_text(one, enums), meaning)
        values = choices + (f", {values}" if values else "")
        lines.append(f"| `{path}.{one.name}`{mark} | {values} | `{told.value}` | {cell(meaning)} |")
    for one in fields:
        if one not in plain:
            inner = f"{path}.{one.name}" if path else one.name
            lines += sections(one.type, default.keys[one.name], inner, messages, enums, left_out or one.left_out)
    return lines


def page():
    """The text that `make docs` appends to docs/config_reference.md."""
    messages, enums = read_proto((ROOT / PROTO).read_text())
    defaults = read_defaults((ROOT / DEFAULTS).read_text())
    return "\n".join(sections("RunConfig", defaults, "", messages, enums, False)) + "\n"


def keys():
    return re.findall(r"^\| `([\w.]+)`", page(), re.MULTILINE)


def main():
    print(f"{DEFAULTS}: {len(keys())} keys" if "--check" in sys.argv[1:] else page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
