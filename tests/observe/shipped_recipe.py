# SPDX-License-Identifier: Apache-2.0
"""The dashboards of a shipped recipe of which nothing is changed but the pace.

Every panel that is seen (not in a collapsed row) has data, but for those that known_empty.yml lists for the recipe.
Those really have none: a list does not outlive its reasons. No alert fires.
"""
import fnmatch
import subprocess
import time
from pathlib import Path

import yaml

from queries import ROOT, collapsed_panels, panel_queries

KNOWN_EMPTY = Path(__file__).resolve().parent / "known_empty.yml"
# Evaluations and checkpoints within seconds, and a policy that hardly moves: once all rewards are equal, nothing is
# clipped or weighted any more.
SETTINGS = ["run.steps=100000", "eval.every=3", "checkpoint.every=5", "optimizer.learning_rate=1e-6"]


def wanted(oxbow, file):
    """How many processes of each kind the recipe has."""
    shown = subprocess.run([oxbow, "config", "show", file, "--resolved"], cwd=ROOT, capture_output=True, text=True, check=True)
    config = yaml.safe_load(shown.stdout)
    counts = {"learner": config["learner"]["ranks"], "reward": config["services"]["reward_servers"],
              "rollout": config["services"]["rollout_workers"]}
    replay = config["replay"]
    if replay["fraction"] > 0 or replay["late_binding"] or config["adaptation"]["enabled"]:
        counts["replay-buffer"] = 1
    return counts


def seen_panels():
    """The queries of each panel that is seen."""
    shut, seen = collapsed_panels(), {}
    for panel, expression in panel_queries():
        if panel not in shut:
            seen.setdefault(panel, []).append(expression)
    return seen


def expected_empty(recipe):
    """Patterns of panels, each with its reason; "oxbow-replay/*" is a whole dashboard."""
    return yaml.safe_load(KNOWN_EMPTY.read_text())["recipes"].get(recipe) or {}


def problems(server, recipe, concrete, deadline):
    left = {panel: [concrete(expression) for expression in asked] for panel, asked in seen_panels().items()}
    patterns = expected_empty(recipe)
    may_be_empty = {panel for panel in left if any(fnmatch.fnmatch(panel, pattern) for pattern in patterns)}
    for pattern in patterns:
        if not fnmatch.filter(left, pattern):
            yield f"known_empty.yml: {recipe}: no such panel that is seen: {pattern}"
    while True:
        # One curve of several may need what this run has not, such as a second reward.
        # A panel of known_empty.yml is asked at the end: the first step alone may have filled it.
        left = {panel: asked for panel, asked in left.items() if panel in may_be_empty or not any(map(server.finds, asked))}
        if set(left) <= may_be_empty or time.monotonic() > deadline:
            break
        time.sleep(1)
    for panel in sorted(set(left) - may_be_empty):
        yield f"{panel}: no data under {recipe}: {left[panel]}"
    for panel in sorted(panel for panel in may_be_empty if any(map(server.finds, left[panel]))):
        yield f"{panel}: has data, and known_empty.yml says that {recipe} has none"
    yield from false_alarms(server)


def false_alarms(server):
    for group in server.ask("rules")["groups"]:
        for rule in group["rules"]:
            if rule["state"] == "firing":
                yield f"{rule['name']} fires in a healthy run: {rule['alerts']}"
