#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Gathers the pages of the documentation's site in build/docs/pages: every page of Markdown, and every file that a page
links to, at its place in the repository. Links to folders lead to their README.md; where there is none, the text stays
and the link goes. Pages of APPENDED get what a tool knows. mkdocs.yml makes the site of them.
"""
import re
import shutil
import sys

import config_reference
import guarantees
import metric_names
from check_docs import OUTSIDE, resolved
from docs_pages import CODE, LINK, ROOT, links_of, pages, prose_lines

PAGES = ROOT / "build/docs/pages"
APPENDED = {"docs/guarantees.md": guarantees.page, "docs/config_reference.md": config_reference.page, "docs/formats.md": metric_names.page}


def target_of(page, link):
    """The target of a link of the site: the same link, a folder's README.md, or None for a folder without one."""
    path, mark, anchor = link.partition("#")
    if link.startswith(OUTSIDE) or not path:
        return link
    where = ROOT / resolved(page, path)
    if not where.is_dir():
        return link
    return f"{path.rstrip('/')}/README.md{mark}{anchor}" if (where / "README.md").exists() else None


def rewritten(page, text):
    lines = text.splitlines()

    def link(found):
        target = target_of(page, found.group(1))
        whole = found.group(0)
        return whole[1:whole.rindex("](")] if target is None else whole.replace(f"]({found.group(1)}", f"]({target}")

    for number, line in prose_lines(text):
        spans = [found.span() for found in CODE.finditer(line)]
        lines[number - 1] = LINK.sub(
            lambda found: found.group(0) if any(a < found.start() < b for a, b in spans) else link(found), line)
    # The site's highlighter knows languages; what becomes of a block is for the tests.
    return "\n".join(re.sub(r"^(\s*```\w+) (?:run|save|skip)\b.*$", r"\1", line) for line in lines) + "\n"


def main():
    if PAGES.exists():
        shutil.rmtree(PAGES)
    names = pages()
    for page in names:
        text = (ROOT / page).read_text() + APPENDED.get(page, str)()
        place = PAGES / page
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(rewritten(page, text))
        for _, link in links_of(text):
            path = link.partition("#")[0]
            if link.startswith(OUTSIDE) or not path:
                continue
            where = resolved(page, path)
            if (ROOT / where).is_file() and not where.endswith(".md"):
                (PAGES / where).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / where, PAGES / where)
    print(f"docs site: {len(names)} pages in {PAGES.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
