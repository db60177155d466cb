#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How large the product is. Each number may fall freely and rises only with a note that says for what.

    tools/size.py                                      check: exits 1 where a number is above its limit
    tools/size.py --write                              limits fall to the numbers of today
    tools/size.py --raise docs/decisions/NNNN-X.md     those above their limit become the limit, for this note

tools/size_limits.json has the limits and, where one was raised, the note. Counted are tracked and new files.
"""
import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

import config_reference

ROOT = Path(__file__).resolve().parent.parent
LIMITS = ROOT / "tools/size_limits.json"
PRODUCT = re.compile(r"^(src|services|cli)/.*\.(h|cc|cu|cuh)$")
WHAT = {
    "product_lines": "lines of C++ and CUDA in src, services and cli without tests",
    "product_files": "files of these",
    "config_keys": "keys of a run file",
    "libraries": "libraries of the build (oxbow_library)",
    "page_kb": "KB of all pages in docs, and README.md",
}


def tracked():
    out = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [name for name in out.splitlines() if (ROOT / name).is_file()]


def numbers():
    files = tracked()
    product = [name for name in files if PRODUCT.match(name) and "_test." not in name]
    pages = [name for name in files if name == "README.md" or name.startswith("docs/") and name.endswith(".md")]
    builds = [name for name in files if name.endswith("CMakeLists.txt")]
    return {
        "product_lines": sum((ROOT / name).read_bytes().count(b"\n") for name in product),
        "product_files": len(product),
        "config_keys": len(config_reference.keys()),
        "libraries": sum(len(re.findall(r"^\s*oxbow_library\(", (ROOT / name).read_text(), re.MULTILINE)) for name in builds),
        "page_kb": sum((ROOT / name).stat().st_size for name in pages) // 1000,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--raise", dest="note", type=Path)
    args = parser.parse_args()
    now = numbers()
    limits = json.loads(LIMITS.read_text()) if LIMITS.exists() else {name: {"at_most": value} for name, value in now.items()}
    if args.note is not None and not (re.match(r"docs/decisions/\d{4}-.*\.md$", str(args.note)) and (ROOT / args.note).is_file()):
        sys.exit(f"size: no decision note: {args.note}")
    wrong = 0
    for name, value in now.items():
        limit = limits.setdefault(name, {"at_most": value})
        if value < limit["at_most"] and args.write:
            limit["at_most"] = value
        if value > limit["at_most"] and args.note is not None:
            limit.update(at_most=value, note=str(args.note))
        if value > limit["at_most"]:
            wrong += 1
            print(f"size: {name} {value}, at most {limit['at_most']}: {WHAT[name]}. Make it smaller, or say for what it grows in a "
                  f"decision note and run tools/size.py --raise docs/decisions/NNNN-X.md")
        else:
            print(f"{name:14} {value:7} of {limit['at_most']:7}  {WHAT[name]}")
    for name, limit in limits.items():
        if "note" in limit and not (ROOT / limit["note"]).is_file():
            wrong += 1
            print(f"size: {name} was raised for a note that is not there: {limit['note']}")
    if args.write or args.note is not None:
        rows = ",\n".join(f"  {json.dumps(name)}: {json.dumps(limits[name])}" for name in WHAT)
        LIMITS.write_text(f"{{\n{rows}\n}}\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
