#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the pages of Markdown without running anything. Prints FILE:LINE: reason; exits 1 if something is wrong.

Each link inside the repository leads to a file, and to a heading where it names one. Lines of prose have a limit. Each code block has a language, and
each block of commands or Python says whether tests/docs executes it, or why not. Blocks of Python compile, those of JSON
are read. `--self-test` runs only the test of these rules, which every call runs first.
"""
import json
import re
import sys
from urllib.parse import unquote

from docs_pages import LANGUAGES, MARKED_LANGUAGES, ROOT, RUN_WORDS, anchors_of, blocks_of, links_of, pages, prose_lines

PROSE_COLUMNS_MAX = 150
OUTSIDE = ("http://", "https://", "mailto:")


def link_findings(page, text, read):
    """`read(path)`: the text of a page, "" for another file or a folder, None for nothing."""
    for number, target in links_of(text):
        if target.startswith(OUTSIDE):
            continue
        path, _, anchor = unquote(target).partition("#")
        where = resolved(page, path) if path else page
        found = text if not path else read(where)
        if found is None:
            yield number, f"no such file: {target}"
        elif anchor and where.endswith(".md") and anchor not in anchors_of(found):
            yield number, f"no such heading: {target}"


def resolved(page, path):
    """A link's path from the repository's root."""
    parts = page.split("/")[:-1]
    for part in path.rstrip("/").split("/"):
        if part == ".." and parts:
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts)


def line_findings(text):
    """Long lines are hard to read in a terminal and in a difference. Rows of tables cannot be wrapped."""
    for number, line in prose_lines(text):
        if len(line) > PROSE_COLUMNS_MAX and not line.startswith("|"):
            yield number, f"a line of {len(line)} columns, over {PROSE_COLUMNS_MAX}"


def is_marked(block):
    if block.runs() is not None:
        return block.runs() <= RUN_WORDS and (block.language != "python" or "serves" not in block.runs())
    return bool(block.why_not() or (block.language == "python" and block.saved_as()))


def block_findings(page, text):
    for block in blocks_of(page, text):
        if block.language not in LANGUAGES:
            yield block.line, f"a code block's language is one of {', '.join(sorted(LANGUAGES))}: {block.language or 'none'}"
        elif block.language in MARKED_LANGUAGES and not is_marked(block):
            yield block.line, (f"`{block.language}` is followed by `run`, `run: WORDS` of {', '.join(sorted(RUN_WORDS))}, "
                               "`skip: WHY` or, of Python, `save: NAME`")
        elif block.language == "console" and not block.commands():
            yield block.line, "no line begins with \"$ \""
        elif block.language == "python":
            try:
                compile(block.text, block.place, "exec")
            except SyntaxError as error:
                yield block.line + (error.lineno or 0), f"no Python: {error.msg}"
        elif block.language == "json":
            try:
                json.loads(block.text)
            except ValueError as error:
                yield block.line, f"no JSON: {error}"


def self_test():
    other = "# A `b` c, d\n## Twice\n## Twice\n"
    read = {"docs/a.md": other, "docs": ""}.get
    def links(text):
        return [line for line, _ in link_findings("docs/p.md", text, read)]
    assert not links("[x](a.md) [x](a.md#a-b-c-d) [x](a.md#twice-1) [x](../docs/) [y](https://x.y/z)\n# H\n[x](#h) `[x](no.md)`")
    assert links("[x](no.md)\n![x](no.png)\n[x](a.md#twice-2)\n[x](#h)") == [1, 2, 3, 4]
    assert links("```text\n[x](no.md)\n```\n<img alt=\"a\" src=\"no.png\">") == [4]
    def blocks(text):
        return [line for line, _ in block_findings("p.md", text)]
    assert not blocks("```sh run\nls\n```\n```sh skip: needs x\nls\n```\n```console run\n$ ls\na\n```\n```python run: live\nx = 1\n```\n"
                      "```sh run: live, serves\nls\n```\n```python save: x.py\nx = 1\n```\n```python skip: a form\nx\n```")
    for wrong in ("```\nls\n```", "```sh\nls\n```", "```sh skip:\nls\n```", "```console run\nls\n```", "```bash run\nls\n```",
                  "```python run\nx =\n```", "```python\nx = 1\n```", "```python run: serves\nx = 1\n```", "```sh save: x\nls\n```",
                  "```sh run: dry\nls\n```", "```json\n{\n```"):
        assert len(blocks(wrong)) == 1, f"not caught: {wrong}"
    assert [line for line, _ in line_findings("x\n" + "x " * 76 + "\n|" + "x " * 76 + "\n```text\n" + "x " * 76 + "\n```\n")] == [2]
    table = list(blocks_of("p.md", "<!-- commands: run -->\n\n| command | does |\n|---|---|\n| `ls -l` or so | x |\n\ntext\n\n| `no` | x |\n"))
    assert [(block.line, block.text) for block in table] == [(5, "ls -l")], table


def main():
    self_test()
    if "--self-test" in sys.argv[1:]:
        return 0

    def read(path):
        file = ROOT / path
        if path.endswith(".md") and file.is_file():
            return file.read_text()
        return "" if file.exists() else None

    names, wrong = pages(), []
    for page in names:
        text = (ROOT / page).read_text()
        wrong += [f"{page}:{line}: {why}" for line, why in (*link_findings(page, text, read), *block_findings(page, text), *line_findings(text))]
    print("\n".join(wrong))
    print(f"docs: {len(names)} pages, {len(wrong)} findings")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
