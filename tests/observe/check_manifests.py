#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the manifests beyond their types: their parts fit together, and the binaries know the flags.

For each rendering: selectors of Services, PodDisruptionBudgets and PodMonitors match pods; ports that are named or probed
exist; mounts, claims, ConfigMaps and secrets exist; each container has limits, probes and a locked-down security context; each
workload has a NetworkPolicy; each server has TLS, with its files and probes that support it, or asks for plaintext;
addresses in flags are Services and ports of the rendering. Flags and subcommands, also of
deploy/compose, are in the binary's --help; each run.yaml resolves, and so does every recipe of configs/, with room in the
learner's sink for the groups of its steps. A JobSet or Job charges no eviction or drain, and repeats no end that would come
again. Every GPU that a pod asks for has a rank or a worker, and shared memory.

  check_manifests.py --bin build/release/bin [--kubectl PATH]
"""
import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

from rendered import ROOT, all_rendered, config_maps, containers, pod_template, trains_alone, variables

WORKLOADS = {"Deployment", "StatefulSet", "JobSet"}
GPU, SHM_LEAST_GIB = "nvidia.com/gpu", 1
ADDRESS = re.compile(r"^([a-z0-9-]+):(\d+)$")


def is_workload(document):
    """Whether pods of the run come from it; a Job may be a loader's."""
    return document["kind"] in WORKLOADS or trains_alone(document)


def matches(selector, labels):
    expressions = selector.get("matchExpressions", [])
    wanted = selector.get("matchLabels", {} if expressions else selector)
    return (all(labels.get(key) == value for key, value in wanted.items())
            and all(labels.get(one["key"]) in one["values"] for one in expressions))


def pod_labels(document):
    """Labels of the template, and those that the controller adds to the first pod."""
    labels = dict(pod_template(document)["metadata"]["labels"])
    if document["kind"] == "StatefulSet":
        labels["statefulset.kubernetes.io/pod-name"] = f"{document['metadata']['name']}-0"
    if document["kind"] == "JobSet":
        labels["batch.kubernetes.io/job-completion-index"] = "0"
    return labels


def selector_breaches(documents, workloads):
    for document in documents:
        kind, spec = document["kind"], document.get("spec", {})
        selector = {"Service": spec.get("selector"), "PodDisruptionBudget": spec.get("selector"),
                    "PodMonitor": spec.get("selector"),
                    "NetworkPolicy": spec.get("podSelector") or None}.get(kind)
        if not selector:
            continue
        chosen = [pod for pod in workloads if matches(selector, pod_labels(pod))]
        if not chosen:
            yield document, "selects no pod"
        ports = {port.get("name") for pod in chosen for one in containers(pod)
                 for port in one.get("ports", [])}
        for port in spec.get("ports", []) if kind == "Service" else []:
            if port["targetPort"] not in ports:
                yield document, f"no such port: {port['targetPort']}"
        for pod in chosen if kind == "PodMonitor" else []:
            if spec["podMetricsEndpoints"][0]["port"] not in ports:
                yield pod, "has no port for metrics"


def container_breaches(pod, container):
    context = container.get("securityContext", {})
    if (context.get("allowPrivilegeEscalation") is not False
            or context.get("readOnlyRootFilesystem") is not True
            or context.get("capabilities", {}).get("drop") != ["ALL"]):
        yield f"{container['name']}: security context"
    if "memory" not in container["resources"].get("limits", {}):
        yield f"{container['name']}: no limit of memory"
    claims = {claim["metadata"]["name"] for claim in pod["spec"].get("volumeClaimTemplates", [])}
    volumes = claims | {volume["name"] for volume in pod_template(pod)["spec"].get("volumes", [])}
    for mount in container.get("volumeMounts", []):
        if mount["name"] not in volumes:
            yield f"{container['name']}: no such volume: {mount['name']}"


def probe_breaches(container, said):
    """Checks a service: each probe uses one of its ports, with the protocol of that port."""
    ports = {port["containerPort"] for port in container.get("ports", [])}
    address, tls = said.get("OXBOW_HEALTH_ADDR") or ":0", "OXBOW_TLS_CERT" in said
    if int(address.rsplit(":", 1)[1]) not in ports:
        yield f"{container['name']}: OXBOW_HEALTH_ADDR is no port of the container"
    if {"startupProbe", "livenessProbe"} - set(container):
        yield f"{container['name']}: no startupProbe or livenessProbe"
    for probe in {"startupProbe", "readinessProbe", "livenessProbe"} & set(container):
        asked = container[probe]
        if tls and asked.get("exec", {}).get("command") != ["oxbow_health"]:
            yield f"{container['name']}: {probe} knows no TLS"
        if not tls and asked.get("grpc", {}).get("port") not in ports:
            yield f"{container['name']}: {probe} asks no port of the container"


def transport_breaches(pod, container, said):
    """Checks that there is TLS with files from a volume, or plaintext, but not both."""
    files = [said[name] for name in ("OXBOW_TLS_CA", "OXBOW_TLS_CERT", "OXBOW_TLS_KEY") if name in said]
    if ("OXBOW_PLAINTEXT" in said) == bool(files) or len(files) not in (0, 3):
        yield f"{container['name']}: neither TLS nor plaintext, or both"
    secrets = {volume["name"] for volume in pod_template(pod)["spec"].get("volumes", []) if "secret" in volume}
    folders = {mount["mountPath"] for mount in container.get("volumeMounts", []) if mount["name"] in secrets}
    yield from (f"{container['name']}: no volume holds {file}" for file in files
                if str(Path(file).parent) not in folders)


ROLE_OF = {"learner": "learner", "rollout_worker": "worker", "replay_buffer": "buffer", "reward_server": "reward"}


def role_breaches(pod, documents):
    """Checks that a service's certificate has its role and no other, and a worker's binds the names of its pods."""
    spec = pod_template(pod)["spec"]
    role = ROLE_OF.get(spec["containers"][0]["command"][0])
    uris = {document["spec"]["secretName"]: document["spec"].get("uris", []) for document in documents
            if document["kind"] == "Certificate"}
    for volume in spec.get("volumes", []):
        if volume["name"] != "tls":
            continue
        found = uris.get(volume["secret"]["secretName"], [])
        wanted = [f"oxbow://oxbow/{role}" + (f"/{pod['metadata']['name']}" if role == "worker" else "")]
        if found != wanted:
            yield f"its certificate is of {found}, not {wanted}"


def service_breaches(pod, documents):
    yield from role_breaches(pod, documents)
    maps = config_maps(documents)
    for container in pod_template(pod)["spec"]["containers"]:
        missing = [source["configMapRef"]["name"] for source in container.get("envFrom", [])
                   if source["configMapRef"]["name"] not in maps]
        if missing:
            yield f"{container['name']}: no such ConfigMap: {missing[0]}"
            continue
        said = variables(container, maps)
        if trains_alone(pod):  # It listens on loopback alone.
            yield from (f"{container['name']}: {what} that nothing answers" for what in container
                        if what == "ports" or what.endswith("Probe"))
            continue
        yield from probe_breaches(container, said)
        yield from transport_breaches(pod, container, said)


def pod_breaches(pod, documents):
    spec = pod_template(pod)["spec"]
    context = spec.get("securityContext", {})
    if context.get("runAsNonRoot") is not True or context.get("seccompProfile") != {"type": "RuntimeDefault"}:
        yield "security context of the pod"
    if spec.get("automountServiceAccountToken") is not False:
        yield "gets a token of the cluster that it does not need"
    if "terminationGracePeriodSeconds" not in spec:
        yield "no time to drain"
    for container in containers(pod):
        yield from container_breaches(pod, container)
    names = {(document["kind"], document["metadata"]["name"]) for document in documents}
    names |= {("Secret", document["spec"]["secretName"]) for document in documents if document["kind"] == "Certificate"}
    for volume in spec.get("volumes", []):
        for kind, name in (("ConfigMap", volume.get("configMap", {}).get("name")),
                           ("Secret", volume.get("secret", {}).get("secretName")),
                           ("PersistentVolumeClaim", volume.get("persistentVolumeClaim", {}).get("claimName"))):
            if name and (kind, name) not in names:
                yield f"no such {kind}: {name}"
    if pod["kind"] == "StatefulSet" and ("Service", pod["spec"]["serviceName"]) not in names:
        yield f"no such Service: {pod['spec']['serviceName']}"


def rank_breaches(pod):
    """Checks that the number of pods is WORLD_SIZE, and that rank 0 is at MASTER_ADDR."""
    for container in containers(pod):
        variables = {one["name"]: one.get("value") for one in container.get("env", [])}
        if "WORLD_SIZE" not in variables:
            continue
        if pod["kind"] == "JobSet":
            job = pod["spec"]["replicatedJobs"][0]
            pods = job["template"]["spec"]["completions"]
            first = f"{pod['metadata']['name']}-{job['name']}-0-0.{pod['spec']['network']['subdomain']}"
        else:
            pods = pod["spec"]["replicas"]
            first = f"{pod['metadata']['name']}-0.{pod['spec']['serviceName']}"
        if variables["WORLD_SIZE"] != str(pods):
            yield f"WORLD_SIZE is {variables['WORLD_SIZE']} and there are {pods} pods"
        if variables["MASTER_ADDR"] != first:
            yield f"MASTER_ADDR is {variables['MASTER_ADDR']} and rank 0 is {first}"


def address_breaches(container, services):
    for argument in container.get("args", []):
        for value in argument.split("=", 1)[-1].split(","):
            found = ADDRESS.match(value)
            if found and found[1] not in ("0.0.0.0",) and int(found[2]) not in services.get(found[1], []):
                yield f"no such Service and port: {value}"


class Help:
    """The flags and subcommands in the --help of the binaries."""

    def __init__(self, directory):
        self.directory = directory
        self.texts = {}

    def text(self, command):
        if command not in self.texts:
            done = subprocess.run([self.directory / command[0], *command[1:], "--help"],
                                  capture_output=True, text=True, check=False)
            self.texts[command] = done.stdout if done.returncode == 0 else ""
        return self.texts[command]

    def breaches(self, words):
        """Checks one command line: the binary, its subcommands, its flags."""
        if words[:2] == ["sh", "-c"]:
            words = words[2].split(">")[0].split()
            if words[0] not in OURS:
                return
        command = (Path(words[0]).name,)
        rest = list(words[1:])
        while rest and not rest[0].startswith("-") and self.text((*command, rest[0])) != "":
            if self.text((*command, rest[0])) == self.text(command):
                break
            command = (*command, rest.pop(0))
        text = self.text(command)
        if not text:
            yield f"no such command: {' '.join(command)}"
            return
        for word in rest:
            flag = word.split("=")[0]
            if flag.startswith("--") and not re.search(rf"(?<![\w-]){re.escape(flag)}(?![\w-])", text):
                yield f"{' '.join(command)} knows no {flag}"


def latent_bytes(config):
    """Bytes of a latent: of an embedded model from its directory, else of Stable Diffusion 3."""
    model = ROOT / config["model"]["path"] / "transformer" / "config.json"
    channels, factor = (json.loads(model.read_text())["in_channels"], 1) if model.is_file() else (16, 8)
    sampling = config["sampling"]
    width = {"f32": 4, "bf16": 2, "f16": 2}[sampling["storage"]]
    return width * channels * (sampling["height"] // factor) * (sampling["width"] // factor)


def sink_bytes_needed(config):
    """CheckSink of services/learner/run_setup.cc: the groups that may be held at once, with all their latents."""
    sampling, batch = config["sampling"], config["batch"]
    window = sampling["window"]
    latents = 1
    if config["replay"]["fraction"] > 0 and sampling["tail"] == "sde":
        latents = sampling["steps"] + 1
    elif config["method"]["name"] not in ("nft", "awm", "v_grpo") and sampling["dynamics"] != "ode":
        end = min(sampling["sde_first"] + sampling["sde_count"], sampling["steps"] - 1)
        span = window["size"]
        if window["kind"] == "fixed":
            span = max(window["steps"]) - min(window["steps"]) + 1
        elif window["kind"] == "all" or (window["kind"] == "subset" and span > 1):
            span = end - sampling["sde_first"]
        latents = span + 1
    groups = batch["groups"] * (config["off_policy"]["staleness_max"] + 2) + batch["dynamic_sampling_max"]
    return groups * batch["group_size"] * latents * latent_bytes(config)


def resolved(file, directory):
    """(config, None) for a run file, or (None, error)."""
    done = subprocess.run([directory / "oxbow", "config", "show", file, "--resolved"], cwd=ROOT,
                          capture_output=True, text=True, check=False)
    return (yaml.safe_load(done.stdout), None) if done.returncode == 0 else (None, done.stderr.strip())


def sink_breaches(config):
    needed, there = sink_bytes_needed(config), config["services"]["sink_bytes_max"]
    if needed > there:
        yield f"services.sink_bytes_max is {there} and the learner will ask for {needed}"


def recipe_breaches(directory):
    for file in sorted((ROOT / "configs").glob("recipes/*.yaml")) + sorted((ROOT / "configs").glob("*.yaml")):
        if file.name == "defaults.yaml":
            continue
        config, why = resolved(file, directory)
        # A recipe that leaves settings to others has no size.
        whole = config and config["sampling"]["height"] > 0
        for what in [why] if why else sink_breaches(config) if whole else []:
            yield f"{file.relative_to(ROOT)}: {what}"


def gpus_used(container):
    """How many GPUs its process, or those that it starts, compute on; None: all."""
    words = [*container["command"], *container.get("args", [])]
    program = Path(words[0]).name
    if program == "rollout_worker":
        return None if "--gpus=all" in words else int(any(word.startswith("--device=cuda") for word in words))
    if program == "learner":
        return next((int(word.split("=")[1]) for word in words if word.startswith("--ranks=")), 1)
    return None if program == "oxbow" else 0


def device_breaches(pod, container):
    """Checks that each GPU is computed on, and that the processes of several have shared memory for NCCL."""
    asked = int(container["resources"].get("limits", {}).get(GPU, 0))
    used = gpus_used(container)
    # A learner on the CPU asks for none.
    if used is not None and used != asked and not (asked == 0 and "learner" in container["command"]):
        yield f"{container['name']}: {asked} GPUs, and {used} processes for them"
    if used is None and asked < 2:
        yield f"{container['name']}: takes all GPUs of its pod, which has {asked}"
    sizes = {volume["name"]: volume["emptyDir"].get("sizeLimit", "") for volume in pod_template(pod)["spec"].get("volumes", [])
             if volume.get("emptyDir", {}).get("medium") == "Memory"}
    shared = [sizes.get(mount["name"], "") for mount in container.get("volumeMounts", []) if mount["mountPath"] == "/dev/shm"]
    if asked > 0 and not any(re.fullmatch(r"\d+Gi", size) and int(size[:-2]) >= SHM_LEAST_GIB * asked for size in shared):
        yield f"{container['name']}: {asked} GPUs, and less than {SHM_LEAST_GIB * asked}Gi at /dev/shm"


def run_breaches(documents, directory):
    """Checks the ConfigMap `run`: the services can read its file, and the learner can start with it."""
    for document in documents:
        text = document.get("data", {}).get("run.yaml") if document["kind"] == "ConfigMap" else None
        if text is None:
            continue
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write(text)
            file.flush()
            config, why = resolved(file.name, directory)
        for what in [why] if why else (*sink_breaches(config), *place_breaches(documents, config)):
            yield document, what


def place_breaches(documents, config):
    """Checks that `oxbow train` writes the run to a claim; a learner is told by a flag."""
    for pod in filter(trains_alone, documents):
        spec = pod_template(pod)["spec"]
        claims = {volume["name"] for volume in spec["volumes"] if "persistentVolumeClaim" in volume}
        kept = [mount["mountPath"] for mount in spec["containers"][0]["volumeMounts"]
                if mount["name"] in claims and not mount.get("readOnly")]
        if config["run"]["directory"] not in kept:
            yield f"run.directory is {config['run']['directory']}, and the volumes that stay are {kept}"


def compose_commands():
    for path in sorted((ROOT / "deploy").glob("compose/*.y*ml")):
        document = yaml.safe_load(path.read_text())
        for name, service in (document.get("services") or {}).items():
            words = service.get("command")
            if isinstance(words, str):
                words = words.split()
            if words and (service.get("image", "").startswith("oxbow/") or Path(words[0]).name in OURS):
                yield f"{path.name}: {name}", words


def compose_breaches():
    """Checks that services that listen beyond their container ask for plaintext, and that tls.yaml removes this for each."""
    plain, tls = (yaml.safe_load((ROOT / "deploy/compose" / name).read_text())
                  for name in ("docker-compose.yml", "tls.yaml"))
    listening = {name for name, service in plain["services"].items()
                 if "--listen" in service.get("command", []) and service["image"].startswith("${OXBOW_")}
    said = {name for name, service in plain["services"].items()
            if "OXBOW_PLAINTEXT" in (service.get("environment") or {})}
    for name, service in plain["services"].items():
        if not {"mem_limit", "pids_limit"} <= set(service):
            yield f"docker-compose.yml: {name}: no limit of memory or processes"
    for name in listening ^ said:
        yield f"docker-compose.yml: {name}: OXBOW_PLAINTEXT belongs to who listens"
    for name in listening ^ set(tls["services"]):
        yield f"tls.yaml: {name}: not one of the services that listen"
    for name, service in tls["services"].items():
        mounted = {secret.get("target"): secret["source"] for secret in service["secrets"] if isinstance(secret, dict)}
        mounted |= {secret: secret for secret in service["secrets"] if isinstance(secret, str)}
        files = {f"/run/secrets/{target}" for target, source in mounted.items() if source in tls["secrets"]}
        role = ROLE_OF[plain["services"][name]["command"][0]]
        for target in ("tls_cert", "tls_key"):
            path = tls["secrets"].get(mounted.get(target), {}).get("file", "")
            if Path(path).parent.name != role:
                yield f"tls.yaml: {name}: {target} is {path}, not of the role {role}"
        said = service["environment"]
        if said["OXBOW_PLAINTEXT"] or {said[f"OXBOW_TLS_{file}"] for file in ("CA", "CERT", "KEY")} != files:
            yield f"tls.yaml: {name}: still plaintext, or a file that is no secret"


# The actions of a JobSet or a Job when a pod ends with a code of docs/formats.md, is killed, or is evicted.
ENDS = {"not charged": (3, 5, 9, 10, "evicted"), "charged": (1, 6, 134, 137, 139), "the end": (2, 4, 7, 8)}
DOES = {"RestartJobSetAndIgnoreMaxRestarts": "not charged", "RestartJobSet": "charged", "FailJobSet": "the end",
        "Ignore": "not charged", "Count": "charged", "FailJob": "the end"}


def matched_rule(job, end):
    """(index, action) of the first rule that a Job has for this end of a pod."""
    for index, rule in enumerate(job.get("podFailurePolicy", {}).get("rules", [])):
        evicted = any(one["type"] == "DisruptionTarget" for one in rule.get("onPodConditions", []))
        if (evicted and end == "evicted") or end in rule.get("onExitCodes", {}).get("values", []):
            return index, rule["action"]
    return None, "Count"


def action_after(document, end):
    """As the Job and the JobSet controller decide it; the message is that of Kubernetes."""
    if document["kind"] == "Job":
        return matched_rule(document["spec"], end)[1]
    reason, message = "BackoffLimitExceeded", "Job has reached the specified backoff limit"
    index, action = matched_rule(document["spec"]["replicatedJobs"][0]["template"]["spec"], end)
    if index is not None:
        reason, message = "PodFailurePolicy", f"Pod run/rank matching {action} rule at index {index}"
    for rule in document["spec"]["failurePolicy"].get("rules", []):
        if reason in rule.get("onJobFailureReasons", [reason]) and any(
                re.search(pattern, message) for pattern in rule.get("onJobFailureMessagePatterns", [""])):
            return rule["action"]
    return "RestartJobSet"


def end_breaches(document):
    for wanted, ends in ENDS.items() if document["kind"] in ("JobSet", "Job") else ():
        for end in ends:
            if (does := DOES[action_after(document, end)]) != wanted:
                yield f"{end} is {does}, and should be {wanted}"
    # `oxbow train` ends so by SIGTERM: somebody deleted its pod.
    if document["kind"] == "Job" and DOES[action_after(document, 143)] != "not charged":
        yield "SIGTERM is charged"


OURS = {"learner", "rollout_worker", "replay_buffer", "reward_server", "oxbow"}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", type=Path, required=True)
    parser.add_argument("--kubectl", default="kubectl")
    arguments = parser.parse_args()
    binaries = Help(arguments.bin)
    breaches, commands = list(recipe_breaches(arguments.bin)), 0
    for name, documents in all_rendered(arguments.kubectl).items():
        def breach(document, what):
            breaches.append(f"{name}: {document['kind']} {document['metadata']['name']}: {what}")
        workloads = [document for document in documents if is_workload(document)]
        services = {document["metadata"]["name"]: [port["port"] for port in document["spec"]["ports"]]
                    for document in documents if document["kind"] == "Service"}
        jobs = [document for document in documents if document["kind"] == "Job" and document not in workloads]
        for document, what in selector_breaches(documents, [*workloads, *jobs]):
            breach(document, what)
        for document, what in run_breaches(documents, arguments.bin):
            breach(document, what)
        for pod in workloads:
            for what in (*pod_breaches(pod, documents), *service_breaches(pod, documents), *rank_breaches(pod),
                         *end_breaches(pod)):
                breach(pod, what)
            for container in containers(pod):
                commands += 1
                words = [*container["command"], *container.get("args", [])]
                for what in (*binaries.breaches(words), *address_breaches(container, services),
                             *device_breaches(pod, container)):
                    breach(pod, what)
    breaches += compose_breaches()
    for place, words in compose_commands():
        commands += 1
        breaches += [f"{place}: {what}" for what in binaries.breaches(words)]
    for what in breaches:
        print(what)
    if breaches:
        return 1
    print(f"{commands} command lines fit the binaries and what is around them")
    return 0


if __name__ == "__main__":
    sys.exit(main())
