#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Executes the commands of the documentation, page by page, away from the repository.

    tests/docs/commands.py BUILD [PAGE...]

BUILD/bin is first in PATH. The working directory is a new one: configs/, models/ and python/ in it lead to the
repository, and runs/digits is a short run that has ended. All runs are short by the environment. The blocks of a page run
in one shell, as a reader types them; its background processes end with the page. Commands that are skipped are
checked all the same: `oxbow` must know each command and each flag that a page names. The last line is
`docs commands: N passed, M failed`.
"""
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
from docs_pages import CODE, COMMAND_LANGUAGES, blocks_of, pages, prose_lines  # noqa: E402

PATIENCE = 300  # Seconds for a page.
SHORT = {"OXBOW__RUN__STEPS": "12", "OXBOW__EVAL__IMAGES": "8", "OXBOW__EVAL__GRID_IMAGES": "8",
         "OXBOW__BATCH__GROUPS": "4", "OMP_NUM_THREADS": "1"}
PROGRAMS = ("oxbow", "learner", "rollout_worker", "replay_buffer", "reward_server")


def environment(build):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OXBOW_")}
    return {**clean, **SHORT, "PATH": f"{build / 'bin'}:{os.environ['PATH']}"}


def run_script(script, folder, build):
    """(exit code, output). What the script left behind in its process group ends with it."""
    with subprocess.Popen(["bash", "-euo", "pipefail", "-c", script], cwd=folder, env=environment(build),
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          start_new_session=True, text=True) as child:
        timer = None
        try:
            timer = threading.Timer(PATIENCE, lambda: os.killpg(child.pid, signal.SIGKILL))
            timer.start()
            output = child.stdout.read()
            return child.wait(), output
        finally:
            timer.cancel()


def prepare(folder, build):
    for name in ("configs", "models", "python", "tools", "docs", "proto"):
        (folder / name).symlink_to(ROOT / name)
    code, output = run_script("oxbow train configs/digits.yaml --no-progress", folder, build)
    if code:
        sys.exit(f"the run that the pages speak of failed:\n{output}")


def script_of(blocks):
    """One shell for all blocks. At its end background processes are stopped, so that their output ends."""
    parts = ["trap 'jobs -p | xargs -r kill 2>/dev/null || true; wait || true' EXIT"]
    for block in blocks:
        parts += [f"echo '@@ {block.place}'", block.commands()]
    return "\n".join(parts)


def execute(page, blocks, prepared, build):
    """None, or what went wrong."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run(["cp", "-a", f"{prepared}/.", folder], check=True)
        code, output = run_script(script_of(blocks), folder, build)
    if code == 0:
        return None
    place = re.findall(r"^@@ (.*)$", output, re.MULTILINE)
    return f"{place[-1] if place else page}: exit code {code}\n" + "\n".join(output.splitlines()[-15:])


class Help:
    """The flags of each subcommand, as the binaries print them."""

    def __init__(self, build):
        self._build, self._kept = build, {}

    def of(self, words):
        key = tuple(words)
        if key not in self._kept:
            done = subprocess.run([self._build / "bin" / words[0], *words[1:], "--help"], capture_output=True, text=True,
                                  env=environment(self._build), timeout=PATIENCE, check=False)
            self._kept[key] = done.stdout if done.returncode == 0 else None
        return self._kept[key]


def flag_findings(command, helps):
    """What a command line of one of the programs says that the program does not know."""
    try:
        words = shlex.split(command.replace("\\\n", " "), comments=True)
    except ValueError:
        return
    while words and re.fullmatch(r"\w+=\S*", words[0]):
        words = words[1:]  # Variables in front.
    if not words or words[0] not in PROGRAMS or helps.of(words[:1]) is None:
        return
    subcommand = words[:1]
    for word in words[1:]:
        if not re.fullmatch(r"[a-z][a-z-]*", word) or not re.search(rf"^  {re.escape(word)}\b", helps.of(subcommand), re.MULTILINE):
            break
        subcommand = [*subcommand, word]
    if words[0] == "oxbow" and subcommand == ["oxbow"] and words[1:] and not words[1].startswith("-"):
        yield f"oxbow has no command {words[1]}"
        return
    for word in words[len(subcommand):]:
        flag = re.match(r"--[a-z][a-z0-9-]*", word)
        if flag and not re.search(rf"{flag.group(0)}\b(?!-)", helps.of(subcommand) or ""):
            yield f"{' '.join(subcommand)} has no flag {flag.group(0)}"


def command_lines(text):
    """Command lines of a shell script, without pipes and the like."""
    for line in text.replace("\\\n", " ").splitlines():
        yield from re.split(r"\s(?:&&|\|\||\||;|&)(?:\s|$)", line.strip().removeprefix("$ "))


def names_of(page, text, blocks):
    """(place, command) of everything on a page that looks like a command of oxbow."""
    for block in blocks:
        for line in command_lines(block.commands()):
            yield block.place, line
    for number, line in prose_lines(text):
        for found in CODE.finditer(line):
            yield f"{page}:{number}", found.group(2)


def main(arguments):
    build = Path(arguments[0]).resolve()
    wanted = arguments[1:] or pages()
    texts = {page: (ROOT / page).read_text() for page in wanted}
    blocks = {page: [one for one in blocks_of(page, text) if one.language in COMMAND_LANGUAGES] for page, text in texts.items()}
    passed, failed, helps = 0, 0, Help(build)
    for page, text in texts.items():
        for place, command in names_of(page, text, blocks[page]):
            for why in flag_findings(command, helps):
                print(f"FAIL  {place}: {why}: {command}")
                failed += 1
    for one in (one for page in wanted for one in blocks[page] if one.marker != "run"):
        print(f"skip  {one.place}: {one.marker.removeprefix('skip:').strip()}")
    runnable = {page: [one for one in found if one.marker == "run"] for page, found in blocks.items()}
    runnable = {page: found for page, found in runnable.items() if found}
    with tempfile.TemporaryDirectory() as prepared, ThreadPoolExecutor(2) as pool:
        prepare(Path(prepared), build)
        results = pool.map(lambda page: execute(page, runnable[page], prepared, build), runnable)
        for page, wrong in zip(runnable, results):
            print(f"FAIL  {wrong}" if wrong else f"ok    {page}: {len(runnable[page])} blocks")
            passed, failed = passed + (not wrong), failed + bool(wrong)
    print(f"docs commands: {passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
