#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that what docker/Dockerfile and its scripts read is in the context of an image's build.

.dockerignore leaves out all but what it names: a script that reads a file which is not named there
ends the build of an image, and nothing else. Paths are those that COPY takes from the context, and
those of tools/ and docker/ in lines of the Dockerfile and its scripts that are not comments.
"""
import fnmatch
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = ["docker/Dockerfile", "docker/gather.sh", "docker/install_libtorch.sh", "tools/install_deps.sh"]


def lines(name):
    text = (ROOT / name).read_text().replace("\\\n", " ")
    return [line for line in text.splitlines() if not line.lstrip().startswith("#")]


def in_context(path, rules):
    """Whether the rules leave `path`, a file or folder, in the context: the last that fits decides."""
    kept = True
    for rule in rules:
        pattern = rule.lstrip("!").rstrip("/")
        above = [path, *map(str, Path(path).parents)]
        if pattern == "**" or any(fnmatch.fnmatch(name, pattern) for name in above):
            kept = rule.startswith("!")
    return kept


def wanted():
    """{path: where it is read}, of paths that exist."""
    found = {}
    for name in SCRIPTS:
        for line in lines(name):
            paths = re.findall(r"\b(?:tools|docker)/[\w./-]*\w", line)
            copied = re.match(r"COPY (?!--from)(.*) \S+$", line)
            if copied:
                paths += [path for path in copied[1].split() if path != "."]
            for path in paths:
                if (ROOT / path).exists():
                    found.setdefault(path, name)
    return found


def main():
    rules = lines(".dockerignore")
    rules = [rule.strip() for rule in rules if rule.strip()]
    paths = wanted()
    missing = {path: name for path, name in paths.items() if not in_context(path, rules)}
    for path, name in missing.items():
        print(f"{name} reads {path}, which .dockerignore leaves out")
    print(f"image: {len(paths)} paths, {len(missing)} missing")
    return 1 if missing or not paths else 0


if __name__ == "__main__":
    sys.exit(main())
