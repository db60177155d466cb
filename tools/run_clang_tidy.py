#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs clang-tidy on the torch-free sources of a build directory; exits 1 if it finds anything.

    tools/run_clang_tidy.py [BUILD_DIRECTORY] [PATH_PREFIX...]

LibTorch's headers alone take clang-tidy half a minute per file, so sources that include them get only
the compiler's warnings. Tests are left out for the same reason (GoogleTest's macros).
"""
import concurrent.futures
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# A source that CMake joined with others (OXBOW_UNITY) is a header of theirs.
FLAGS = ["--header-filter=.*/(src|services|cli)/.*\\.(h|cc)$", "--checks=-bugprone-suspicious-include"]
# Flags that g++ knows and clang 14 does not, and flags that only the build needs.
DROPPED = {"-fpch-preprocess", "-Winvalid-pch", "-Werror"}


def is_torch(command):
    return "-idirafter" in command


def sources(entry):
    """The project's sources that this entry compiles: several where CMake makes one file of them (OXBOW_UNITY)."""
    path = Path(entry["file"])
    if not path.name.startswith("unity_"):
        return [path]
    return [Path(source) for source in re.findall(r'#include "(.*)"', path.read_text())]


def wanted(entry, prefixes):
    for path in sources(entry):
        if not path.is_relative_to(ROOT) or path.suffix != ".cc" or path.name.endswith("_test.cc"):
            return False
        if not str(path.relative_to(ROOT)).startswith(tuple(prefixes)):
            return False
    return not is_torch(entry["command"])


def for_clang(entry):
    words = shlex.split(entry["command"])
    while not words[0].endswith(("c++", "g++", "clang++", "gcc")):  # Skips ccache and its environment.
        words.pop(0)
    words = [w for w in words if w not in DROPPED and not w.startswith("-fsanitize")]
    for i in reversed(range(len(words))):  # g++'s precompiled header is not clang's.
        if words[i].endswith("cmake_pch.hxx"):
            del words[i - 1:i + 1]
    return {"directory": entry["directory"], "file": entry["file"], "arguments": words}


def main():
    build = Path(sys.argv[1] if len(sys.argv) > 1 else "build/release")
    prefixes = sys.argv[2:] or ["src/", "services/", "cli/", "examples/"]
    database = build / "compile_commands.json"
    if not database.exists():
        print(f"no compile_commands.json, configure first (make build): {build}", file=sys.stderr)
        return 2
    entries = [e for e in json.loads(database.read_text()) if wanted(e, prefixes)]
    if not entries:
        print(f"no torch-free source in {database}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as directory:
        commands = [for_clang(entry) for entry in entries]
        (Path(directory) / "compile_commands.json").write_text(json.dumps(commands))

        def check(path):
            run = subprocess.run(["clang-tidy", "--quiet", "-p", directory, *FLAGS, path], cwd=ROOT,
                                 capture_output=True, text=True)
            return run.returncode, run.stdout.strip() or run.stderr.strip()

        failed = 0
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            for code, output in pool.map(check, sorted({entry["file"] for entry in entries})):
                if code != 0:
                    failed += 1
                    print(output, flush=True)
    count = len({source for entry in entries for source in sources(entry)})
    print(f"clang-tidy: {count} sources, findings in {failed} compilations")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
