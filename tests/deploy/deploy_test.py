#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds the images and trains under compose, in the installed Docker or in one that it sets up (README.md).

Prints one line per promise and a summary; exits 1 if one was not kept. `make deploy-test` runs it.
"""
import argparse
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import image_checks
from compose_run import Scene
from engine import Compose, Docker, Failure, ROOT, run

BASE = "oxbow/test-base:bookworm"
PROMETHEUS = "oxbow/test-prometheus"
PROJECT = "oxbow-deploy-test"
TORCH_BINARIES = ["oxbow_models", "learner", "rollout_worker", "reward_server"]
# The same run with replay, which uses the buffer.
REPLAY_RUN = "configs/recipes/digits-op-grpo.yaml"


class Ledger:
    """One line per promise."""

    def __init__(self):
        self.passed, self.failed, self.start = 0, 0, time.monotonic()

    def note(self, text):
        print(f"      {text}", flush=True)

    def check(self, promise, action):
        """Records a promise; returns False if it was not kept."""
        start = time.monotonic()
        try:
            action()
        except Failure as failure:
            self.failed += 1
            print(f"FAIL  {promise}: {failure}", flush=True)
            return False
        self.passed += 1
        print(f"ok    {promise} ({time.monotonic() - start:.1f} s)", flush=True)
        return True

    def sum(self):
        """Prints the sum; returns the exit code."""
        print(f"deploy-test: {self.passed} passed, {self.failed} failed in {time.monotonic() - self.start:.0f} s")
        return 1 if self.failed else 0


def fetch_wheel(index):
    """Downloads the CPU wheel of LibTorch to where the build looks for it. Uses this machine's pip, because the build
    does not know its settings."""
    wheels = ROOT / "docker/wheels"
    if not list(wheels.glob("torch-*.whl")):
        script = (ROOT / "tools/install_deps.sh").read_text()
        version = re.search(r"\.deps/venv \] && torch_version=([0-9.]+)", script).group(1)
        source = ["--index-url", index] if index else []
        run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", wheels, *source, f"torch=={version}"], 900)


def fetch_cuda_wheels():
    """Downloads CUDA's LibTorch and what it depends on, 2.6 GB, by hash."""
    wheels = ROOT / "docker/wheels"
    script = (ROOT / "tools/install_deps.sh").read_text()
    version = re.search(r"\|\| torch_version=([0-9.]+)", script).group(1)
    for pins in (f"torch-{version}.txt", f"torch-{version}-cuda.txt"):
        run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--require-hashes", "-d", wheels, "-r",
             ROOT / "tools/requirements" / pins], 1800)


def build(docker, image, ledger):
    tag = f"oxbow/{image.replace('-', ':')}"
    start = time.monotonic()
    flags = ["--network", "host", "--build-arg", f"BASE_IMAGE={BASE}", "--quiet"]
    run(["nice", ROOT / "docker/build.sh", image, "--", *flags], 7200, env={**os.environ, "DOCKER": docker.client})
    ledger.note(f"{tag}: {docker.megabytes(tag):.0f} MB, of which base "
                f"{docker.megabytes(BASE):.0f} MB; built in {time.monotonic() - start:.0f} s")


def check_images(docker, ledger):
    def services():
        for command, flags, health in [
                ((), ["--tmpfs", "/data:uid=10001", "--env", "OXBOW_PLAINTEXT=1"], "127.0.0.1:7071"),
                (("reward_server", "--listen", "127.0.0.1:7072"), [], "127.0.0.1:7072"),
                (("rollout_worker", "--learner", "127.0.0.1:7070", "--listen", "127.0.0.1:7073"), [], "127.0.0.1:7073")]:
            image = "oxbow/torch" if command else "oxbow/buffer"
            healthy, drained = image_checks.check_service(docker, image, command, flags, health)
            ledger.note(f"{command[0] if command else 'replay_buffer'}: healthy after {healthy:.1f} s, "
                        f"ended {drained:.1f} s after SIGTERM")
    for image in ["oxbow/buffer", "oxbow/torch"]:
        ledger.check(f"{image} runs as user 10001 and has its labels",
                     lambda image=image: image_checks.check_labels(docker, image))
    ledger.check("oxbow/buffer has no compiler and no LibTorch",
                 lambda: image_checks.check_content(docker, "oxbow/buffer", with_torch=False))
    ledger.check("oxbow/torch has no compiler", lambda: image_checks.check_content(docker, "oxbow/torch", True))
    ledger.check("oxbow/buffer says what is in it",
                 lambda: image_checks.check_bill(docker, "oxbow/buffer", {"libgrpc++1.51", "librocksdb7.8", "libssl3"}))
    ledger.check("oxbow/torch says what is in it",
                 lambda: image_checks.check_bill(docker, "oxbow/torch", {"libgrpc++1.51", "libssl3", "torch"}))
    ledger.check("every binary starts", lambda: image_checks.check_versions(docker, "oxbow/torch", ["oxbow", *TORCH_BINARIES]))
    ledger.check("services run with a read-only root, and end soon after SIGTERM with exit code 0", services)


def check_cuda_image(docker, ledger):
    """The facts of oxbow/torch:cuda that are seen without a GPU."""
    image = "oxbow/torch:cuda"
    ledger.check(f"{image} runs as user 10001 and has its labels", lambda: image_checks.check_labels(docker, image))
    ledger.check(f"{image} has no compiler", lambda: image_checks.check_content(docker, image, True))
    ledger.check(f"{image} says what is in it",
                 lambda: image_checks.check_bill(docker, image, {"libgrpc++1.51", "libssl3", "torch", "nvidia-nccl-cu13"}))
    ledger.check("every binary starts", lambda: image_checks.check_versions(docker, image, ["oxbow", *TORCH_BINARIES]))
    ledger.check("every program finds CUDA's libraries", lambda: image_checks.check_cuda(docker, image, TORCH_BINARIES))
    ledger.check("learner and worker have the fused kernels",
                 lambda: image_checks.check_kernels(docker, image, ["learner", "rollout_worker"]))
    ledger.check("it trains on a CPU, and says where there is no GPU", lambda: image_checks.check_runs(docker, image))


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def play(docker, ledger, title, steps_of, with_prometheus=True, **environment):
    """Runs the compose project once, from `up` to `down`; `steps_of` lists the actions in between."""
    ports = {name: free_port() for name in
             ("OXBOW_PROMETHEUS_PORT", "OXBOW_GRAFANA_PORT", "OXBOW_LEARNER_PORT")}
    compose = Compose(docker, PROJECT, {"PROMETHEUS_IMAGE": PROMETHEUS, "COMPOSE_PROFILES": "", **ports, **environment})
    scene = Scene(docker, compose, ports["OXBOW_PROMETHEUS_PORT"], ledger.note)
    print(f"--    {title}", flush=True)
    compose("down", "-v", "--remove-orphans", check=False)
    try:
        for promise, action in [("compose up: all services are healthy", lambda: scene.up(with_prometheus)),
                                *steps_of(scene)]:
            if not ledger.check(promise, action):
                print(compose("logs", "--tail", "20", check=False).stdout[-4000:])
                return
    finally:
        compose("down", "-v", "--remove-orphans", check=False)


def everything(scene):
    return [
        ("oxbow health says SERVING for each service", scene.ask_health),
        ("Prometheus scrapes all of them", scene.await_scrapes),
        ("the held-out reward rises", scene.await_rise),
        ("a third worker joins while it runs", lambda: scene.scale(3)),
        ("two workers leave while it runs", lambda: scene.scale(1)),
        ("a killed reward server comes back, and the run goes on", lambda: scene.crash("reward-1")),
        ("SIGTERM drains the learner", scene.drain_learner),
        ("the run resumes and finishes", lambda: scene.finish(5)),
        ("the report is written", scene.write_report),
        ("all services end by SIGTERM with exit code 0", scene.stop),
    ]


def with_replay(scene):
    return [
        ("the held-out reward rises", scene.await_rise),
        ("a killed replay buffer comes back, and the run goes on", lambda: scene.crash("replay-buffer")),
        ("a killed learner comes back, and the run goes on", lambda: scene.crash("learner")),
        ("SIGTERM drains the learner", scene.drain_learner),
        ("the run resumes and finishes", lambda: scene.finish(3)),
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--no-build", action="store_true", help="take oxbow/buffer and oxbow/torch as they are")
    parser.add_argument("--cuda", action="store_true", help="build and check oxbow/torch:cuda alone; needs 30 GB of disk, no GPU")
    parser.add_argument("--torch-index", help="a package index with CPU wheels of torch; default: pip's own")
    arguments = parser.parse_args()
    ledger, daemon = Ledger(), None
    with tempfile.TemporaryDirectory() as scratch:
        said = subprocess.run([ROOT / "tests/deploy/prepare_docker.sh", Path(scratch) / "dockerd.log"], check=True,
                              stdout=subprocess.PIPE, text=True).stdout
        if "dockerd=" in said:
            daemon = int(said.split("dockerd=")[1].split()[0])
        try:
            docker = Docker()
            if arguments.cuda:
                if not arguments.no_build:
                    fetch_cuda_wheels()
                    if not ledger.check("oxbow/torch:cuda builds", lambda: build(docker, "torch-cuda", ledger)):
                        return 1
                check_cuda_image(docker, ledger)
                return ledger.sum()
            run([ROOT / "deploy/compose/make_secrets.sh"])
            ledger.check("the compose file is valid",
                         lambda: Compose(docker, PROJECT, {})("config", "-q"))
            docker("build", "--quiet", "--network", "host", "--build-arg", f"BASE_IMAGE={BASE}", "--tag", PROMETHEUS,
                   "--file", ROOT / "tests/deploy/prometheus.Dockerfile", ROOT / "tests/deploy", seconds=900,
                   env={**os.environ, "DOCKER_BUILDKIT": "1"})
            if not arguments.no_build:
                fetch_wheel(arguments.torch_index)
                for image in ["buffer", "torch"]:
                    if not ledger.check(f"oxbow/{image} builds", lambda image=image: build(docker, image, ledger)):
                        return 1
            check_images(docker, ledger)
            play(docker, ledger, "configs/digits.yaml", everything)
            play(docker, ledger, REPLAY_RUN, with_replay, with_prometheus=False, OXBOW_RUN_FILE=REPLAY_RUN,
                 OXBOW__CHECKPOINT__EVERY="5")
        finally:
            if daemon is not None:
                os.kill(daemon, signal.SIGTERM)
    return ledger.sum()


if __name__ == "__main__":
    sys.exit(main())
