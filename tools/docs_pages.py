# SPDX-License-Identifier: Apache-2.0
"""Pages of Markdown: their code blocks, links and anchors, as GitHub reads them.

The first word behind a fence is the language. Blocks of `sh`, `console` and `python` also say what becomes of them:

    ```sh run                     the documentation's test executes it
    ```sh run: python            it does where Python has the packages of python/ (PACKAGES in tests/docs/commands.py)
    ```sh run: serves            each command goes on until it is stopped: it must say something, and end with 0 when told to
    ```sh run: live              it does while runs/digits is a live run; a command that serves must end with the run
    ```sh skip: needs a GPU       it does not, and says why
    ```console run                lines that begin with "$ " are commands, the others what they print
    ```python run                as `sh run: python`; it sees the names that earlier ones of the page have made
    ```python save: x.py          the reader saves it under this name; commands of the page use it

Words behind `run:` may be joined by commas. A comment before a table makes commands of the code in its first column:

    <!-- commands: run -->
    <!-- commands: skip: needs Docker -->

A row may say otherwise: <!-- skip: needs a GPU --> or <!-- run: serves --> in it.
"""
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COMMAND_LANGUAGES = ("sh", "console")
MARKED_LANGUAGES = (*COMMAND_LANGUAGES, "python")
RUN_WORDS = {"python", "serves", "live"}
LANGUAGES = {*COMMAND_LANGUAGES, "text", "yaml", "json", "python", "cpp", "proto", "html"}
ROW_MARK = re.compile(r"<!-- (run(?:: .*?)?|skip: .*?) -->")
FENCE = re.compile(r"^\s*(```+|~~~+)\s*(.*?)\s*$")
TABLE_MARK = re.compile(r"^<!-- commands: (.*?) -->$")
LINK = re.compile(r"(?<!\\)\[(?:[^\]\[]|\[[^\]]*\])*\]\(([^()\s]*(?:\([^()\s]*\)[^()\s]*)*)(?:\s+\"[^\"]*\")?\)")
IMAGE_SOURCE = re.compile(r"<img[^>]*\ssrc=\"([^\"]+)\"")
HEADING = re.compile(r"^(#{1,6})\s+(.*?)\s*#*$")
CODE = re.compile(r"(`+)(.+?)\1")


@dataclass(frozen=True)
class Block:
    page: str
    line: int  # The line of its fence, or of its row of a table.
    language: str
    marker: str  # "run", "skip: WHY" or whatever else stands there.
    text: str

    @property
    def place(self):
        return f"{self.page}:{self.line}"

    def runs(self):
        """How the test executes it, as words of RUN_WORDS; None if it does not."""
        head, _, tail = self.marker.partition(":")
        if head != "run":
            return None
        words = {word.strip() for word in tail.split(",")} if tail else set()
        return words | {"python"} if self.language == "python" else words

    def saved_as(self):
        """The name under which the reader saves it; "" if the page does not say so."""
        return self.marker.removeprefix("save:").strip() if self.marker.startswith("save:") else ""

    def why_not(self):
        """Why the test does not execute it; "" if the page does not say."""
        return self.marker.removeprefix("skip:").strip() if self.marker.startswith("skip:") else ""

    def commands(self):
        """The lines that a shell executes."""
        if self.language != "console":
            return self.text
        return "\n".join(line[2:] for line in self.text.splitlines() if line.startswith("$ "))


def pages():
    """The Markdown files of the repository, by path."""
    out = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "*.md"], cwd=ROOT, check=True,
                         capture_output=True, text=True).stdout
    return sorted(name for name in out.splitlines() if (ROOT / name).is_file())


def blocks_of(page, text):
    """All fenced blocks, and the commands of marked tables, in order."""
    fence, table = None, None
    for number, line in enumerate(text.splitlines(), 1):
        found = FENCE.match(line)
        if fence:
            if found and found.group(1).startswith(fence[0]) and not found.group(2):
                yield Block(page, fence[1], *fence[2], "\n".join(fence[3]))
                fence = None
            else:
                fence[3].append(line)
        elif found:
            language, _, marker = found.group(2).partition(" ")
            fence = (found.group(1), number, (language, marker), [])
        elif TABLE_MARK.match(line):
            table = TABLE_MARK.match(line).group(1)
        elif table and line.startswith("|"):
            code = CODE.match(line[1:].strip())
            if code:
                mark = ROW_MARK.search(line)
                yield Block(page, number, "sh", mark.group(1) if mark else table, code.group(2).replace("\\|", "|"))
        elif table and line.strip():
            table = None


def prose_lines(text):
    """(number, line) outside of fenced blocks."""
    fence = None
    for number, line in enumerate(text.splitlines(), 1):
        found = FENCE.match(line)
        if fence:
            if found and found.group(1).startswith(fence) and not found.group(2):
                fence = None
        elif found:
            fence = found.group(1)
        else:
            yield number, line


def links_of(text):
    """(line, target) of each link and picture."""
    for number, line in prose_lines(text):
        plain = CODE.sub(lambda found: "`" * len(found.group(0)), line)
        for found in (*LINK.finditer(plain), *IMAGE_SOURCE.finditer(plain)):
            yield number, found.group(1)


def anchors_of(text):
    """The anchors of a page's headings."""
    seen, anchors = {}, set()
    for _, line in prose_lines(text):
        found = HEADING.match(line)
        if not found:
            continue
        title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", found.group(2)).replace("`", "")
        slug = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        count = seen.get(slug, 0)
        seen[slug] = count + 1
        anchors.add(f"{slug}-{count}" if count else slug)
    return anchors
