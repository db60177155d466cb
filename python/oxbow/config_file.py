# SPDX-License-Identifier: Apache-2.0
"""config.resolved.yaml, as oxbow wrote it."""
from __future__ import annotations

import re
from pathlib import Path
from typing import Any


def read_config(path: Path) -> dict[str, Any]:
    """The settings by section. ImportError without PyYAML."""
    return parse_config(path.read_text(encoding="utf-8"))


def parse_config(text: str) -> dict[str, Any]:
    """As read_config, of the file's text."""
    try:
        import yaml
    except ImportError:
        raise ImportError("a run's config takes PyYAML: pip install './python[run]' in oxbow's sources") from None

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        """YAML 1.2's numbers and truth values: 1e-05 is a number, `no` is a word."""

        yaml_implicit_resolvers: dict[str, Any] = {}

    for tag, pattern, first in (("bool", r"^(?:true|false)$", "tf"), ("null", r"^(?:null)$", "n"),
                                ("int", r"^[-+]?[0-9]+$", "-+0123456789"),
                                ("float", r"^[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?$", "-+.0123456789")):
        Loader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(pattern), list(first))
    return yaml.load(text, Loader) or {}


def flat(config: dict[str, Any], above: str = "") -> dict[str, Any]:
    """`{"run.seed": 0, ...}`: sections as dotted names; lists stay whole."""
    result: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, dict):
            result.update(flat(value, f"{above}{name}."))
        else:
            result[above + name] = value
    return result
