# SPDX-License-Identifier: Apache-2.0
"""metrics.jsonl: one JSON object per committed step; a crash may cut the last line (docs/formats.md)."""
from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any, Iterator


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The whole lines; none if there is no file yet. ValueError names a line that is no metrics object."""
    if not path.exists():
        return []
    lines = []
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], 1):  # Behind the last newline: nothing, or a cut line.
        lines.append(_parsed(line, path, number))
    return lines


def numbers_of(line: dict[str, Any]) -> dict[str, float]:
    """A line with NaN for null: measured, and not finite."""
    return {name: math.nan if value is None else value for name, value in line.items()}


class Tail:
    """Lines of a metrics file as they are written.

    A resumed run cuts the file back to its checkpoint and writes those steps again. After a cut, and when the file is
    replaced, reading starts at the beginning; the caller knows by the steps what it has seen.
    """

    def __init__(self, path: Path):
        self._path = path
        self._file = None  # st_ino of what was read.
        self._offset = 0
        self._before = b""  # The bytes in front of the offset, to see that they are still the same.

    def new_lines(self) -> Iterator[dict[str, Any]]:
        """The whole lines written since the last call, or all of a file that is another one now."""
        try:
            with open(self._path, "rb") as file:
                self._seek(file)
                data = file.read()
        except FileNotFoundError:
            return
        whole = data[:data.rfind(b"\n") + 1]
        self._before = (self._before + whole)[-256:]
        self._offset += len(whole)
        for line in whole.split(b"\n")[:-1]:
            yield _parsed(line, self._path, None)

    def _seek(self, file: Any) -> None:
        inode = os.fstat(file.fileno()).st_ino
        file.seek(max(0, self._offset - len(self._before)))
        if inode != self._file or file.read(len(self._before)) != self._before:
            self._offset, self._before = 0, b""
        self._file = inode
        file.seek(self._offset)


def _parsed(line: bytes, path: Path, number: int | None) -> dict[str, Any]:
    try:
        parsed = json.loads(line)
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict) or not isinstance(parsed.get("step"), (int, float)):
        place = f"{path}:{number}" if number else str(path)
        raise ValueError(f"{place}: not a metrics object with a \"step\": {line[:80].decode(errors='replace')}")
    return parsed
