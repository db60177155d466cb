# SPDX-License-Identifier: Apache-2.0
"""Manifests as `kubectl kustomize` renders them: the overlays, and mixtures with the components that no overlay has."""
import os
import subprocess
import tempfile
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent.parent
K8S = ROOT / "deploy" / "k8s"
# Overlays use some of the components; these mixtures cover the others, so that each component is
# rendered: the base, then its components.
MIXTURES = {
    "statefulset-gpu-hpa-monitoring": ["base", "learner-statefulset", "gpu", "hpa", "monitoring"],
    "jobset-hpa": ["base", "learner-jobset", "hpa"],
    "statefulset-tls": ["base", "learner-statefulset", "tls"],
    "jobset-gpu-tls": ["base", "learner-jobset", "gpu", "tls"],
    "statefulset-shards": ["base", "learner-statefulset", "replay-shards"],
    "jobset-gpu-node-tls-monitoring": ["base", "learner-jobset", "gpu-node", "tls", "monitoring"],
    "statefulset-gpu-node": ["base", "learner-statefulset", "gpu-node"],
    "node": ["node"],
}


def render(kubectl, folder):
    done = subprocess.run([kubectl, "kustomize", str(folder)], capture_output=True, text=True,
                          check=False)
    if done.returncode != 0 or "Warning" in done.stderr:
        raise SystemExit(f"kubectl kustomize {folder}: {done.stderr.strip()}")
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def mixture(kubectl, base, *components):
    with tempfile.TemporaryDirectory(dir=K8S, prefix=".mixture-") as scratch:
        # Kustomize accepts folders only by relative paths.
        def path(name):
            return os.path.relpath(K8S / name, scratch)
        (Path(scratch) / "kustomization.yaml").write_text(yaml.safe_dump({
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": [path(base)],
            "components": [path(f"components/{name}") for name in components],
            "configMapGenerator": [{"name": "run", "literals": ["run.yaml=recipe: digits-op-grpo\nrun: {name: run, directory: /runs}"]}],
        }))
        return render(kubectl, scratch)


def all_rendered(kubectl):
    """name -> documents."""
    made = {overlay.parent.name: render(kubectl, overlay.parent)
            for overlay in sorted((K8S / "overlays").glob("*/kustomization.yaml"))}
    made.update({name: mixture(kubectl, *parts) for name, parts in MIXTURES.items()})
    used = {name for _, *components in MIXTURES.values() for name in components}
    for overlay in (K8S / "overlays").glob("*/kustomization.yaml"):
        used |= {Path(name).name for name in yaml.safe_load(overlay.read_text())["components"]}
    unused = {folder.name for folder in (K8S / "components").iterdir()} - used
    if unused:
        raise SystemExit(f"components that nothing here renders: {sorted(unused)}")
    return made


def trains_alone(document):
    """Whether its pod is a whole run, which `oxbow train` starts."""
    return document["kind"] == "Job" and pod_template(document)["spec"]["containers"][0]["command"] == ["oxbow", "train"]


def pod_template(document):
    """The PodTemplateSpec of a workload; None of anything else."""
    spec = document.get("spec", {})
    if document["kind"] == "JobSet":
        return spec["replicatedJobs"][0]["template"]["spec"]["template"]
    return spec.get("template") if "template" in spec else None


def config_maps(documents):
    """name -> data."""
    return {document["metadata"]["name"]: document["data"] for document in documents if document["kind"] == "ConfigMap"}


def variables(container, maps):
    """name -> value from a container's environment; None for values that only a cluster knows."""
    made = {}
    for source in container.get("envFrom", []):
        made.update(maps[source["configMapRef"]["name"]])
    made.update({one["name"]: one.get("value") for one in container.get("env", [])})
    return made


def containers(document):
    template = pod_template(document)
    if template is None:
        return []
    return [*template["spec"].get("initContainers", []), *template["spec"]["containers"]]
