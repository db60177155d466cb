#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Executes the commands and the Python of the documentation, page by page, away from the repository.

    tests/docs/commands.py BUILD [PAGE...]
    tests/docs/commands.py BUILD --python      only the pages with Python that runs; without its packages this fails

BUILD/bin is first in PATH. The working directory is a new one: configs/, models/ and python/ in it lead to the
repository, runs/digits is a short run that has ended, runs/a and runs/b are copies of it, and the files that commands read
(RUN.yaml, run.yaml, THEIRS.yaml, weights.pth, a.png, b.png) are there. All runs are short by the environment. The blocks of
a page run in one shell, as a reader types them; its background processes end with the page. What the words behind a
block's `run:` mean is in tools/docs_pages.py. Two pages run at a time, so pages with fixed ports have different ones.
Commands that are skipped are checked all the same: `oxbow` must know each command and each flag that a page names. Last, a
run is trained, measured and sampled from an empty directory, by absolute paths. The last line is
`docs commands: N passed, M failed`.
"""
# Promise: Code blocks of the pages run. Each command block of README and docs, and each block of
# Python, is executed by a test on its page's files, or says why not. Services are started, must say
# something, and must end in order when told to. Every `oxbow` command and flag that a page names
# exists.
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
from docs_pages import CODE, MARKED_LANGUAGES, blocks_of, pages, prose_lines  # noqa: E402

PATIENCE = 300  # Seconds for a page.
SHORT = {"OXBOW__RUN__STEPS": "12", "OXBOW__EVAL__IMAGES": "8", "OXBOW__EVAL__GRID_IMAGES": "8",
         "OXBOW__BATCH__GROUPS": "4", "OMP_NUM_THREADS": "1"}
PROGRAMS = ("oxbow", "learner", "rollout_worker", "replay_buffer", "reward_server")


FOREIGN = "tests/golden/importers/sd3_5_geneval_cps.yaml"
PACKAGES = ("google.protobuf", "grpc", "numpy", "PIL", "pandas", "yaml")
FAR_AWAY = """oxbow train {0}/configs/digits.yaml --no-progress
oxbow eval --run runs/digits --images 8
oxbow sample --run runs/digits --prompt 'text 473'
oxbow eval --model {0}/models/digits --images 8"""

# Reads names of files and executes them, all in one place.
INTERPRETER = """
import sys, traceback
names = {"__name__": "__main__"}
for line in sys.stdin:
    try:
        exec(compile(open(line.strip()).read(), line.strip(), "exec"), names)
        print("@done", flush=True)
    except Exception:
        traceback.print_exc()
        print("@failed", flush=True)
"""

# Shell functions. `begin` lets runs/digits go on and returns when it trains; `end` stops it, and leaves the run as it was
# before. `serves COMMAND...`: the command says something, goes on until it is told to end (or until its run ends), and ends
# with 0. `executes FILE`: in Python.
FUNCTIONS = """
begin() {
  cp -a runs/digits runs/before
  exec 8< <(exec oxbow train configs/digits.yaml --resume --set run.steps=100000 2>&1); LIVE=$!
  grep -m1 '^step' <&8 || { echo 'the live run ended'; return 1; }
}
end() {
  [ -n "$LIVE" ] || return 0
  kill -TERM $LIVE || true
  LIVE=
  cat <&8 >/dev/null
  rm -rf runs/digits && mv runs/before runs/digits
}
serves() {
  local it
  exec 7< <(exec timeout --foreground 60 "$@" 2>&1); it=$!
  IFS= read -r <&7 || { echo "it said nothing: $*"; return 1; }
  echo "$REPLY"
  if [ -n "$LIVE" ]; then end; else kill -TERM $it || true; fi
  cat <&7
  wait $it
}
executes() {
  [ -n "${PYTHON_PID:-}" ] || coproc PYTHON { exec python interpreter.py; }
  echo "$1" >&"${PYTHON[1]}"
  while IFS= read -r <&"${PYTHON[0]}"; do
    case $REPLY in @done) return 0 ;; @failed) return 1 ;; *) echo "$REPLY" ;; esac
  done
  return 1
}
LIVE=
"""


def python():
    """A Python that has the packages of python/, if there is one."""
    for one in (os.environ.get("OXBOW_PYTHON", ""), ROOT / ".deps/python-newest/bin/python", sys.executable):
        if one and shutil.which(one) and not subprocess.run([one, "-c", f"import {', '.join(PACKAGES)}"],
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
    (folder / "run.yaml").write_text("recipe: digits-flux\nprompts: {cache: cache}\n")
    (folder / "THEIRS.yaml").write_text((ROOT / FOREIGN).read_text())
    shutil.copy(ROOT / "tests/golden/checkpoints/mlp.pt", folder / "weights.pth")
    one = folder / "one"
    one.mkdir()
    (one / "set.yaml").write_text("name: one\nprompts: one/prompts.txt\nrewards: [{name: digits_ocr}]\n")
    (one / "prompts.txt").write_text("text 473\n")
    code, output = run_script(
        "oxbow train configs/digits.yaml --no-progress; cp -r runs/digits runs/a; cp -r runs/digits runs/b\n"
        "oxbow eval --run runs/digits --set one/set.yaml --export-images one/out\n"
        "cp one/out/*/samples/*.png a.png; cp a.png picture.png; cp a.png b.png", folder, build)
    if code:
        sys.exit(f"the run that the pages speak of failed:\n{output}")


def far_away(build):
    """None, or what went wrong from a directory without links."""
    with tempfile.TemporaryDirectory() as name:
        code, output = run_script(FAR_AWAY.format(ROOT), name, build)
    return None if code == 0 else f"from another directory: exit code {code}\n" + "\n".join(output.splitlines()[-15:])


def add_saved(blocks, folder, interpreter):
    """The files that a page tells its reader to save, and the programs of the Python package."""
    for block in blocks:
        if block.saved_as():
            (folder / block.saved_as()).write_text(block.text + "\n")
    if not interpreter:
        return
    (folder / "interpreter.py").write_text(INTERPRETER)
    (folder / "bin").mkdir()
    for name, arguments in (("python", ""), ("oxbow-reward", "-m oxbow.reward.command")):
        program = folder / "bin" / name
        program.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT}/python exec {interpreter} {arguments} "$@"\n')
        program.chmod(0o755)


def script_of(blocks):
    """One shell for all blocks. At its end background processes are stopped, so that their output ends."""
    parts = ["PATH=$PWD/bin:$PATH", FUNCTIONS,
             "trap 'end; jobs -p | xargs -r kill 2>/dev/null || true; wait || true' EXIT"]
    for number, block in enumerate(blocks):
        words = block.runs()
        parts += [f"echo '@@ {block.place}'", *(["begin"] if "live" in words else [])]
        if block.language == "python":
            parts.append(f"cat >block{number}.py <<'@@'\n{block.text}\n@@\nexecutes block{number}.py")
        elif "serves" in words:
            parts += [f"serves {line}" for line in block.commands().replace("\\\n", " ").splitlines() if line.strip()]
        else:
            parts.append(block.commands())
        parts += ["end"] if "live" in words else []
    return "\n".join(parts)


def execute(page, blocks, runnable, prepared, build, interpreter):
    """(what went wrong, or None; seconds)."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run(["cp", "-a", f"{prepared}/.", folder], check=True)
        add_saved(blocks, folder, interpreter)
        code, output = run_script(script_of(runnable), folder, build)
    seconds = time.monotonic() - begin
    if code == 0:
        return None, seconds
    place = re.findall(r"^@@ (.*)$", output, re.MULTILINE)
    return f"{place[-1] if place else page}: exit code {code}\n" + "\n".join(output.splitlines()[-15:]), seconds


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
    """The parts of a command line that the program does not know."""
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
        for line in command_lines(block.commands()) if block.language != "python" else ():
            yield block.place, line
    for number, line in prose_lines(text):
        for found in CODE.finditer(line):
            yield f"{page}:{number}", found.group(2)


def main(arguments):
    build = Path(arguments[0]).resolve()
    only_python = arguments[1:] == ["--python"]
    wanted = pages() if only_python else arguments[1:] or pages()
    texts = {page: (ROOT / page).read_text() for page in wanted}
    blocks = {page: [one for one in blocks_of(page, text) if one.language in MARKED_LANGUAGES] for page, text in texts.items()}
    if only_python:
        blocks = {page: found for page, found in blocks.items() if any("python" in (one.runs() or ()) for one in found)}
    passed, failed, helps = 0, 0, Help(build)
    for page, found in blocks.items():
        for place, command in names_of(page, texts[page], found):
            for why in flag_findings(command, helps):
                print(f"FAIL  {place}: {why}: {command}")
                failed += 1
    interpreter = python()
    if only_python and not interpreter:
        sys.exit(f"no Python here has {', '.join(PACKAGES)}")
    runnable = {page: [one for one in found if one.runs() is not None and (interpreter or "python" not in one.runs())]
                for page, found in blocks.items()}
    for one in (one for page, found in blocks.items() for one in found if one not in runnable[page] and not one.saved_as()):
        print(f"skip  {one.place}: {one.why_not() or 'no Python here has ' + ', '.join(PACKAGES)}")
    runnable = {page: found for page, found in runnable.items() if found}
    with tempfile.TemporaryDirectory() as prepared, ThreadPoolExecutor(2) as pool:
        prepare(Path(prepared), build)
        away = None if only_python else pool.submit(far_away, build)
        results = pool.map(lambda page: execute(page, blocks[page], runnable[page], prepared, build, interpreter), runnable)
        for page, (wrong, seconds) in zip(runnable, results):
            print(f"FAIL  {wrong}" if wrong else f"ok    {page}: {len(runnable[page])} blocks, {seconds:.0f} s")
            passed, failed = passed + (not wrong), failed + bool(wrong)
        if away:
            wrong = away.result()
            print(f"FAIL  {wrong}" if wrong else "ok    from another directory")
            passed, failed = passed + (not wrong), failed + bool(wrong)
    print(f"docs commands: {passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
