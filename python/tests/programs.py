# SPDX-License-Identifier: Apache-2.0
"""Programs of oxbow's build, for tests that need one."""
import os
from pathlib import Path

PATIENCE = 60.0  # Seconds; a test that waits so long has failed.


def built(program):
    """The path of a program of oxbow's build, which OXBOW_BUILD names; None if there is none."""
    path = Path(os.environ.get("OXBOW_BUILD", "/none"), "bin", program)
    return str(path) if path.exists() else None
