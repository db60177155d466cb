# SPDX-License-Identifier: Apache-2.0
"""Contact sheets: pictures of the held-out prompts at an evaluation, on one picture."""
from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .picture import image_of


@dataclass(frozen=True)
class Sheet:
    step: int
    tag: str  # "eval"
    path: Path  # A PNG file, of videos animated.

    @property
    def caption(self) -> str:
        path = self.path.with_suffix(".txt")
        return path.read_text(encoding="utf-8").strip() if path.exists() else ""

    def image(self) -> Any:
        """A PIL.Image. ImportError without Pillow."""
        return image_of(self.path)


def sheets_of(samples: Path) -> list[Sheet]:
    """The sheets under samples/step_NNNNNN/, by step and tag. Files whose names are numbers are single pictures."""
    found = []
    for path in samples.glob("step_*/*.png"):
        digits = path.parent.name[len("step_"):]
        if digits.isdigit() and not path.stem.isdigit():
            found.append(Sheet(int(digits), path.stem, path))
    return sorted(found, key=lambda sheet: (sheet.step, sheet.tag))
