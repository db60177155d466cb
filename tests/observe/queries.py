# SPDX-License-Identifier: Apache-2.0
"""The queries of dashboards and alerts, and the metrics of src/metrics/exported_metrics.h."""
import json
import re
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools"))
from metric_names import read_names  # noqa: E402
DASHBOARDS = ROOT / "deploy" / "grafana" / "dashboards"
RULES = ROOT / "deploy" / "prometheus" / "rules" / "oxbow.rules.yml"
HISTOGRAM_PART = re.compile(r"_(bucket|sum|count)$")
SELECTOR = re.compile(r"\b(?:oxbow_\w+|process_\w+|up\b)(?:\{[^}]*\})?")
# Metrics that oxbow does not define: prometheus-cpp's own, and those that every client has.
FOREIGN = re.compile(r"^(up|process_\w+)$")


def dashboards():
    return {path.stem: json.loads(path.read_text()) for path in sorted(DASHBOARDS.glob("*.json"))}


def panels_of(board):
    """All panels, rows among them; those of a collapsed row are within it."""
    for panel in board["panels"]:
        yield panel
        yield from panel.get("panels", [])


def collapsed_panels():
    """dashboard/panel of those that are seen only once somebody opens their row."""
    return {f"{uid}/{panel['title']}" for uid, board in dashboards().items()
            for row in board["panels"] if row.get("collapsed") for panel in row["panels"]}


def panel_queries():
    """Yields (dashboard/panel, expression) of every target."""
    for uid, board in dashboards().items():
        for panel in panels_of(board):
            for made in panel.get("targets", []):
                yield f"{uid}/{panel['title']}", made["expr"]


def alert_queries():
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"]


def selectors(expression):
    """The vector selectors of an expression, without their ranges."""
    return SELECTOR.findall(expression)


def family_of(name, families):
    """The family of a series: histograms have three series names."""
    bare = HISTOGRAM_PART.sub("", name)
    return bare if bare in families else name


def exported_families():
    """Every metric that some process serves: name -> Counter, Gauge or Histogram."""
    return {row.name: row.type for row in read_names().exported}
