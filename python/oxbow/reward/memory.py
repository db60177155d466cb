# SPDX-License-Identifier: Apache-2.0
"""The memory that this process may use: the least limit of its control groups, else the machine's."""
from __future__ import annotations

import os
from pathlib import Path

_LIMIT_OF = {"": "memory.max", "memory": "memory.limit_in_bytes"}  # By controller: versions 2 and 1.


def usable(cgroup: str | None = None, root: Path = Path("/sys/fs/cgroup")) -> int:
    """`cgroup` is the text of /proc/self/cgroup, whose hierarchies are mounted below `root`."""
    if cgroup is None:
        cgroup = _text(Path("/proc/self/cgroup"))
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for line in cgroup.splitlines():
        _, controllers, group = line.split(":", 2)
        if controllers not in _LIMIT_OF:
            continue
        mount = root / controllers
        at = mount / group.lstrip("/")
        # In a container the mount point is the container's own group, and its path outside leads nowhere.
        for folder in [at, *at.parents]:
            text = _text(folder / _LIMIT_OF[controllers]).strip()
            if text.isdigit():
                limits.append(int(text))
            if folder == mount:
                break
    return min(limits)


def share(part: float, most: int) -> int:
    """A part of it, and no more than `most` bytes."""
    return min(most, int(part * usable()))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""
