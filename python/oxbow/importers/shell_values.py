# SPDX-License-Identifier: Apache-2.0
"""The flags of the command that starts a training in a shell script.

Nothing else of the script is looked at, but for the variables that it sets before the command.
"""
from __future__ import annotations

import re

from .settings import Refused, Setting

START = re.compile(r"(?<![^\s\"'])(torchrun|python3? -m torch\.distributed\.run)\s")
COMMENT = r"(?<![^\s;|&()])\#[^\n]*"
PIECE = re.compile("(?P<comment>" + COMMENT + r""")
    |(?P<blank>[ \t]+) |(?P<joint>\\(?:\n|\Z)) |(?P<end>[;|)\n]|&(?!>))
    |(?P<redirection>(?:\d*|&)[<>]+&?[ \t]*(?:[^\s;|&<>()'"]|"[^"\n]*"|'[^'\n]*')+)
    |'(?P<plain>[^']*)' |"(?P<quoted>(?:\\.|[^"\\])*)" |\\(?P<escaped>.) |(?P<command>\$\([^()\n]*\)|`[^`\n]*`)
    |(?P<bare>(?:\$\{[^}\n]*\}|\$(?!\()|[^\s;|&<>()'"\\`$])+)""", re.S | re.X)
ASSIGNMENT = re.compile(r"(?<![^\n;])[ \t]*(?:export[ \t]+)?(\w+)\+?=")
VARIABLE = re.compile(r"""\\(["\\$`\n])|\$(?:(\w+)|\{(\w+)\})""")


def _words(text: str, at: int, variables: dict[str, str], split: bool) -> tuple[list[tuple[str, int]] | None, int]:
    """The words of the command that begins there, each with its place, and the command's end; None if it is not understood.

    `split` divides the value of an unquoted variable at its blanks."""
    def expanded(part):
        return VARIABLE.sub(lambda one: one[1].strip("\n") if one[1] else variables.get(one[2] or one[3], one[0]), part)

    words, joined = [], False
    while at < len(text):
        piece = PIECE.match(text, at)
        if piece is None:
            return None, at + 1
        kind, place, at = piece.lastgroup, at, piece.end()
        if kind == "end":
            break
        if kind in ("blank", "comment", "redirection"):
            joined = False
        elif kind != "joint":
            part = expanded(piece[kind]) if kind in ("quoted", "bare") else piece[kind]
            parts = re.split(r"\s+", part) if kind == "bare" and split else [part]
            if joined:
                words[-1] = (words[-1][0] + parts.pop(0), words[-1][1])
            words += [(one, place) for one in parts if one or kind != "bare"]
            joined = joined or bool(words) and words[-1][1] == place
    return words, at


def _assigned(text: str) -> dict[str, str]:
    """The variables that a script sets. One whose value only a shell can tell is not among them."""
    variables, at = {}, 0
    while found := ASSIGNMENT.search(text, at):
        words, at = _words(text, found.start(1), variables, False)
        pairs = [word.partition("=") for word, _ in words or [(found[1], 0)]]
        alone = all(re.fullmatch(r"\w+", name) and equals for name, equals, _ in pairs)
        alone = alone and (len(pairs) == 1 or "$" not in text[found.start():at])  # One may depend on the other.
        for name, _, value in pairs:
            if alone and not re.search("[$`]", value):
                variables[name] = value
            else:
                variables.pop(name.rstrip("+"), None)
    return variables


def _without_quotation_around(before: str, text: str) -> str | None:
    """The text up to the end of the quotation in which it begins; None if that goes on behind it."""
    left = re.search("[\"']", re.sub(COMMENT + r"|\\.|'[^']*'|\"(?:\\.|[^\"\\])*\"", "", before, flags=re.S))
    if left is None:
        return text
    inside, closing, behind = re.match(r"(?:\\\n|[^\n])*", text)[0].partition(left[0])
    return inside if not closing or re.match(r"[ \t]*(?:\d*[<>]|[;|&)#]|$)", behind) else None


def command_of(text: str, name: str) -> tuple[str, list[Setting]]:
    """The training script that a shell script starts, and the flags of the command, each with its line."""
    text = text.replace("\r\n", "\n")
    start = next((one for one in START.finditer(text)
                  if not re.search(COMMENT, text[text.rfind("\n", 0, one.start()) + 1:one.start()])), None)
    if start is None:
        return "", []
    before, line = text[:start.start()], text.count("\n", 0, start.end()) + 1
    command = _without_quotation_around(before, text[start.end():])
    words, end = _words(command, 0, _assigned(before), True) if command is not None else (None, 0)
    if words is None:
        raise Refused(f"{name}:{line + (command or '').count(chr(10), 0, end)}: its quotation marks or parentheses are not "
                      "understood; write the command plainly")
    values, index, script = [], 0, ""
    while index < len(words):
        (word, place), following = words[index], words[index + 1][0] if index + 1 < len(words) else "--"
        index, number = index + 1, line + command.count("\n", 0, place)
        if not word.startswith("--"):
            if script:
                raise Refused(f"{name}:{number}: not understood: {word}: it belongs to no flag")
            script = word
            continue
        flag, equals, value = word[2:].partition("=")
        if not equals:
            value = "true"
            if not following.startswith("--") and (script or not following.endswith(".py")):
                value, index = following, index + 1
        values.append(Setting(flag.replace("-", "_"), f"{name}:{number}", [value]))
    return script, values
