#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A class is defined in one source, with at most 15 members and 25 methods.

    tools/class_size.py              check: exits 1 where a class is larger than it may be
    tools/class_size.py --list       the largest classes
    tools/class_size.py --write      limits of the exceptions fall to the numbers of today
    tools/class_size.py --self-test  the reader of classes against a text

tools/class_limits.json has the exceptions with their limits; no class joins it. Read are the product's sources, as text:
members are data with a trailing underscore, methods are functions without constructors, destructors and deleted ones.
"""
import argparse
import json
import re
import sys
from collections import defaultdict

import size

LIMITS = size.ROOT / "tools/class_limits.json"
MAX = {"sources": 1, "members": 15, "methods": 25}
NOISE = re.compile(r'//[^\n]*|/\*.*?\*/|^[ \t]*#[^\n]*(?:\\\n[^\n]*)*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'', re.DOTALL | re.MULTILINE)
CLASS = re.compile(r"\b(?:class|struct)\s+((?:\w+::)*\w+)(?:\s+final)?\s*(?::[^:;{(][^;{(]*)?\{")
ANGLES = re.compile(r"<[^<>]*>")
ANNOTATION = re.compile(r"\bABSL_\w+(?:\([^()]*(?:\([^()]*\)[^()]*)*\))?|\[\[.*?\]\]")
OTHER = re.compile(r"\s*(?:using|typedef|friend|static_assert|enum|class|struct|union|template\s+class)\b")


def statements(body):
    """Declarations of a class's body, without the blocks in them. A block ends one unless a name or `;` follows."""
    depth, start, flat = 0, 0, []
    for at, letter in enumerate(body):
        if letter == "{":
            if depth == 0:
                flat.append(body[start:at] + " {} ")
            depth += 1
        elif letter == "}":
            depth -= 1
            if depth == 0:
                start = at + 1
                if not re.match(r"\s*(?:[;,={]|ABSL_)", body[start:]):
                    flat.append(";")
    flat.append(body[start:])
    return re.sub(r"\b(?:public|private|protected)\s*:(?!:)", "", "".join(flat)).split(";")


def kind(statement, name):
    """members, methods or None."""
    if OTHER.match(statement) or "= delete" in statement:
        return None
    text = ANNOTATION.sub("", statement)
    while ANGLES.search(text):
        text = ANGLES.sub("", text)
    head = re.split(r"=|\{\}", re.sub(r"\boperator\s*(?:\(\)|[^\w\s(]+)", "Operator", text), maxsplit=1)[0]
    if "(" in head:
        called = re.search(r"(~?\w+)\s*\(", head)
        own = name.rpartition("::")[2]
        return None if called is None or called.group(1).lstrip("~") == own else "methods"
    return "members" if re.search(r"\w_\s*(?:\[[^\]]*\])?\s*$", head.strip()) else None


def closing(text, start):
    depth = 0
    for at in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0:
            return at
    return len(text)


def classes(text):
    """(name, members, methods) of each class that a source defines."""
    text = NOISE.sub(" ", text)
    for found in CLASS.finditer(text):
        body = text[found.end():closing(text, found.end() - 1)]
        kinds = [kind(statement, found.group(1)) for statement in statements(body)]
        yield found.group(1), kinds.count("members"), kinds.count("methods")


def numbers():
    """By "folder/Class": how many sources define its methods, its members and its methods."""
    texts = defaultdict(dict)  # By folder: source, text
    for name in size.tracked():
        if size.PRODUCT.match(name) and "_test." not in name:
            folder, _, file = name.rpartition("/")
            texts[folder][file] = (size.ROOT / name).read_text()
    found = {}
    for folder, sources in texts.items():
        for text in sources.values():
            for name, members, methods in classes(text):
                defined = re.compile(rf"^[^\s#/][^;\n]*\b{name}::~?\w+\(", re.MULTILINE)
                count = sum(file.endswith((".cc", ".cu")) and defined.search(other) is not None for file, other in sources.items())
                before = found.get(f"{folder}/{name}", {})
                now = {"sources": count, "members": members, "methods": methods}
                found[f"{folder}/{name}"] = {key: max(now[key], before.get(key, 0)) for key in MAX}
    return found


def self_test():
    text = """
// class Comment { int not_; };
template <typename T> class Store final : public Base {
 public:
  explicit Store(int x) : x_(x) { Start(); }
  ~Store();
  Store(const Store&) = delete;
  int Size() const { return x_; }
  absl::Status Write(std::span<const int> all = {}) ABSL_LOCKS_EXCLUDED(mutex_);
  bool operator==(const Store&) const = default;
  using Done = std::function<void(int)>;
  struct Part { int a; };
 private:
  std::function<void(int)> done_;
  mutable absl::Mutex mutex_;
  std::map<int, Part> parts_ ABSL_GUARDED_BY(mutex_) = {{1, {2}}};
  int x_{0};
  double each_[3];
};"""
    got = dict((name, rest) for name, *rest in classes(text))
    assert got == {"Store": [5, 3], "Part": [0, 0]}, got


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for flag in ("--list", "--write", "--self-test"):
        parser.add_argument(flag, action="store_true")
    args = parser.parse_args()
    self_test()
    if args.self_test:
        return 0
    limits = json.loads(LIMITS.read_text()) if LIMITS.exists() else {}
    large = {name: now for name, now in numbers().items() if any(now[key] > MAX[key] for key in MAX)}
    if args.list:
        for name, now in sorted(large.items(), key=lambda row: -row[1]["methods"]):
            print(f"{now['sources']:3} sources {now['members']:3} members {now['methods']:3} methods  {name}")
    if args.write:
        kept = {name: {key: min(now[key], limits[name][key]) if name in limits else now[key] for key in MAX}
                for name, now in sorted(large.items()) if name in limits or not LIMITS.exists()}
        rows = ",\n".join(f'  "{name}": {json.dumps(row)}' for name, row in kept.items())
        LIMITS.write_text("{\n" + rows + "\n}\n" if rows else "{}\n")
        limits = kept
    wrong = 0
    for name, now in large.items():
        for key, most in MAX.items():
            if now[key] > max(most, limits.get(name, {}).get(key, 0)):
                wrong += 1
                print(f"{name}: {now[key]} {key}, at most {max(most, limits.get(name, {}).get(key, 0))}")
    for name in limits.keys() - large.keys():
        wrong += 1
        print(f"{name}: no exception is needed any more: tools/class_size.py --write")
    print(f"classes: {len(limits)} exceptions, {wrong} errors")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
