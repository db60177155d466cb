#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks manifests and dashboards against the types that Kubernetes and Grafana publish.

  - dashboards, and the options of their panels, against @grafana/schema (TypeScript);
  - built-in kinds against kubernetes-types, PodMonitor, PrometheusRule, ScaledObject, Issuer and Certificate against
    @kubernetes-models (TypeScript: unknown keys, wrong types);
  - all of those against the models' own schemas (required fields, ranges, patterns);
  - JobSet against the models of kubeflow-trainer-api, its Job template as a built-in kind.

These are only type checks: nothing is applied to a cluster or loaded by Grafana.

  check_types.py --node DIR (with node_modules) [--kubectl PATH]
"""
import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from kubeflow_trainer_api.models import jobset_v1alpha2_job_set

from queries import dashboards, panels_of
from rendered import all_rendered

# apiVersion/kind -> module and type.
BUILT_IN = {
    "v1": "core/v1",
    "apps/v1": "apps/v1",
    "batch/v1": "batch/v1",
    "policy/v1": "policy/v1",
    "networking.k8s.io/v1": "networking/v1",
    "autoscaling/v2": "autoscaling/v2",
}
CUSTOM = {"monitoring.coreos.com/v1": "@kubernetes-models/prometheus-operator",
          "keda.sh/v1alpha1": "@kubernetes-models/keda",
          "cert-manager.io/v1": "@kubernetes-models/cert-manager"}
PANEL_OPTIONS = {"timeseries": "timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen",
                 "stat": "stat/panelcfg/x/StatPanelCfg_types.gen",
                 "heatmap": "heatmap/panelcfg/x/HeatmapPanelCfg_types.gen"}
OPTIONS = {"strict": True, "noEmit": True, "skipLibCheck": True, "module": "nodenext",
           "moduleResolution": "nodenext", "target": "es2022", "types": []}
VALIDATE = """
import {readFileSync} from "fs";
let failed = 0;
for (const {name, module, document} of JSON.parse(readFileSync(process.argv[2]))) {
  const Model = (await import(module))[document.kind];
  try { new Model(document).validate(); } catch (error) { failed = 1; console.log(`${name}: ${error.message}`); }
}
process.exit(failed);
"""


def label(name, document):
    return f"{name}: {document['kind']} {document['metadata']['name']}"


def typed(index, comment, module, kind, value):
    return (f"// {comment}\nimport type {{{kind} as T{index}}} from \"{module}\";\n"
            f"export const v{index}: T{index} = {json.dumps(value)};\n")


def typescript(rendered):
    """One file with a constant per document; a key that is not in the type is an error."""
    parts = []
    for name, documents in rendered.items():
        for document in documents:
            version, kind, value = document["apiVersion"], document["kind"], document
            comment = label(name, document)
            if kind == "JobSet":
                version, kind = "batch/v1", "JobTemplateSpec"
                value = document["spec"]["replicatedJobs"][0]["template"]
            if version in BUILT_IN:
                module = f"kubernetes-types/{BUILT_IN[version]}.js"
            else:
                module, kind = f"{CUSTOM[version]}/{version}", f"I{kind}"
            parts.append(typed(len(parts), comment, module, kind, value))
    for uid, board in dashboards().items():
        parts.append(typed(len(parts), uid, "@grafana/schema", "Dashboard", board))
    return "".join(parts)


def panel_options():
    """The options of each kind of panel, all optional, because Grafana fills in missing ones."""
    parts = ["type Part<T> = T extends object ? {[K in keyof T]?: Part<T[K]>} : T | `${T & string}`;\n"]
    for uid, board in dashboards().items():
        for panel in (panel for panel in panels_of(board) if panel["type"] in PANEL_OPTIONS):
            module = f"@grafana/schema/dist/esm/raw/composable/{PANEL_OPTIONS[panel['type']]}"
            said = {"Options": panel["options"], "FieldConfig": panel["fieldConfig"]["defaults"].get("custom")}
            for name, value in said.items():
                if value is not None:
                    index = len(parts)
                    parts.append(f"// {uid}: {panel['title']}\nimport type {{{name} as T{index}}} from \"{module}\";\n"
                                 f"export const v{index}: Part<T{index}> = {json.dumps(value)};\n")
    return "".join(parts)


def compiled(node, scratch):
    (scratch / "tsconfig.json").write_text(json.dumps(
        {"compilerOptions": OPTIONS, "include": ["*.ts"]}))
    done = subprocess.run([node / "node_modules/.bin/tsc", "--pretty", "false", "-p", scratch],
                          capture_output=True, text=True, check=False)
    for line in done.stdout.splitlines():
        yield with_comment(line, scratch)


def with_comment(line, scratch):
    """Prefixes an error with its document: the nearest comment above."""
    found = re.match(r".*?(\w+\.ts)\((\d+),\d+\): (.*)", line)
    if not found:
        return line
    above = (scratch / found[1]).read_text().splitlines()[:int(found[2])]
    name = next((text[3:] for text in reversed(above) if text.startswith("// ")), found[1])
    return f"{name}: {found[3]}"


def validated(node, rendered, scratch):
    documents = []
    for name, made in rendered.items():
        for document in made:
            version = document["apiVersion"]
            if document["kind"] == "JobSet":
                continue
            module = f"{CUSTOM.get(version, 'kubernetes-models')}/{version}"
            documents.append({"name": label(name, document), "module": module, "document": document})
    (scratch / "documents.json").write_text(json.dumps(documents))
    (scratch / "validate.mjs").write_text(VALIDATE)
    done = subprocess.run(["node", scratch / "validate.mjs", scratch / "documents.json"],
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        yield from (done.stdout + done.stderr).splitlines()


def unknown_keys(given, known, path=""):
    """Keys of `given` that a round trip through the model lost."""
    if isinstance(given, dict) and isinstance(known, dict):
        for key, value in given.items():
            if key not in known:
                yield f"{path}/{key}"
            else:
                yield from unknown_keys(value, known[key], f"{path}/{key}")
    elif isinstance(given, list) and isinstance(known, list):
        for i, (one, other) in enumerate(zip(given, known)):
            yield from unknown_keys(one, other, f"{path}/{i}")


def job_sets(rendered):
    for name, made in rendered.items():
        for document in (document for document in made if document["kind"] == "JobSet"):
            try:
                model = jobset_v1alpha2_job_set.JobsetV1alpha2JobSet.from_dict(document)
            except ValueError as error:
                yield f"{label(name, document)}: {error}"
                continue
            for key in unknown_keys(document, model.to_dict()):
                yield f"{label(name, document)}: unknown key {key}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--node", type=Path, required=True)
    parser.add_argument("--kubectl", default="kubectl")
    arguments = parser.parse_args()
    node = arguments.node.resolve()
    rendered = all_rendered(arguments.kubectl)
    with tempfile.TemporaryDirectory(dir=node) as folder:
        scratch = Path(folder)
        (scratch / "documents.ts").write_text(typescript(rendered))
        (scratch / "panels.ts").write_text(panel_options())
        problems = [*compiled(node, scratch), *validated(node, rendered, scratch), *job_sets(rendered)]
    for problem in problems:
        print(problem)
    if problems:
        return 1
    count = sum(len(made) for made in rendered.values())
    print(f"{count} objects of {len(rendered)} renderings, {len(dashboards())} dashboards")
    return 0


if __name__ == "__main__":
    sys.exit(main())
