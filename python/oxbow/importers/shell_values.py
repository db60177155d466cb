# SPDX-License-Identifier: Apache-2.0
"""The flags of the command that starts a training in a shell script.

Nothing else of the script is looked at, but for the variables that it sets before the command.
"""
from __future__ import annotations

import re

from .settings import Setting

START = re.compile(r"(?<!\S)(torchrun|python3? -m torch\.distributed\.run)\s")


def command_of(text: str, name: str) -> tuple[str, list[Setting]]:
    """The training script that a shell script starts, and the flags of the command, each with its line."""
    variables, words, script = {}, [], ""
    for number, line in enumerate(text.splitlines(), 1):
        assigned = re.match(r"\s*(?:export\s+)?(\w+)=([^\s;]*)\s*(?:#.*)?$", line)
        if assigned and not words:
            variables[assigned[1]] = assigned[2].strip("\"'")
        start = START.search(line)
        if words or (start and not line.lstrip().startswith("#")):
            part = line[start.end():] if start and not words else line
            part = re.sub(r"(?<!\S)#.*", "", part)
            part = re.sub(r"\\?\$\{?(\w+)\}?", lambda one: variables.get(one[1], one[0]), part)
            words += [(word, number) for word in re.sub(r"[\"'\\]", " ", part).split()]
            if not line.rstrip().endswith("\\"):
                break
    values, index = [], 0
    while index < len(words):
        (word, number), following = words[index], words[index + 1][0] if index + 1 < len(words) else "--"
        index += 1
        if not word.startswith("--"):
            script = script or word
            continue
        flag, equals, value = word[2:].partition("=")
        if not equals and not following.startswith("--") and not following.endswith(".py"):
            value, index = following, index + 1
        value = "(not repeated)" if flag.endswith("_key") else value
        values.append(Setting(flag.replace("-", "_"), f"{name}:{number}", [value or "true"]))
    return script, values
