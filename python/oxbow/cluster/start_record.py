# SPDX-License-Identifier: Apache-2.0
"""starts.jsonl: one line for each start of a run, as `oxbow train` writes it (src/run/run_record.h)."""
from __future__ import annotations

import json
import re
import shlex
import socket
import subprocess
import time
from pathlib import Path
from typing import Sequence

FILE, CONFIG = "starts.jsonl", "config.resolved.yaml"


def append_start(run_dir: Path, oxbow: Path, command: Sequence[str], resumed: bool) -> None:
    """`command`: the words as they were typed. The version is that of `oxbow`, which the nodes run."""
    config = (run_dir / CONFIG).read_text(encoding="utf-8")
    line = {"time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "command": shlex.join(command),
            "recipe": ", ".join(recipes_of(config)), "version": _version_of(oxbow), "host": socket.gethostname(),
            "resumed": resumed}
    with (run_dir / FILE).open("a", encoding="utf-8") as file:
        file.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")


def recipes_of(config: str) -> list[str]:
    """The recipes that a resolved config names as the source of a value."""
    return sorted(set(re.findall(r"  # recipe (.+)$", config, re.MULTILINE)))


def _version_of(oxbow: Path) -> str:
    told = json.loads(subprocess.run([oxbow, "--version", "--json"], capture_output=True, text=True, check=True).stdout)
    return f"{told['version']} ({told['git']})"
