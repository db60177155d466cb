#!/usr/bin/env python3
"""Every source file says its licence: `SPDX-License-Identifier: Apache-2.0`, in a comment of its first lines.

Without arguments this lists the files that do not, and those that say it twice, and exits 1 if there is one. `--write` adds
the line to them: as the first line; behind `#!`; in a shell script behind the comment that it begins with, because `--help`
prints that by its lines. A file that has several keeps the first. A file that has one is left unchanged, so it may be run again.
"""
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINE = "SPDX-License-Identifier: Apache-2.0"
SLASHES = (".h", ".cc", ".cu", ".proto", ".cc.in", ".h.in")
HASHES = (".py", ".sh", ".cmake", "CMakeLists.txt", "Makefile")
LOOKED_AT = 60  # Lines.


def sources():
    out = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True,
                         text=True).stdout
    return [name for name in out.splitlines() if name.endswith(SLASHES + HASHES) and (ROOT / name).is_file()]


def is_line(line):
    """A comment of it alone, which a mention of the line is not."""
    return line.strip() in (f"// {LINE}", f"# {LINE}")


def has_line(text):
    return any(LINE in line for line in text.splitlines()[:LOOKED_AT])


def repeats_line(text):
    return sum(map(is_line, text.splitlines()[:LOOKED_AT])) > 1


def with_one_line(text):
    lines = text.splitlines(keepends=True)
    first = next(at for at, line in enumerate(lines) if is_line(line))
    return "".join(line for at, line in enumerate(lines) if at == first or at >= LOOKED_AT or not is_line(line))


def with_line(name, text):
    comment = f"{'//' if name.endswith(SLASHES) else '#'} {LINE}\n"
    if name.endswith(".sh"):
        lines = text.splitlines(keepends=True)
        head = next((at for at, one in enumerate(lines) if not one.startswith("#")), len(lines))
        return "".join([*lines[:head], comment, *lines[head:]])
    if text.startswith("#!"):
        first, _, rest = text.partition("\n")
        return f"{first}\n{comment}{rest}"
    return comment + text


def self_test():
    assert with_line("a.cc", "#include <a>\n") == f"// {LINE}\n#include <a>\n"
    assert with_line("a.py", "#!/usr/bin/env python3\nx = 1\n") == f"#!/usr/bin/env python3\n# {LINE}\nx = 1\n"
    for name in ("a.h", "tools/b.sh", "CMakeLists.txt"):
        assert has_line(with_line(name, "#!x\n1\n2\n")) and has_line(with_line(name, "1\n"))
    assert with_line("a.sh", "#!/bin/sh\n# Help.\nset -e\n") == f"#!/bin/sh\n# Help.\n# {LINE}\nset -e\n"
    assert not has_line("1\n" * LOOKED_AT + "// " + LINE)
    twice = f"// {LINE}\n// {LINE}\n// What it is.\n"
    assert repeats_line(twice) and with_one_line(twice) == f"// {LINE}\n// What it is.\n"
    assert not repeats_line(f"# {LINE}\nx = '# {LINE}'\n")


def main():
    self_test()
    files = sources()
    texts = {name: (ROOT / name).read_text(errors="replace") for name in files}
    missing = [name for name, text in texts.items() if not has_line(text)]
    twice = [name for name, text in texts.items() if repeats_line(text)]
    if "--write" in sys.argv[1:]:
        for name in missing:
            path = ROOT / name
            path.write_text(with_line(name, path.read_text()))
        for name in twice:
            path = ROOT / name
            path.write_text(with_one_line(path.read_text()))
        print(f"licence lines: {len(missing)} files got one, {len(twice)} keep one")
        return 0
    for name in missing:
        print(f"{name}:1: no `{LINE}`: run tools/spdx.py --write")
    for name in twice:
        print(f"{name}:1: `{LINE}` more than once: run tools/spdx.py --write")
    print(f"licence lines: {len(files)} files, {len(missing)} without, {len(twice)} with several")
    return 1 if missing or twice else 0


if __name__ == "__main__":
    sys.exit(main())
