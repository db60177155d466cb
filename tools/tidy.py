#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""House rules that no compiler knows (CONTRIBUTING.md). Prints file:line: rule; exits 1 on an error.

Errors: banned words in file names, <torch/torch.h>, files over 600 lines, lines over 100 columns,
headers without #pragma once, sources outside every CMakeLists.txt, TODO, words about how the code came to
be, comments that begin with a bare "Of", or with What, Who, Which, Whose, Whoever or "Those of"
instead of the thing, sleeps in tests, hardware_concurrency, trailing blanks. Warnings: functions
over 70 lines, words in comments and documents that plain English does without. `--self-test` runs
only the test of the rules of language, which every call runs first.
"""
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINES_MAX, COLUMNS_MAX, FUNCTION_LINES_MAX = 600, 100, 70
DRAWERS = re.compile(r"(^|_)(util|utils|helper|helpers|common|manager|misc)(_|$)")
# The message types that every service shares; the name is in the wire's descriptors.
NAMED_OTHERWISE = {"proto/oxbow/v1/common.proto"}
SLEEP = re.compile(r"\b(sleep_for|sleep_until|absl::SleepFor|usleep|nanosleep)\b|[^\w.:]sleep\(")
# A worker's stream may be a session; the sitting in which code was written is nobody's business.
WORDS = re.compile(r"\bassistants?\b|\b(this|last|previous|earlier|next|another) session\b",
                   re.IGNORECASE)
TODO = re.compile(r"\b(TODO|FIXME|XXX)\b")
SLASHES = (".h", ".cc", ".cu", ".proto")
COMMENT = {True: re.compile(r"(?:^|\s)//+\s+(.*)"), False: re.compile(r"(?:^|\s)#+\s+(.*)")}
# "// Of a row." leaves out the noun: "Velocity of a row." says it.
BARE_OF = re.compile(r"Of ")
# "// What became of the write." does so, too: "The outcome of the write." names the thing first.
BARE_WHAT = re.compile(r"(What|Who|Which|Whose|Whoever|Those of)\b")
# The first line of a file; the comment after it is another one.
LICENCE = re.compile(r"SPDX-License-Identifier:")
DOCSTRING = re.compile(r'"""(\w.*)')
# Text that is compared byte by byte, or that others wrote.
AS_IT_IS = ("tests/golden/", "tests/fuzz/corpus/", "models/", "tools/requirements/")
UNPLAIN = re.compile(r"\b(whom|whoever|anew|lacks)\b", re.IGNORECASE)
CODE_SPAN = re.compile(r"`[^`]*`")
FUNCTION_END = re.compile(r"^}\s*(//.*)?$")
FUNCTION_START = re.compile(r"^[\w:<>,*&~\[\]\s\"=().]*\)[\w\s:&>*,<(){}-]*\{$")


def tracked():
    out = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, check=True,
                         capture_output=True, text=True).stdout
    return [name for name in out.splitlines() if (ROOT / name).is_file()]


def name_errors(path):
    stem = Path(path).stem.lower()
    if DRAWERS.search(stem) and path not in NAMED_OTHERWISE:
        yield 0, "the name is a drawer, not a noun; say what it is"


def line_errors(path, lines):
    is_code = path.endswith((".h", ".cc", ".cu"))
    is_test = path.endswith("_test.cc") or path.startswith("tests/")
    for number, line in enumerate(lines, 1):
        if is_code and len(line) > COLUMNS_MAX and "http" not in line:
            yield number, f"line over {COLUMNS_MAX} columns: {len(line)}"
        if is_code and line != line.rstrip():
            yield number, "trailing blank"
        if is_code and "<torch/torch.h>" in line and "#include" in line:
            yield number, "<torch/torch.h> is banned; include single ATen headers"
        if is_code and "hardware_concurrency" in line and "base/machine_share" not in path:
            yield number, "hardware_concurrency sees no quota of a container; ask base/machine_share"
        if is_test and is_code and SLEEP.search(line):
            yield number, "sleep in a test; use FakeClock or a notification with a deadline"
        if path == "tools/tidy.py":  # It names what it bans.
            continue
        if TODO.search(line):
            yield number, "unfinished work belongs in an issue"
        if WORDS.search(line.replace("<|im_start|>assistant", "")):  # A word of chat templates.
            yield number, "say what the code does, not who wrote it or when"


def prose_of(path, line):
    """The words of a line: its comment, in Markdown the line without code; None: nothing."""
    if path.endswith(".md"):
        return CODE_SPAN.sub("", line)
    found = COMMENT[path.endswith(SLASHES)].search(line)
    return found.group(1) if found else None


def openings(path, lines):
    """Yields (line, text) of each docstring and comment that begins: at the end of a line of code, or
    on a line of its own behind no comment, an empty one, the licence's, or one that ends with '.',
    ':' or '?'."""
    mark = "//" if path.endswith(SLASHES) else "#"
    before = ""
    for number, line in enumerate(lines, 1):
        stripped = line.strip()
        docstring = DOCSTRING.match(stripped) if path.endswith(".py") else None
        if docstring:
            yield number, docstring.group(1)
        if stripped.startswith(mark):
            text = stripped.lstrip(mark).strip()
            if not before or before.endswith((".", ":", "?")) or LICENCE.match(before):
                yield number, text
            before = text
            continue
        before = ""
        found = COMMENT[path.endswith(SLASHES)].search(line)
        if found and line[:found.start()].count('"') % 2 == 0:  # Else it is in a string.
            yield number, found.group(1)


def language_findings(path, lines):
    """Yields (is an error, line, reason)."""
    if path == "tools/tidy.py":  # It names what it bans.
        return
    for number, line in enumerate(lines, 1):
        prose = prose_of(path, line)
        if prose is None:
            continue
        if BARE_OF.match(prose) and not path.endswith(".md"):
            yield True, number, 'a comment begins with a bare "Of"; name the thing first'
        unplain = UNPLAIN.search(prose)
        if unplain:
            yield False, number, f'"{unplain.group(0)}": say it in plain words'
    if path.endswith(".md") or path.startswith(AS_IT_IS):
        return
    for number, text in openings(path, lines):
        bare = BARE_WHAT.match(text)
        if bare:
            yield True, number, f'a comment begins with "{bare.group(0)}"; name the thing first'


def self_test():
    good = {"a.h": "int rows;  // Rows of a pass.", "a.py": "# The rest of it.", "a.cc": "x = \"// Off\";",
            "b.cc": "x = \"// What\";", "b.py": "words = \"# Who\"", "b.h": "int rows;  // Whatever fits.",
            "c.h": "// The rows, and\n// What they hold.", "a.md": "Of two workers, `whoever` is code.",
            "b.md": "What it is", "a.proto": "// Offers of a step.", "tools/requirements/a.yaml": "# What it needs.",
            "tests/golden/a.h": "// What it is.", "models/a.py": "# Which of them.", "c.py": "# Those who wait.",
            "d.h": "// SPDX-License-Identifier: Apache-2.0\n// Rows, and\n// What they hold."}
    for path, text in good.items():
        assert not list(language_findings(path, text.split("\n"))), f"wrongly found: {path}: {text}"
    errors = {"a.h": "int rows;  // Of a pass.", "a.cc": "// Of products.", "a.proto": "  // Of a step.",
              "a.py": "# Of a run.", "a.yaml": "rate: 0  # Of the step.", "b.h": "// What became of it.",
              "b.cc": "f(\"x\");  // Those of a run.", "c.cc": "// The rows.\n// Which of them.",
              "d.cc": "// Rows:\n//\n//   Whose they are.", "b.py": "x = 1  # Who asks.", "c.py": "\n# Which one?", "e.py": 'def f():\n    """What it does."""',
              "b.yaml": "# Rows?\n# What they are.", "b.proto": "f();\n// What it is.", "CMakeLists.txt": "# What it has.",
              "d.h": "// SPDX-License-Identifier: Apache-2.0\n// What it is.",
              "d.py": "#!/bin/x\n# SPDX-License-Identifier: Apache-2.0\n# Which of them."}
    for path, text in errors.items():
        assert [f[0] for f in language_findings(path, text.split("\n"))] == [True], f"not caught: {path}: {text}"
    assert [f[0] for f in language_findings("a.h", ["// Whoever waits."])] == [False, True], "not caught: Whoever"
    warned = {"a.h": "// For whoever waits.", "a.yaml": "a: 1  # drawn anew", "a.md": "what it lacks", "a.cc": "f();  // to whom"}
    for path, line in warned.items():
        assert [f[0] for f in language_findings(path, [line])] == [False], f"not caught: {path}: {line}"


def header_errors(lines):
    if "#pragma once" not in lines:
        yield 0, "header without #pragma once"


def long_functions(lines):
    """Top-level blocks whose head looks like a function; a heuristic, so only warned about."""
    start = None
    for number, line in enumerate(lines, 1):
        if line and not line[0].isspace() and FUNCTION_START.match(line):
            if not line.startswith(("namespace", "class", "struct", "enum", "extern")):
                start = number
        if start and FUNCTION_END.match(line):
            if number - start + 1 > FUNCTION_LINES_MAX:
                yield start, f"function of {number - start + 1} lines"
            start = None


def unbuilt(files):
    """The sources of the product that no CMakeLists.txt names."""
    built = "".join((ROOT / path).read_text() for path in files if path.endswith("CMakeLists.txt"))
    for path in files:
        if path.endswith(".cc") and path.startswith(("src/", "services/", "cli/", "examples/")) and Path(path).name not in built:
            yield path


def main():
    self_test()
    if "--self-test" in sys.argv[1:]:
        return 0
    files = [f for f in tracked() if f.endswith((".h", ".cc", ".cu", ".py", ".proto", ".cmake",
                                                 ".yaml", ".sh", ".md", "CMakeLists.txt"))]
    errors = [f"{path}:1: source that no CMakeLists.txt names" for path in unbuilt(files)]
    warnings = []
    for path in files:
        lines = (ROOT / path).read_text(errors="replace").splitlines()
        found = list(name_errors(path)) + list(line_errors(path, lines))
        if path.endswith((".h", ".cc", ".cu")) and len(lines) > LINES_MAX:
            found.append((0, f"file over {LINES_MAX} lines: {len(lines)}"))
        if path.endswith(".h"):
            found += header_errors(lines)
        if path.endswith((".h", ".cc")):
            warnings += [f"{path}:{n}: warning: {why}" for n, why in long_functions(lines)]
        for is_error, number, why in language_findings(path, lines):
            if is_error:
                found.append((number, why))
            else:
                warnings.append(f"{path}:{number}: warning: {why}")
        errors += [f"{path}:{n}: {why}" for n, why in found]
    print("\n".join(warnings + errors))
    print(f"tidy: {len(files)} files, {len(errors)} errors, {len(warnings)} warnings")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
