# SPDX-License-Identifier: Apache-2.0
"""A run under compose: start, rising reward, workers that come and go, services that crash, orderly end."""
import json
import time
import urllib.parse
import urllib.request

from engine import Failure, wait_for

NAME = "digits"
SERVICES = ["config", "replay-buffer", "reward-0", "reward-1", "learner", "rollout"]
# Generous, because machines differ and this one may be busy.
UP_SECONDS, STEPS_SECONDS, EVENT_SECONDS, STOP_SECONDS = 300, 900, 300, 180
RISE = 0.15  # Minimal rise of the held-out reward over the untrained model's.
ENDLESS = "100000"


class Scene:
    """The run that all steps below share."""

    def __init__(self, docker, compose, prometheus_port, note):
        self.docker, self.compose, self.port, self.note = docker, compose, prometheus_port, note

    # ---- Observations ----

    def query(self, expression):
        """The sum of an expression's current values; None if it has none yet."""
        url = f"http://127.0.0.1:{self.port}/api/v1/query?" + urllib.parse.urlencode({"query": expression})
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                result = json.load(answer)["data"]["result"]
        except OSError:
            return None
        return sum(float(series["value"][1]) for series in result) if result else None

    def steps(self):
        lines = self.compose.metrics(NAME)
        return lines[-1]["step"] if lines else -1

    def await_steps(self, steps, seconds=STEPS_SECONDS):
        wait_for(f"step {steps}", lambda: self.steps() >= steps, seconds)

    def rewards(self):
        return [line["eval/reward_mean"] for line in self.compose.metrics(NAME) if "eval/reward_mean" in line]

    def report(self, what, start):
        self.note(f"{what}: {time.monotonic() - start:.1f} s")

    # ---- Actions ----

    def up(self, with_prometheus):
        start = time.monotonic()
        services = SERVICES + (["prometheus"] if with_prometheus else [])
        self.compose("up", "-d", *services, OXBOW__RUN__STEPS=ENDLESS)
        for service in ["replay-buffer", "reward-0", "reward-1", "learner"]:
            self.docker.await_healthy(self.compose.container(service), UP_SECONDS)
        for worker in self.compose.containers("rollout"):
            self.docker.await_healthy(worker, UP_SECONDS)
        self.report("up until all are healthy", start)

    def ask_health(self):
        """Runs `oxbow health` on each service, by name over the run's network."""
        endpoints = ["learner:7070", "replay-buffer:7071", "reward-0:7072", "reward-1:7072"]
        for endpoint in endpoints:
            said = self.compose("exec", "-T", "learner", "oxbow", "health", "--addr", endpoint).stdout
            if said.strip() != "SERVING":
                raise Failure(f"oxbow health --addr {endpoint} says {said}")

    def await_scrapes(self):
        wait_for("Prometheus scrapes learner, buffer, two rewards and two workers",
                 lambda: self.query("up") == 6, EVENT_SECONDS)

    def await_rise(self):
        start = time.monotonic()
        wait_for("an evaluation of the untrained model", self.rewards, STEPS_SECONDS)
        wait_for(f"the held-out reward to rise by {RISE}",
                 lambda: self.rewards()[-1] >= self.rewards()[0] + RISE, STEPS_SECONDS)
        rewards = self.rewards()
        self.note(f"held-out reward {rewards[0]:.3f} -> {rewards[-1]:.3f} by step {self.steps()}, "
                  f"{time.monotonic() - start:.1f} s after all were healthy")

    def scale(self, workers):
        start = time.monotonic()
        self.compose("up", "-d", "--no-deps", "--no-recreate", "--scale", f"rollout={workers}", "rollout")
        for worker in self.compose.containers("rollout"):
            self.docker.await_healthy(worker, EVENT_SECONDS)
        wait_for(f"{workers} workers at the learner",
                 lambda: self.query("oxbow_learner_workers") == workers, EVENT_SECONDS)
        # Every present worker samples for this run.
        wait_for(f"images of {workers} workers",
                 lambda: self.query("count(sum by (instance) (oxbow_rollout_samples_total) > 0 and on (instance) up == 1)")
                 == workers, EVENT_SECONDS)
        self.await_steps(self.steps() + 2)
        self.report(f"scaled to {workers} until all of them had sampled and two steps were made", start)

    def crash(self, service):
        """Sends SIGKILL; Docker restarts the service, and the run continues."""
        start = time.monotonic()
        container = self.compose.container(service)
        before = int(self.docker.inspect(container, "{{.RestartCount}}"))
        self.docker.crash(container)
        wait_for(f"{service} to be started again",
                 lambda: int(self.docker.inspect(container, "{{.RestartCount}}")) > before, EVENT_SECONDS)
        self.docker.await_healthy(container, UP_SECONDS)
        self.await_steps(self.steps() + 3)
        self.report(f"{service} killed, until it was healthy and three more steps were made", start)

    def drain_learner(self):
        """Sends SIGTERM: the learner finishes the step, writes a checkpoint and exits with 9; Docker leaves it stopped."""
        start = time.monotonic()
        learner = self.compose.container("learner")
        self.compose("stop", "learner", seconds=STOP_SECONDS)
        code = self.docker.exit_code(learner)
        if code != 9:
            raise Failure(f"the learner ends by SIGTERM with {code}")
        self.report("learner stopped with a checkpoint", start)

    def finish(self, more_steps):
        """Resumes the stopped run from its checkpoint; it runs to its last step and ends by itself."""
        start = time.monotonic()
        before = self.steps()
        last = before + more_steps
        self.compose("up", "--no-deps", "config", OXBOW__RUN__STEPS=str(last))
        learner = self.compose.container("learner")
        self.compose("start", "learner")
        code = int(self.docker("wait", learner, seconds=STEPS_SECONDS).stdout)
        if code != 0 or self.steps() != last:
            raise Failure(f"the learner ended with {code} at step {self.steps()}, not 0 at {last}: "
                          + self.docker("logs", "--tail", "5", learner).stderr)
        if int(self.docker.inspect(learner, "{{.RestartCount}}")) and self.docker.exit_code(learner) is None:
            raise Failure("a finished learner was started again")
        self.report(f"resumed at step {before} and finished at {last}", start)

    def write_report(self):
        self.compose("run", "--rm", "--no-deps", "learner", "oxbow", "report", f"/runs/{NAME}")
        page = self.docker.read(self.compose.container("learner"), f"/runs/{NAME}/report.html") or b""
        if b"<svg" not in page and b"<img" not in page:
            raise Failure(f"report.html of {len(page)} bytes shows nothing")

    def stop(self):
        """Checks that all other services end in an orderly way, too."""
        containers = [c for s in ["replay-buffer", "reward-0", "reward-1", "rollout"]
                      for c in self.compose.containers(s)]
        start = time.monotonic()
        self.compose("stop", seconds=STOP_SECONDS)
        self.report("all stopped", start)
        codes = {self.docker.inspect(c, "{{.Name}}"): self.docker.exit_code(c) for c in containers}
        if any(codes.values()):
            raise Failure(f"exit codes after SIGTERM: {codes}")
