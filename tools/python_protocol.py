#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""python/oxbow/protocol.binpb is the FileDescriptorSet of the protocols that the Python package speaks, as protoc 3.21
writes it: those of reward servers and of the replay buffer.

Without arguments this checks that it is so; `--write` makes it so. Any protoc can check: the comparison is of the
descriptors' content, and exits 1 with what to do if it differs.
"""
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SET = ROOT / "python/oxbow/protocol.binpb"
SPOKEN = ["oxbow/v1/reward.proto", "oxbow/v1/replay_buffer.proto"]


def compiled():
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "set"
        subprocess.run(["protoc", "-I", "proto", "--include_imports", f"--descriptor_set_out={out}",
                        *SPOKEN], cwd=ROOT, check=True)
        return out.read_bytes()


def text(descriptors):
    """The parts of a descriptor set that protoc reads; later versions of protoc may write json_name and the like otherwise."""
    done = subprocess.run(["protoc", "--decode_raw"], input=descriptors, check=True, capture_output=True)
    return re.sub(rb'\n *10: "\w+"', b"", done.stdout)


def main():
    new = compiled()
    if "--write" in sys.argv[1:]:
        SET.write_bytes(new)
        return 0
    old = SET.read_bytes() if SET.exists() else b""
    if text(old) != text(new):
        print(f"{SET.relative_to(ROOT)} is not of proto/: run tools/python_protocol.py --write")
        return 1
    print(f"{SET.relative_to(ROOT)}: {len(old)} bytes, up to date")
    return 0


if __name__ == "__main__":
    sys.exit(main())
