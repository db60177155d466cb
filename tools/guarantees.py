#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Promises of the product, from the comments above the tests that guard them.

    tools/guarantees.py              all of them, as Markdown: `make docs` appends them to docs/guarantees.md
    tools/guarantees.py WORD...      those with these words in title, detail or tests
    tools/guarantees.py --check      prints FILE:LINE: reason; exits 1 if something is wrong

Above the main test of a promise stands `// Promise: TITLE. DETAIL`, above every other one `// Promise: TITLE.`, in Python,
shell, CMake and YAML with `#`. The next line says what guards it: a test, a fixture's or test case's class, or `add_test`.
Before a blank line the comment is of the whole suite behind it. In a file without tests it is of the file: a script or a
fuzz target. `--self-test` runs only the test of these rules, which every call runs first.
"""
import re
import subprocess
import sys
import textwrap
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENDINGS = (".cc", ".cu", ".h", ".py", ".sh", ".yml", "CMakeLists.txt")
# The first that a path begins with; the folder of the main test decides.
SECTIONS = (("services/buffer", "Replay"), ("services/learner/replay", "Replay"), ("src/core/replay", "Replay"), ("cli/replay", "Replay"),
            ("services/learner/coordinator", "Groups and workers"), ("src/core/lease", "Groups and workers"),
            ("services/rollout", "Groups and workers"), ("services/weights", "Weights"), ("services/reward", "Rewards"),
            ("src/rewards", "Rewards"), ("src/core/reward", "Rewards"), ("python", "Rewards"), ("src/core/parallel", "Ranks"),
            ("services/learner/ranks", "Ranks"), ("src/core", "Training and models"), ("tests/golden", "Training and models"),
            ("tools", "Training and models"), ("services", "Runs and checkpoints"), ("src/rpc", "Services and network"),
            ("src/telemetry", "Services and network"), ("tests/gpu", "GPUs"), ("tests/rehearsal", "GPUs"),
            ("tests/integration", "Whole runs"), ("tests/chaos", "Whole runs"), ("tests/launchers", "Whole runs"),
            ("", "Commands, files and pages"))
CASE = re.compile(r"(?:TYPED_)?TEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\)")
FIXTURE = re.compile(r"(?:class|struct) (\w+)\b|using (\w+) =")
PYTHON = re.compile(r"( *)(class|def) (\w+)")
CTEST = re.compile(r"\s*add_test\(NAME (\S+)")
HAS_TESTS = re.compile(r"^(?:TYPED_)?TEST(?:_F|_P)?\(|^    def test_", re.MULTILINE)


@dataclass
class Promise:
    title: str
    details: list = field(default_factory=list)  # (place, text) of each; one where all is well.
    tests: list = field(default_factory=list)    # The main one first.
    section: str = ""


def comments_of(path, text):
    """(number of its line, text, number of the line behind) of each promise; several may stand above one test."""
    mark = "//" if path.endswith((".cc", ".cu", ".h")) else "#"
    found, lines = [], [*text.splitlines(), ""]
    for number, line in enumerate(lines, 1):
        line = line.strip()
        if line.startswith(mark + " Promise: "):
            found.append([number, line.removeprefix(mark + " Promise: ")])
        elif found and line.startswith(mark + " "):
            found[-1][1] += " " + line.removeprefix(mark + " ")
        elif found:
            yield from ((start, words, number) for start, words in found)
            found = []


def guard_of(path, lines, number):
    """The name of the test on a line, or of the suite behind a blank one; None for no test."""
    whole = not lines[number - 1].strip()
    if whole:
        number = next((n for n, line in enumerate(lines, 1) if n > number and line.strip() and not line.startswith(("//", "#"))), number)
    elif path.endswith(".py") and lines[number - 1].lstrip().startswith("@"):
        number = next((n for n, line in enumerate(lines, 1) if n > number and PYTHON.match(line)), number)
    code = " ".join(line.strip() for line in lines[number - 1:number + 2])
    module, python = Path(path).stem, PYTHON.match(lines[number - 1]) if path.endswith(".py") else None
    if python and python[2] == "class":
        return f"{module}.{python[3]}"
    if python and python[3].startswith("test_"):
        classes = [found[3] for line in lines[:number] if (found := PYTHON.match(line)) and found[1] == "" and found[2] == "class"]
        return ".".join((module, *classes[-1:], python[3]))
    case = CASE.match(code)
    if case:
        return f"{case[1]}.{'*' if whole else case[2]}"
    fixture = FIXTURE.match(code) if path.endswith((".cc", ".h")) else None
    if fixture:
        return f"{fixture[1] or fixture[2]}.*"
    ctest = CTEST.match(lines[number - 1])
    return ctest[1] if ctest else None if HAS_TESTS.search("\n".join(lines)) else path


def promises_of(files):
    """`files`: path -> text. Promises by title, and findings as FILE:LINE: reason."""
    promises, wrong = {}, []
    for path, text in sorted(files.items()):
        lines = [*text.splitlines(), ""]
        for number, words, behind in comments_of(path, text):
            place = f"{path}:{number}"
            title, dot, detail = words.partition(". ") if ". " in words else (words.removesuffix("."), words[-1:], "")
            guard = guard_of(path, lines, behind)
            if dot.strip() != ".":
                wrong.append(f"{place}: a promise's title ends with a full stop: {title}")
            elif not guard:
                wrong.append(f"{place}: no test behind the promise \"{title}\"")
            else:
                promise = promises.setdefault(title, Promise(title))
                promise.tests.insert(0 if detail else len(promise.tests), (guard, place))
                if detail:
                    promise.details.append((place, detail))
                    promise.section = next(name for folder, name in SECTIONS if path.startswith(folder))
    for title, promise in promises.items():
        if not promise.details:
            wrong += [f"{place}: no test has the details of \"{title}\"" for _, place in promise.tests]
        elif len(promise.details) > 1:
            wrong += [f"{place}: \"{title}\" has details in {len(promise.details)} places" for place, _ in promise.details]
    return promises, wrong


def tracked():
    out = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return {name: (ROOT / name).read_text(errors="replace") for name in out.splitlines()
            if name.endswith(ENDINGS) and (ROOT / name).is_file() and name != "tools/guarantees.py"}


def markdown(promises):
    """Each section's promises with their tests. A test is named once."""
    for section in dict.fromkeys(name for _, name in SECTIONS):
        yield from ("", f"## {section}", "")
        for promise in sorted((one for one in promises if one.section == section), key=lambda one: one.details[0][0]):
            yield f"- **{promise.title}.** {promise.details[0][1]}<br>*Tests:* " + ", ".join(
                f"`{name}`" for name in dict.fromkeys(name for name, _ in promise.tests))


def page():
    """The text that `make docs` appends to docs/guarantees.md."""
    return "\n".join(markdown(promises_of(tracked())[0].values())) + "\n"


def self_test():
    def read(path, text):
        promises, wrong = promises_of({path: text})
        return [(one.title, one.details[0][1] if one.details else "", [name for name, _ in one.tests]) for one in promises.values()], wrong
    good = {"src/core/a_test.cc": ("// Why.\n// Promise: A stays. It\n// does.\n// Promise: B. So.\nTEST_P(\n    ATest, Is) {\n"
                                   "// Promise: A stays.\nclass BTest : X {\n// Promise: B.\n\nTEST(CTest, D) {",
                                   [("A stays", "It does.", ["ATest.Is", "BTest.*"]), ("B", "So.", ["ATest.Is", "CTest.*"])]),
            "a/test_b.py": ("# Promise: A. It.\nclass C:\n    # Promise: A.\n    def test_d(self):", [("A", "It.", ["test_b.C", "test_b.C.test_d"])]),
            "a/run.sh": ("# Promise: A. It.\nset -e", [("A", "It.", ["a/run.sh"])]),
            "a/CMakeLists.txt": ("  # Promise: A. It.\n  add_test(NAME a.b", [("A", "It.", ["a.b"])])}
    for path, (text, wanted) in good.items():
        assert read(path, text) == (wanted, []), (path, read(path, text))
    for text, line in (("// Promise: A.\nTEST(A, B) {", 1), ("\n// Promise: A. It.\nint x;\nTEST(A, B) {", 2), ("// Promise: A\nTEST(A, B) {", 1)):
        found = read("a_test.cc", text)[1]
        assert len(found) == 1 and found[0].startswith(f"a_test.cc:{line}: "), found
    assert len(read("a_test.cc", "// Promise: A. It.\nTEST(A, B) {\n// Promise: A. It.\nTEST(A, C) {")[1]) == 2


def main():
    self_test()
    if "--self-test" in sys.argv[1:]:
        return 0
    promises, wrong = promises_of(tracked())
    words = [word.lower() for word in sys.argv[1:] if word != "--check"]
    if "--check" in sys.argv[1:] or wrong:
        print("\n".join([*wrong, f"guarantees: {len(promises)} promises, {len(wrong)} findings"]))
        return 1 if wrong else 0
    if not words:
        print(page(), end="")
        return 0
    for one in promises.values():
        text = " ".join((one.title, one.details[0][1], *(name for name, _ in one.tests)))
        if all(word in text.lower() for word in words):
            print(textwrap.fill(f"{one.title}. {one.details[0][1]}", 120))
            print("".join(f"  {place}  {name}\n" for name, place in one.tests))
    return 0


if __name__ == "__main__":
    sys.exit(main())
