# SPDX-License-Identifier: Apache-2.0
"""Calls Docker and compose for the test: runs commands, waits, and reports errors."""
import io
import json
import os
import shutil
import subprocess
import tarfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
POLL_SECONDS = 0.5


class Failure(Exception):
    """A promise that was not kept, in one line."""


def run(command, seconds=120, check=True, **more):
    """Runs a command; its output is text in .stdout. Failure if it does not succeed in time."""
    command = [str(part) for part in command]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, **more)
    except subprocess.TimeoutExpired:
        raise Failure(f"no end within {seconds} s: {' '.join(command)}") from None
    if check and done.returncode != 0:
        tail = (done.stderr or done.stdout).strip()[-600:]
        raise Failure(f"exit code {done.returncode}: {' '.join(command)}\n{tail}")
    return done


def wait_for(what, condition, seconds):
    """The first true value of condition(), called repeatedly until the deadline. The condition is usually the
    state of another process, which sends no notification."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise Failure(f"not within {seconds} s: {what}")
        time.sleep(POLL_SECONDS)


def _builds(client):
    """BuildKit is part of clients before 23, and a plugin of later ones."""
    version = run([client, "--version"], check=False).stdout  # Docker version 20.10.24, build ...
    major = int(version.split("version ")[1].split(".")[0]) if "version " in version else 0
    return 18 <= major < 23 or run([client, "buildx", "version"], check=False).returncode == 0


class Docker:
    """The Docker client; every method runs one command."""

    def __init__(self):
        candidates = [os.environ.get("DOCKER", ""), shutil.which("docker") or "", "/usr/bin/docker"]
        able = [c for c in candidates if c and Path(c).exists() and _builds(c)]
        if not able:
            raise Failure("no docker client that can build with BuildKit; install docker.io or buildx")
        self.client = able[0]

    def __call__(self, *arguments, **more):
        return run([self.client, *arguments], **more)

    def inspect(self, what, template, kind="container"):
        return self(kind, "inspect", "--format", template, what).stdout.strip()

    def health(self, container):
        return self.inspect(container, "{{.State.Health.Status}}")

    def exit_code(self, container):
        """None while it runs."""
        running, code = self.inspect(container, "{{.State.Running}} {{.State.ExitCode}}").split()
        return None if running == "true" else int(code)

    def megabytes(self, image):
        return int(self.inspect(image, "{{.Size}}", kind="image")) / 1e6

    def await_healthy(self, container, seconds):
        def healthy():
            if (code := self.exit_code(container)) is not None:
                log = self("logs", "--tail", "5", container)
                raise Failure(f"{container} ended with {code}: {log.stdout}{log.stderr}")
            return self.health(container) == "healthy"
        wait_for(f"{container} healthy", healthy, seconds)

    def read(self, container, path):
        """A file in a container, running or not; None if it does not exist."""
        done = subprocess.run([self.client, "cp", f"{container}:{path}", "-"], capture_output=True, check=False)
        if done.returncode != 0:
            return None
        with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
            return archive.extractfile(archive.getmembers()[0]).read()

    def crash(self, container):
        """Sends SIGKILL from outside, as the kernel's out-of-memory killer does. `docker kill` would count as an
        operator's stop, after which Docker restarts nothing."""
        os.kill(int(self.inspect(container, "{{.State.Pid}}")), 9)


class Compose:
    """One project of deploy/compose/docker-compose.yml, unchanged."""

    def __init__(self, docker, project, environment):
        self.docker = docker
        plugin = run([docker.client, "compose", "version"], check=False).returncode == 0
        self.command = [docker.client, "compose"] if plugin else [shutil.which("docker-compose")]
        self.command += ["-f", ROOT / "deploy/compose/docker-compose.yml"]
        self.environment = {**os.environ, "COMPOSE_PROJECT_NAME": project, **environment}

    def __call__(self, *arguments, seconds=300, check=True, **environment):
        return run([*self.command, *arguments], seconds, check, env={**self.environment, **environment})

    def containers(self, service):
        return self("ps", "-a", "-q", service).stdout.split()

    def container(self, service):
        found = self.containers(service)
        if len(found) != 1:
            raise Failure(f"expected one container of {service}, found {len(found)}")
        return found[0]

    def metrics(self, run_name):
        """metrics.jsonl so far, as a list of dictionaries."""
        text = self.docker.read(self.container("learner"), f"/runs/{run_name}/metrics.jsonl") or b""
        whole = text[:text.rfind(b"\n") + 1].decode()
        return [json.loads(line) for line in whole.splitlines()]
