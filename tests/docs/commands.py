#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Executes the commands of the documentation, page by page, away from the repository.

    tests/docs/commands.py BUILD [PAGE...]

BUILD/bin is first in PATH. The working directory is a new one: configs/, models/ and python/ in it lead to the
repository, runs/digits is a short run that has ended, runs/a and runs/b are copies of it, and the files that commands read
(RUN.yaml, THEIRS.yaml, weights.pth, a.png) are there. All runs are short by the environment. The blocks of a page run
in one shell, as a reader types them; its background processes end with the page. Commands that are skipped are
checked all the same: `oxbow` must know each command and each flag that a page names. Last, a run is trained, measured and
sampled from an empty directory, by absolute paths. The last line is `docs commands: N passed, M failed`.
"""
import os
import re
import shlex
import shutil
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


FOREIGN = "src/config/import/testdata/sd3_5_geneval_cps.yaml"
SAVED = re.compile(r"Save this as `([\w.]+)`[^`]*```python\n(.*?)```", re.DOTALL)
FAR_AWAY = """oxbow train {0}/configs/digits.yaml --no-progress
oxbow eval --run runs/digits --images 8
oxbow sample --run runs/digits --prompt 'text 473'
oxbow eval --model {0}/models/digits --images 8"""


def python():
    """A Python that has the packages of python/, if there is one."""
    for one in (os.environ.get("OXBOW_PYTHON", ""), ROOT / ".deps/python-newest/bin/python", sys.executable):
        if one and shutil.which(one) and not subprocess.run([one, "-c", "import google.protobuf, grpc, numpy, PIL"],
                                                            capture_output=True, check=False).returncode:
            return str(one)
    return None


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
    (folder / "RUN.yaml").write_text("recipe: digits-op-grpo-diverse\nrun: {name: other}\n")
    (folder / "THEIRS.yaml").write_text((ROOT / FOREIGN).read_text())
    shutil.copy(ROOT / "tests/golden/checkpoints/mlp.pt", folder / "weights.pth")
    one = folder / "one"
    one.mkdir()
    (one / "set.yaml").write_text("name: one\nprompts: one/prompts.txt\nrewards: [{name: digits_ocr}]\n")
    (one / "prompts.txt").write_text("text 473\n")
    code, output = run_script(
        "oxbow train configs/digits.yaml --no-progress; cp -r runs/digits runs/a; cp -r runs/digits runs/b\n"
        "oxbow eval --run runs/digits --set one/set.yaml --export-images one/out\n"
        "cp one/out/*/samples/*.png a.png; cp a.png picture.png", folder, build)
    if code:
        sys.exit(f"the run that the pages speak of failed:\n{output}")


def far_away(build):
    """None, or what went wrong from a directory without links."""
    with tempfile.TemporaryDirectory() as name:
        code, output = run_script(FAR_AWAY.format(ROOT), name, build)
    return None if code == 0 else f"from another directory: exit code {code}\n" + "\n".join(output.splitlines()[-15:])


def add_saved(text, folder, interpreter):
    """The files that a page tells its reader to save, and the programs of the Python package."""
    for name, content in SAVED.findall(text):
        (folder / name).write_text(content)
    if interpreter:
        program = folder / "bin/oxbow-reward"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT}/python exec {interpreter} -m oxbow.reward.command "$@"\n')
        program.chmod(0o755)


def script_of(blocks):
    """One shell for all blocks. At its end background processes are stopped, so that their output ends."""
    parts = ["PATH=$PWD/bin:$PATH", "trap 'jobs -p | xargs -r kill 2>/dev/null || true; wait || true' EXIT"]
    for block in blocks:
        parts += [f"echo '@@ {block.place}'", block.commands()]
    return "\n".join(parts)


def execute(page, text, blocks, prepared, build, interpreter):
    """None, or what went wrong."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run(["cp", "-a", f"{prepared}/.", folder], check=True)
        add_saved(text, folder, interpreter)
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
    interpreter = python()
    runs = {"run", "run: python"} if interpreter else {"run"}
    for one in (one for page in wanted for one in blocks[page] if one.marker not in runs):
        why = one.marker.removeprefix("skip:").strip()
        print(f"skip  {one.place}: {'no Python here has grpcio, numpy and Pillow' if one.marker == 'run: python' else why}")
    runnable = {page: [one for one in found if one.marker in runs] for page, found in blocks.items()}
    runnable = {page: found for page, found in runnable.items() if found}
    with tempfile.TemporaryDirectory() as prepared, ThreadPoolExecutor(2) as pool:
        prepare(Path(prepared), build)
        away = pool.submit(far_away, build)
        results = pool.map(lambda page: execute(page, texts[page], runnable[page], prepared, build, interpreter), runnable)
        for page, wrong in zip(runnable, results):
            print(f"FAIL  {wrong}" if wrong else f"ok    {page}: {len(runnable[page])} blocks")
            passed, failed = passed + (not wrong), failed + bool(wrong)
        wrong = away.result()
        print(f"FAIL  {wrong}" if wrong else "ok    from another directory")
        passed, failed = passed + (not wrong), failed + bool(wrong)
    print(f"docs commands: {passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
