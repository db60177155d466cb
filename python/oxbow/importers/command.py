# SPDX-License-Identifier: Apache-2.0
"""Prints the draft of a run: what `oxbow import-config` asks for.

    python3 -m oxbow.importers.command flow-factory|flow-grpo|dance-grpo FILE [--gpus N]

Exit code 2: the file is none of the tool's; 4: it is not there.
"""
from __future__ import annotations

import argparse
import sys
from pathlib import Path

from . import dance_grpo, flow_factory, flow_grpo
from .settings import Refused

FILE_BYTES_MAX = 1 << 20
EXIT_USAGE, EXIT_DATA = 2, 4  # docs/formats.md, exit codes.


def read(path: str) -> str:
    with Path(path).open("rb") as file:
        data = file.read(FILE_BYTES_MAX + 1)
    if len(data) > FILE_BYTES_MAX:
        raise Refused(f"{path}: more than {FILE_BYTES_MAX} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise Refused(f"{path}: no text in UTF-8") from None


def translate(tool: str, file: str, gpus: int | None = None):
    if tool == "flow-factory":
        return flow_factory.translate(read(file), file)
    if tool == "dance-grpo":
        return dance_grpo.translate(read(file), file, gpus)
    path, _, function = file.rpartition(":")
    if not path:
        raise Refused(f"{file}: expected FILE.py:FUNCTION")
    return flow_grpo.translate(read, path, function, gpus)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("oxbow import-config", description=__doc__.splitlines()[0])
    parser.add_argument("tool", choices=("flow-factory", "flow-grpo", "dance-grpo"))
    parser.add_argument("file")
    parser.add_argument("--gpus", type=int)
    args = parser.parse_args(arguments)
    try:
        print(translate(args.tool, args.file, args.gpus).draft())
    except ArithmeticError:
        print(f"oxbow import-config: {args.file}: a number in it is out of all bounds", file=sys.stderr)
        return EXIT_USAGE
    except Refused as why:
        print(f"oxbow import-config: {why}", file=sys.stderr)
        return EXIT_USAGE
    except OSError as why:
        print(f"oxbow import-config: {why.filename or args.file}: {why.strerror}", file=sys.stderr)
        return EXIT_DATA
    return 0


if __name__ == "__main__":
    sys.exit(main())
