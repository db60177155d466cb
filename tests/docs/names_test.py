#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every file, test, target, key and symbol that the pages for contributors name is there.

    names_test.py

Words in which an X stands for a name of the reader's own are left out; of a path its folder is checked.
"""
import re
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import config_reference  # noqa: E402
from docs_pages import CODE  # noqa: E402

PAGES = ("docs/adding.md", "docs/own_reward.md", "docs/own_model.md", "CONTRIBUTING.md")
SOURCES = (".cc", ".h", ".cu", ".proto", ".py", ".yaml", ".txt", ".cmake", ".sh", ".json", ".toml", ".yml")
ENDINGS = SOURCES + (".md", ".safetensors")
PLACEHOLDER = re.compile(r"(?<![A-Za-z])X(?![a-z])|(Make|Add|k|_|-|<)X|X(Config|_test)|[A-Z]{3,}$|<x>|\.\.\.")
ELSEWHERE = ("build/", "runs/", "/", "<", ".cc", ".h", ".txt")  # Built, of a library, or an ending alone.
TARGET = re.compile(r"oxbow_(?:test|binary|library)\(\s*(\w+)|add_test\(NAME (\S+)")


def tracked():
    out = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True,
                         text=True).stdout
    return [name for name in out.splitlines() if (ROOT / name).is_file()]


class Repository:
    def __init__(self):
        self.files = set(tracked())
        self.folders = {str(parent) for name in self.files for parent in Path(name).parents}
        texts = {name: (ROOT / name).read_text(errors="replace") for name in self.files
                 if name.endswith(SOURCES) or name.endswith("Makefile")}
        data = ("docs/", "tests/docs/")  # They speak of names that are not there, too.
        code = {name: text for name, text in texts.items() if not name.startswith(data)
                and (not name.startswith("tests/golden/") or name.endswith((".cc", ".h")))}
        self.words = {word for text in code.values() for word in re.findall(r"\w+", text)}
        self.cases = {found for text in code.values()
                      for found in re.findall(r"TEST(?:_F|_P)?\((\w+),\s*(\w+)\)", text)}
        self.targets = {name for path, text in texts.items() if path.endswith("CMakeLists.txt")
                        for pair in TARGET.findall(text) for name in pair if name}
        self.rules = set(re.findall(r"^([\w-]+):", texts["Makefile"], re.M))
        self.keys = set(config_reference.keys())
        self.texts = texts

    def has_path(self, path):
        """As written from the root, from src (as an include), or without the endings of a file pair."""
        for start in ("", "src/"):
            whole = (start + path).rstrip("/")
            if whole in self.files or whole in self.folders:
                return True
            if any(whole + ending in self.files for ending in (".h", ".cc", ".py")):
                return True
        return False


def expanded(path):
    found = re.search(r"\{([\w,]+)\}", path)
    if not found:
        return [path]
    return [path[:found.start()] + one + path[found.end():] for one in found.group(1).split(",")]


def missing(word, there):
    """The thing that a word in code style names and the repository does not have; None if all is well."""
    if PLACEHOLDER.search(word) and "/" not in word:
        return None
    command = word.split()
    if command[0] == "make" and len(command) > 1:
        return None if command[1] in there.rules else f"no rule of the Makefile: {command[1]}"
    if command[0] == "ninja":
        target = command[3] if command[1] == "-C" else command[1]
        return None if target in there.targets else f"no target: {target}"
    path = command[0]
    if ("/" in path or path.endswith(ENDINGS)) and not path.startswith(ELSEWHERE) and "://" not in path:
        return missing_path(path, command[1:], there)
    case = re.fullmatch(r"([A-Z]\w+)\.([A-Z]\w+)", word)
    if case:
        return None if case.groups() in there.cases else f"no such test: {word}"
    key = re.match(r"([a-z_]+(?:\.[a-z0-9_]+)+)(?=$|[:= ])", word)
    if key and key.group(1).split(".")[0] in {name.split(".")[0] for name in there.keys}:
        known = any(name == key.group(1) or name.startswith(key.group(1) + ".") for name in there.keys)
        return None if known else f"no such key: {key.group(1)}"
    if re.fullmatch(r"(?:\w+::)*k?[A-Z]\w*[a-z]\w*(?:\(\))?", word):
        name = re.findall(r"\w+", word)[-1]
        return None if name in there.words else f"no such name in the sources: {word}"
    return None


def missing_path(path, flags, there):
    for one in expanded(path):
        if PLACEHOLDER.search(one):
            one = one.rsplit("/", 1)[0] if "/" in one else ""
            if PLACEHOLDER.search(one):
                continue
        if one and "*" not in one and not there.has_path(one) and not named_somewhere(one, there):
            return f"no such file: {one}"
    for flag in flags:
        if path.endswith(".py") and flag.startswith("--") and there.has_path(path) and \
                f'"{flag}"' not in there.texts.get(path, ""):
            return f"{path} has no {flag}"
    return None


def named_somewhere(name, there):
    """A file's name alone, without its folder."""
    return "/" not in name and any(file.endswith("/" + name) for file in there.files)


class NamesTest(unittest.TestCase):
    there = Repository()

    def wrong_of(self, page):
        for number, line in enumerate((ROOT / page).read_text().splitlines(), 1):
            for _, word in CODE.findall(line):
                why = missing(word.strip(), self.there)
                if why:
                    yield f"{page}:{number}: {why}"

    def test_pages_name_what_is_there(self):
        wrong = [line for page in PAGES for line in self.wrong_of(page)]
        if wrong:
            self.fail("\n" + "\n".join(wrong))

    def test_peaks_of_device_budgets_are_those_that_are_counted(self):
        cells = [[cell.strip() for cell in line.strip("|").split("|")]
                 for name in ("tests/rehearsal/device_budgets.md", "docs/device_budgets.md")
                 for line in (ROOT / name).read_text().splitlines() if line.startswith("|")]
        counted = {row[0]: row[2] for row in cells if len(row) == 9}
        seen, cases = 0, []
        for row in cells:
            if row[0] == "network":
                cases = row[1:]
            elif f"{row[0]}-lora-forward" in counted:
                for case, value in zip(cases, row[1:], strict=True):
                    self.assertEqual(value, counted.get(f"{row[0]}-{case}", "-"), f"{row[0]}-{case}")
                    seen += value != "-"
        self.assertGreater(seen, 40)

    def test_what_is_gone_is_found(self):
        for word in ("src/core/rl/gone.h", "src/core/rl/grpo.{h,gone}", "make gone", "ninja -C build/dev gone_test",
                     "GoneTest.NothingIsThere", "FingerprintTest.NothingIsThere", "method.gone", "ForwardGone", "kGone",
                     "tools/config_reference.py --gone", "src/gone/X.{h,cc}"):
            self.assertIsNotNone(missing(word, self.there), word)
        for word in ("src/core/rl/X.{h,cc}", "METHOD_NAME_X", "Make<X>", "core/rl/grpo.h", "VelocityModel",
                     "FingerprintTest.CheckpointsOfShippedRecipesStillFit", "tools/metric_names.py --print"):
            self.assertIsNone(missing(word, self.there), word)


if __name__ == "__main__":
    unittest.main()
