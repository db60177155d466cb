#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""House rules of dashboards and alerts that no schema checks; prints each violation, exits 1 if there is any.

Panels: a title once per dashboard, a unit, a sentence of description, queries that select by the dashboard's
variables, counters only inside rate or increase over $__rate_interval, a place in the grid of its own.
Queries, including those of alerts, use only metrics of src/metrics/exported_metrics.h.
"""
import sys

from queries import (FOREIGN, alert_queries, dashboards, exported_families, family_of, panels_of,
                     selectors)

COLUMNS = 24


def panel_breaches(panel):
    if len(panel["description"]) < 25 or not panel["description"].endswith("."):
        yield "no sentence on how to read it"
    if not panel["fieldConfig"]["defaults"].get("unit"):
        yield "no unit"
    if not panel["targets"]:
        yield "no query"
    for made in panel["targets"]:
        if not made["legendFormat"]:
            yield f"no legend: {made['expr']}"
        for found in selectors(made["expr"]):
            if 'run=~"$run"' not in found or 'instance=~"$instance"' not in found:
                yield f"does not select by run and instance: {found}"
        if "rate(" in made["expr"] or "increase(" in made["expr"]:
            if "[$__rate_interval]" not in made["expr"]:
                yield f"rate without $__rate_interval: {made['expr']}"


def overlap(first, second):
    a, b = first["gridPos"], second["gridPos"]
    return (a["x"] < b["x"] + b["w"] and b["x"] < a["x"] + a["w"]
            and a["y"] < b["y"] + b["h"] and b["y"] < a["y"] + a["h"])


def board_breaches(board):
    panels = list(panels_of(board))
    shut = {id(panel): row["id"] for row in board["panels"] for panel in row.get("panels", [])}
    if len({panel["id"] for panel in panels}) != len(panels):
        yield "two panels of one id"
    titles = [panel["title"] for panel in panels if panel["type"] not in ("row", "stat")]
    for title in {title for title in titles if titles.count(title) > 1}:
        yield f"two panels of this title: {title}"
    for i, panel in enumerate(panels):
        place = panel["gridPos"]
        if place["x"] + place["w"] > COLUMNS:
            yield f"{panel['title']}: right of the grid"
        for other in panels[:i]:
            # A collapsed row moves what is below it when it is opened.
            if overlap(panel, other) and shut.get(id(panel)) == shut.get(id(other)):
                yield f"{panel['title']}: lies on {other['title']}"
        if panel["type"] != "row":
            yield from (f"{panel['title']}: {breach}" for breach in panel_breaches(panel))
    names = {variable["name"] for variable in board["templating"]["list"]}
    if names != {"datasource", "run", "instance"}:
        yield f"variables are not datasource, run, instance: {sorted(names)}"


def unknown_families(expression, families, counters_in_rate):
    for found in selectors(expression):
        name = found.split("{")[0]
        if FOREIGN.match(name) and name not in families:
            if name != "up":
                yield f"not in exported_metrics.h: {name}"
            continue
        family = family_of(name, families)
        if family not in families:
            yield f"not in exported_metrics.h: {name}"
        elif name.endswith("_bucket") and f"{found}[" not in expression:
            yield f"buckets outside rate and increase: {found}"
        elif families[family] == "Histogram" and name == family:
            yield f"a histogram has no series of its own name: {name}"
        elif counters_in_rate and families[family] == "Counter" and f"{found}[" not in expression:
            if family not in SINCE_START:
                yield f"a counter outside rate and increase: {found}"


# Counters that are shown as totals, because every single event matters.
SINCE_START = {"oxbow_learner_buffer_commits_dropped_total", "oxbow_learner_evaluation_failures_total"}


def main():
    families = exported_families()
    breaches = []
    for uid, board in dashboards().items():
        breaches += [f"{uid}: {breach}" for breach in board_breaches(board)]
        for panel in panels_of(board):
            for made in panel.get("targets", []):
                breaches += [f"{uid}: {panel['title']}: {breach}"
                             for breach in unknown_families(made["expr"], families, True)]
    for alert, expression in alert_queries():
        breaches += [f"{alert}: {breach}" for breach in unknown_families(expression, families, False)]
    for breach in breaches:
        print(breach)
    if breaches:
        return 1
    count = sum(panel["type"] != "row" for board in dashboards().values() for panel in panels_of(board))
    print(f"{count} panels of {len(dashboards())} dashboards")
    return 0


if __name__ == "__main__":
    sys.exit(main())
