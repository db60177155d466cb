#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes dashboards/*.json from the tables in panels.py. --check: exits 1 if a file is not what the tables say.

Grafana's classic dashboard model, which versions 9 to 13 read. Panels flow left to right in a grid of 24 columns.
"""
import json
import sys
from pathlib import Path

from panels import DASHBOARDS

HERE = Path(__file__).resolve().parent
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
HEIGHTS = {"stat": 4, "timeseries": 8, "heatmap": 8}


def query_variable(name, query):
    """Every value of a label, and all of them at once; targets without the label count as well."""
    return {
        "name": name,
        "label": name,
        "type": "query",
        "datasource": DATASOURCE,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": ["All"], "value": ["$__all"]},
    }


def templating():
    datasource = {"name": "datasource", "label": "data source", "type": "datasource",
                  "query": "prometheus"}
    return {"list": [
        datasource,
        query_variable("run", "label_values(oxbow_build_info, run)"),
        query_variable("instance", 'label_values(oxbow_build_info{run=~"$run"}, instance)'),
    ]}


def target(index, expression, legend, kind):
    made = {"refId": "ABCDEFGH"[index], "datasource": DATASOURCE, "expr": expression,
            "legendFormat": legend}
    if kind == "heatmap":
        made["format"] = "heatmap"
    if kind == "stat":
        made["instant"] = True
    return made


def field_defaults(panel):
    defaults = {"unit": panel.unit}
    if panel.low is not None:
        defaults["min"] = panel.low
    if panel.high is not None:
        defaults["max"] = panel.high
    if panel.kind == "timeseries":
        defaults["custom"] = {"fillOpacity": 10 if panel.stacked else 0, "showPoints": "never",
                              "stacking": {"mode": "normal" if panel.stacked else "none"}}
    return defaults


def options(panel):
    if panel.kind == "stat":
        return {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "none"}
    if panel.kind == "heatmap":
        return {"calculate": False, "yAxis": {"unit": panel.unit}, "color": {"mode": "scheme", "scheme": "Blues"}}
    return {"legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"}}


def made_panel(number, panel, x, y):
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": DATASOURCE,
        "gridPos": {"h": HEIGHTS[panel.kind], "w": panel.width, "x": x, "y": y},
        "fieldConfig": {"defaults": field_defaults(panel), "overrides": []},
        "options": options(panel),
        "targets": [target(i, expression, legend, panel.kind)
                    for i, (expression, legend) in enumerate(panel.queries)],
    }


def made_row(number, title, y):
    return {"id": number, "type": "row", "title": title, "collapsed": False, "panels": [],
            "gridPos": {"h": 1, "w": 24, "x": 0, "y": y}}


def laid_out(rows):
    """Panels after their row, or within it if the row is collapsed: it then takes one line."""
    panels, number, y = [], 0, 0
    for title, row, *collapsed in rows:
        number += 1
        head = made_row(number, title, y)
        panels.append(head)
        into = panels
        if collapsed:
            head["collapsed"] = True
            into = head["panels"]
        x, y, tallest = 0, y + 1, 0
        below = y
        for panel in row:
            if x + panel.width > 24:
                x, y, tallest = 0, y + tallest, 0
            number += 1
            into.append(made_panel(number, panel, x, y))
            x, tallest = x + panel.width, max(tallest, HEIGHTS[panel.kind])
        y = below if collapsed else y + tallest
    return panels


def dashboard(board):
    links = [{"title": other.title, "type": "link", "url": f"/d/{other.uid}", "icon": "dashboard",
              "keepTime": True, "includeVars": True, "asDropdown": False, "targetBlank": False,
              "tags": [], "tooltip": ""}
             for other in DASHBOARDS if other.uid != board.uid]
    return {
        "uid": board.uid,
        "title": board.title,
        "description": board.description,
        "tags": ["oxbow"],
        "schemaVersion": 39,
        "version": 1,
        "editable": False,
        "timezone": "browser",
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "graphTooltip": 1,
        "annotations": {"list": []},
        "links": links,
        "templating": templating(),
        "panels": laid_out(board.rows),
    }


def main():
    stale = []
    for board in DASHBOARDS:
        path = HERE / "dashboards" / f"{board.uid}.json"
        text = json.dumps(dashboard(board), indent=1, ensure_ascii=False) + "\n"
        if "--check" not in sys.argv[1:]:
            path.write_text(text)
        elif not path.is_file() or path.read_text() != text:
            stale.append(path.name)
    stale += sorted(path.name for path in (HERE / "dashboards").glob("*.json")
                    if path.stem not in {board.uid for board in DASHBOARDS})
    for name in stale:
        print(f"{name} is not what panels.py says: run deploy/grafana/make_dashboards.py", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
