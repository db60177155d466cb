# SPDX-License-Identifier: Apache-2.0
"""A stranger's machine: a working directory, a Hub cache, a proxy that leads nowhere, their files and their reward server."""
import os
import shutil
import socket
import subprocess
from pathlib import Path

import adapters
import models
import prompts
from terminal import Terminal

ROOT = Path(__file__).resolve().parents[2]
HELD_OUT = 64
COMMIT = "0123456789abcdef0123456789abcdef01234567"
DEAD_PROXY = "http://127.0.0.1:9"
# `hf download ID`: it has the network that this machine does not have.
FAKE_HF = """#!/bin/sh
[ "$1" = download ] || exit 2
echo "$2" >> "{folder}/fetched"
at="$HF_HOME/hub/models--$(echo "$2" | sed 's,/,--,')"
mkdir -p "$at/refs" "$at/snapshots" && cp -r "{folder}/published/$2" "$at/snapshots/{commit}" && printf {commit} > "$at/refs/main"
echo "$at/snapshots/{commit}"
"""


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class World:
    """`without` may have "proxy" and "lora": what is left out, to see what lies behind its fault."""

    def __init__(self, build, folder, python, without=()):
        self.folder, self.python, self.without = folder, python, without
        self.oxbow_program = build / "bin/oxbow"
        self.hub = folder / "hf/hub"
        (folder / "bin").mkdir()
        hf = folder / "bin/hf"
        hf.write_text(FAKE_HF.format(folder=folder, commit=COMMIT))
        hf.chmod(0o755)
        proxies = {} if "proxy" in without else {
            name: DEAD_PROXY for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "grpc_proxy")}
        clean = {name: value for name, value in os.environ.items()
                 if not name.startswith(("OXBOW_", "HF_")) and name.lower() not in ("no_proxy", "all_proxy")}
        self.environment = clean | proxies | {
            "HF_HOME": str(folder / "hf"), "HOME": str(folder), "TERM": "xterm", "LC_ALL": "C.UTF-8", "OMP_NUM_THREADS": "1",
            "PATH": f"{folder / 'bin'}:{build / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "python")}
        self._write_files()

    def _write_files(self):
        for name in models.NAMES:
            models.save(name, self.model(name))
            adapters.save(name, self.model(name), self.folder / f"{name}_lora.safetensors")
        for file, count, seed in (("train", 32, 1), ("eval", HELD_OUT, 2)):
            (self.folder / f"{file}.txt").write_text("\n".join(prompts.prompts(count, seed)) + "\n", encoding="utf-8")

    def model(self, name):
        return self.folder / f"published/somebody/narrow-{name}"

    def put_into_hub(self, name):
        """As `hf download` does."""
        subprocess.run([self.folder / "bin/hf", "download", f"somebody/narrow-{name}"], env=self.environment, check=True,
                       stdout=subprocess.DEVNULL)

    def prompts(self, file, count=None):
        return (self.folder / f"{file}.txt").read_text(encoding="utf-8").splitlines()[:count]

    def serve_reward(self):
        """Starts the stranger's reward server. Its address, and the process."""
        port = free_port()
        command = [self.python, Path(__file__).with_name("plain_reward_server.py"), str(port)]
        child = subprocess.Popen(command, env=self.environment, stdout=subprocess.PIPE, text=True)
        assert child.stdout.readline() == "serving\n", "the reward server did not start"
        return f"127.0.0.1:{port}", child

    def start(self, *words, **environment):
        return Terminal([self.oxbow_program, *words], self.environment | environment, self.folder)

    def oxbow(self, *words, **environment):
        """A command of oxbow, at its end."""
        return self.start(*words, **environment).wait()

    def run_python(self, *words, patience=120):
        """(exit code, output) of the Python that has the trackers' packages."""
        done = subprocess.run([self.python, *map(str, words)], env=self.environment, cwd=self.folder, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=patience, check=False)
        return done.returncode, done.stdout

    def move(self, run, to):
        (self.folder / to).parent.mkdir(parents=True, exist_ok=True)
        shutil.move(self.folder / run, self.folder / to)
