#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks with a real run and a real Prometheus that every query of the dashboards and alerts finds data.

Starts `oxbow train` (two learner ranks, two workers, replay) and a Prometheus with deploy/prometheus/prometheus.yml,
with the targets of the run's endpoints.json, and checks that

  - every target answers, and `promtool check metrics` accepts every page;
  - the pages have the metrics of src/metrics/exported_metrics.h with their types, and no other oxbow metrics;
  - every panel's query gives at least one finite number, or is empty for a reason in known_empty.yml;
  - so does the query with which Kubernetes scales workers;
  - every alert's rule evaluates without error, each selector in it finds a series, and none fires.

With --run it runs that run file or recipe instead, and checks only what shipped_recipe.py says: every panel that is
seen has data or a line in known_empty.yml, and no alert fires. All that train within a minute:

  for f in configs/digits*.yaml configs/recipes/digits-*.yaml; do live_check.py --run $f ...; done

  live_check.py --bin build/release/bin [--prometheus DIR] [--timeout 75] [--run FILE] [--keep]
"""
import argparse
import json
import math
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import yaml

import shipped_recipe
from queries import (ROOT, alert_queries, exported_families, family_of, panel_queries,
                     selectors)

HERE = Path(__file__).resolve().parent
RUN = ROOT / "configs" / "recipes" / "digits-op-grpo.yaml"
# Small steps, so that rare events happen within seconds, and a policy that hardly moves: once all
# rewards are equal, nothing is clipped or weighted any more.
SETTINGS = ["run.steps=100000", "learner.ranks=2", "services.rollout_workers=2", "batch.groups=4",
            "services.groups_in_flight=2", "eval.every=3", "eval.images=8", "eval.grid_images=4",
            "checkpoint.every=5", "publish.transport=broadcast", "optimizer.learning_rate=1e-6"]
JOBS = {"learner": "learner", "replay_buffer": "replay-buffer", "reward_server": "reward",
        "rollout_worker": "rollout"}
VARIABLES = {"$__rate_interval": "15s", "$run": ".*", "$instance": ".*"}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def fetched(url, timeout=5):
    with urllib.request.urlopen(url, timeout=timeout) as answer:
        return answer.read().decode()


def until(deadline, attempt, what):
    """Calls `attempt` until it returns a true value; returns its last value after the deadline."""
    while True:
        try:
            found = attempt()
        except (OSError, urllib.error.URLError, ValueError, KeyError):
            found = None
        if found:
            return found
        if time.monotonic() > deadline:
            raise SystemExit(f"live check: {what} did not happen in time")
        time.sleep(0.5)


WANTED = {"learner": 2, "replay-buffer": 1, "reward": 1, "rollout": 2}


def targets_of(run_directory, wanted):
    """Metrics addresses by job; nothing until all of them are known."""
    services = json.loads((run_directory / "endpoints.json").read_text())["services"]
    by_job = {}
    for service in services:
        if not service["metrics"]:
            return None
        by_job.setdefault(JOBS[re.sub(r"-\d+$", "", service["name"])], []).append(service["metrics"])
    return by_job if {job: len(found) for job, found in by_job.items()} == wanted else None


def scrape_config(by_job, scratch):
    """The deployed configuration with this run's addresses, scraped every second."""
    config = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "2s"}
    config["rule_files"] = [str(ROOT / "deploy/prometheus" / name) for name in config["rule_files"]]
    for job in config["scrape_configs"]:
        for discovered in ("dns_sd_configs", "relabel_configs"):
            job.pop(discovered, None)
        job["static_configs"] = [{"targets": by_job.pop(job["job_name"], []), "labels": {"run": "live"}}]
    if by_job:
        raise SystemExit(f"live check: no scrape job for {sorted(by_job)}")
    file = scratch / "prometheus.yml"
    file.write_text(yaml.safe_dump(config))
    return file


class Prometheus:
    def __init__(self, binary, config, scratch, port):
        self.url = f"http://127.0.0.1:{port}"
        self.log = (scratch / "prometheus.log").open("w")
        self.process = subprocess.Popen(
            [binary, f"--config.file={config}", f"--storage.tsdb.path={scratch / 'tsdb'}",
             f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"],
            stdout=self.log, stderr=subprocess.STDOUT)

    def ask(self, path, **parameters):
        answer = json.loads(fetched(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"))
        return answer["data"]

    def finds(self, expression):
        """Whether there is a finite number within the last minute."""
        now = time.time()
        data = self.ask("query_range", query=expression, start=now - 60, end=now, step=1)
        return any(math.isfinite(float(value)) for series in data["result"]
                   for _, value in series["values"])


def concrete(expression):
    for name, value in VARIABLES.items():
        expression = expression.replace(name, value)
    return expression


def page_problems(addresses, promtool):
    """The errors of the pages themselves, and their families with types."""
    problems, types = [], {}
    for address in addresses:
        page = fetched(f"http://{address}/metrics")
        checked = subprocess.run([promtool, "check", "metrics"], input=page, capture_output=True,
                                 text=True, check=False)
        found = [line for line in (checked.stdout + checked.stderr).splitlines() if line.strip()]
        problems += [f"promtool check metrics: {address}: {line}" for line in found]
        types.update(re.findall(r"^# TYPE (\w+) (\w+)", page, re.MULTILINE))
    return problems, types


def family_problems(types, series, known_empty):
    """`series`: the names that Prometheus has had from this run, since not every step measures everything."""
    known = exported_families()
    for name, kind in types.items():
        if name.startswith("oxbow_") and known.get(name, "nothing").lower() != kind:
            yield f"{name} is a {kind} and exported_metrics.h says {known.get(name, 'nothing')}"
    seen = {family_of(name, known) for name in series}
    for name in known:
        if (name in seen) == (name in known_empty):
            yield (f"{name}: in exported_metrics.h and on no page" if name not in seen
                   else f"{name}: known_empty.yml says that it is on no page, and it is")


def panel_problems(server, known_empty, deadline):
    left = [(panel, concrete(expression)) for panel, expression in panel_queries()]
    found = set()
    for panel in known_empty:
        if panel not in {name for name, _ in left}:
            yield f"known_empty.yml: no such panel: {panel}"
    while left:
        still = [(panel, expression) for panel, expression in left if not server.finds(expression)]
        found |= {panel for panel, _ in set(left) - set(still)}
        left = still
        if all(panel in known_empty or panel in found for panel, _ in left) or time.monotonic() > deadline:
            break
        time.sleep(1)
    for panel, expression in left:
        # One number of a step among several may need what this run has not, such as an old policy.
        if panel not in known_empty and not (panel in found and expression.startswith("oxbow_step{")):
            yield f"{panel}: no data: {expression}"
    for panel in known_empty:
        if panel in found:
            yield f"{panel}: has data, and known_empty.yml says it has none"


def alert_problems(server, families, known_empty):
    rules = {rule["name"]: rule for group in server.ask("rules")["groups"] for rule in group["rules"]}
    for alert, expression in alert_queries():
        rule = rules.get(alert)
        if rule is None or rule["health"] != "ok":
            yield f"{alert}: not evaluated: {rule and rule.get('lastError')}"
            continue
        if rule["state"] == "firing":
            yield f"{alert} fires in a healthy run: {rule['alerts']}"
        for selector in selectors(expression):
            # A label value may be rare; series with another value of that family are enough.
            name = selector.split("{")[0]
            if name in known_empty:
                continue
            if not server.finds(selector) and family_of(name, families) not in families:
                yield f"{alert}: no data: {selector}"
            elif not server.finds(selector):
                yield f"{alert}: no series: {selector}"


def await_scaling(server, deadline):
    """Waits for the scaling query, whose subquery has a point every 15 s."""
    scaled = yaml.safe_load((ROOT / "deploy/k8s/components/keda/rollout.yaml").read_text())
    for trigger in scaled["spec"]["triggers"]:
        query = trigger["metadata"]["query"]
        until(deadline, lambda query=query: server.finds(query), f"data for KEDA: {query}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", type=Path, default=ROOT / "build/release/bin")
    parser.add_argument("--prometheus", type=Path, help="directory of prometheus and promtool; else from PATH")
    parser.add_argument("--timeout", type=float, default=75, help="seconds for everything")
    parser.add_argument("--run", type=Path, help="a run file or recipe, checked as shipped_recipe.py says")
    parser.add_argument("--keep", action="store_true", help="leave run and database behind")
    arguments = parser.parse_args()
    tool = (lambda name: str(arguments.prometheus / name)) if arguments.prometheus else (lambda name: name)
    known_empty = yaml.safe_load((HERE / "known_empty.yml").read_text())
    scratch = Path(tempfile.mkdtemp(prefix="oxbow-live-"))
    begun = time.monotonic()
    deadline = begun + arguments.timeout
    run, chosen, wanted = RUN, SETTINGS, WANTED
    if arguments.run:
        run, chosen = arguments.run.resolve(), shipped_recipe.SETTINGS
        wanted = shipped_recipe.wanted(arguments.bin / "oxbow", run)
    settings = [f"run.directory={scratch}", "run.name=live", *chosen]
    train = subprocess.Popen(
        [arguments.bin / "oxbow", "train", run, "--no-progress", *(f"--set={s}" for s in settings)],
        cwd=ROOT, stdout=(scratch / "train.log").open("w"), stderr=subprocess.STDOUT)
    server = None
    try:
        def started():
            if train.poll() is not None:
                raise SystemExit("live check: oxbow train ended:\n" + (scratch / "train.log").read_text())
            return targets_of(scratch / "live", wanted)
        by_job = until(deadline, started, "a run with all its services")
        addresses = sorted(address for found in by_job.values() for address in found)
        server = Prometheus(tool("prometheus"), scrape_config(by_job, scratch), scratch, free_port())
        until(deadline, lambda: len(server.ask("query", query="up == 1")["result"]) == len(addresses),
              "a scrape of every target")
        if arguments.run:
            problems = list(shipped_recipe.problems(server, run.stem, concrete, deadline))
        else:
            problems = list(panel_problems(server, known_empty["panels"], deadline))
            problems += alert_problems(server, exported_families(), known_empty["families"])
            await_scaling(server, deadline)
            pages, types = page_problems(addresses, tool("promtool"))
            problems += pages
            problems += family_problems(types, server.ask("label/__name__/values"), known_empty["families"])
    finally:
        if server is not None:
            server.process.terminate()
            server.process.wait(10)
        train.send_signal(signal.SIGINT)
        try:
            train.wait(30)
        except subprocess.TimeoutExpired:
            train.kill()
    for problem in problems:
        print(problem)
    if arguments.keep or problems:
        print(f"left behind: {scratch}")
    else:
        shutil.rmtree(scratch, ignore_errors=True)
    count = sum(1 for _ in panel_queries())
    print(f"{count} panel queries, {sum(1 for _ in alert_queries())} alerts, {len(addresses)} pages: "
          f"{len(problems)} problems in {time.monotonic() - begun:.0f} s")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
