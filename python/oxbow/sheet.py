# SPDX-License-Identifier: Apache-2.0
"""Contact sheets: pictures of the held-out prompts at an evaluation."""
from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any


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
        try:
            from PIL import Image
        except ImportError:
            raise ImportError("pictures take Pillow: pip install 'oxbow[run]'") from None
        return Image.open(self.path)


def sheets_of(samples: Path) -> list[Sheet]:
    """The sheets under samples/step_NNNNNN/, by step and tag."""
    found = []
    for path in samples.glob("step_*/*.png"):
        digits = path.parent.name[len("step_"):]
        if digits.isdigit():
            found.append(Sheet(int(digits), path.stem, path))
    return sorted(found, key=lambda sheet: (sheet.step, sheet.tag))
