#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the manifests' command lines and environment as processes of this machine, and checks that they train.

Each pod gets its own address in 127.0.0.0/8 as its IP, a Service the address of one of its pods, and a volume
a folder; a Certificate's secret is made by `oxbow certificates`. Init containers run first. Then: the
learner commits two steps, every probe's port answers `oxbow_health` in the pod's environment and, under TLS, nobody
without a certificate, and SIGTERM ends every process with exit code 0, ranks of the learner with 9. A pod that is a whole run
commits two steps, ends by SIGTERM with 143, and the same command goes on from there to the end. This tests no kubelet, no network
policy and no volume.

  pods_check.py --bin build/release/bin [--kubectl PATH] RENDERING...
"""
import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

from rendered import ROOT, all_rendered, config_maps, pod_template, trains_alone

SECONDS = 60


def make_secret(secrets, binaries, certificate):
    """Makes the secret as cert-manager would: `oxbow certificates` for the fleet and the member of the URI."""
    spec = certificate["spec"]
    name, = spec["dnsNames"]
    fleet, member = spec["uris"][0].removeprefix("oxbow://").split("/", 1)
    if name != fleet:
        raise SystemExit(f"{certificate['metadata']['name']}: DNS name {name} and fleet {fleet} differ")
    subprocess.run([binaries / "oxbow", "certificates", secrets / "authority", "--fleet", fleet, "--member", member],
                   capture_output=True, check=True)
    shutil.copytree(secrets / "authority" / member.replace("/", "-"), secrets / spec["secretName"])


class Pod:
    def __init__(self, workload, index, address, root):
        self.name = f"{workload['metadata']['name']}-{index}"
        self.spec = pod_template(workload)["spec"]
        self.labels = dict(pod_template(workload)["metadata"]["labels"])
        self.address = address
        self.root = root / self.name
        self.variables = {"JOB_COMPLETION_INDEX": str(index)} if workload["kind"] == "JobSet" else {}
        # Names by which other pods reach it.
        self.hosts = {f"{self.name}.{workload['spec'].get('serviceName', '')}"}
        if workload["kind"] == "JobSet":
            self.hosts = {f"{workload['metadata']['name']}-{workload['spec']['replicatedJobs'][0]['name']}-0-{index}"
                          f".{workload['spec']['network']['subdomain']}"}
            self.labels["batch.kubernetes.io/job-completion-index"] = str(index)
        if workload["kind"] == "StatefulSet":
            self.labels["statefulset.kubernetes.io/pod-name"] = self.name
        self.process = None

    def here(self, text, hosts):
        """Translates a word of a command line, or a variable's value, to this machine."""
        text = text.replace("$(POD_IP)", self.address).replace("$(POD_NAME)", self.name)
        text = re.sub(r"0\.0\.0\.0|127\.0\.0\.1", self.address, text)
        for host, address in hosts.items():
            text = re.sub(rf"(?<![\w.-]){re.escape(host)}(?=:\d)", address, text)
        mounts = {mount["mountPath"] for part in ("initContainers", "containers")
                  for container in self.spec.get(part, []) for mount in container.get("volumeMounts", [])}
        for mount in mounts - {"/tmp"}:
            text = re.sub(rf"(?<![\w/]){re.escape(mount)}(?=/|$)", str(self.root) + mount, text)
        return text

    def environment(self, container, maps, hosts):
        made = {"OMP_NUM_THREADS": "1", **self.variables}
        for source in container.get("envFrom", []):
            for name, value in maps[source["configMapRef"]["name"]].items():
                made[name] = self.here(value, hosts)
        for variable in container.get("env", []):
            field = variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath", "")
            value = {"status.podIP": self.address, "metadata.name": self.name}.get(field, "0")
            value = variable.get("value", value)
            made[variable["name"]] = hosts.get(value) or self.here(value, hosts)
        return made

    def mount(self, maps, secrets):
        """Fills the folders that stand for volumes."""
        volumes = {volume["name"]: volume for volume in self.spec.get("volumes", [])}
        for container in (*self.spec.get("initContainers", []), *self.spec["containers"]):
            for mount in container.get("volumeMounts", []):
                folder = self.root / mount["mountPath"][1:]
                volume = volumes.get(mount["name"], {})
                if "persistentVolumeClaim" in volume:  # One for all pods that claim it.
                    shared = self.root.parent / "claims" / volume["persistentVolumeClaim"]["claimName"]
                    shared.mkdir(parents=True, exist_ok=True)
                    folder.parent.mkdir(parents=True, exist_ok=True)
                    if not folder.exists():
                        folder.symlink_to(shared)
                folder.mkdir(parents=True, exist_ok=True)
                for file, text in maps.get(volume.get("configMap", {}).get("name"), {}).items():
                    (folder / file).write_text(text)
                if "secret" in volume:
                    for file in ("ca.crt", "tls.crt", "tls.key"):
                        shutil.copy(secrets / volume["secret"]["secretName"] / file, folder)

    def start(self, binaries, maps, secrets, hosts):
        self.mount(maps, secrets)
        path = {**os.environ, "PATH": f"{binaries}:{os.environ['PATH']}"}
        for container in self.spec.get("initContainers", []):
            words = [self.here(word, hosts) for word in container["command"]]
            subprocess.run(words, env=path, cwd=ROOT, check=True)
        container = self.spec["containers"][0]
        words = [self.here(word, hosts) for word in (*container["command"], *container["args"])]
        self.root.mkdir(parents=True, exist_ok=True)
        self.known = {**path, **self.environment(container, maps, hosts)}
        self.process = subprocess.Popen(words, env=self.known, cwd=ROOT, stdout=subprocess.DEVNULL,
                                        stderr=(self.root / "log").open("w"))

    def probe(self):
        """The error in the probe's answer."""
        asked = self.spec["containers"][0]["startupProbe"]
        command = asked.get("exec", {}).get("command") or [
            "oxbow_health", f"--addr={self.address}:{asked['grpc']['port']}"]
        done = subprocess.run(command, env=self.known, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            yield f"{self.name}: the probe's port does not serve: {done.stdout}{done.stderr}"
        if "OXBOW_TLS_CERT" in self.known:
            bare = {name: value for name, value in self.known.items() if not name.startswith("OXBOW_TLS_")}
            if subprocess.run(command, env=bare, capture_output=True, check=False).returncode != 2:
                yield f"{self.name}: answers who has no certificate"

    def ends_within(self, seconds):
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def last_words(self):
        return f"{self.name}: " + " | ".join((self.root / "log").read_text().splitlines()[-3:])


def pods_of(documents, root):
    made = []
    for document in documents:
        spec = document.get("spec", {})
        if document["kind"] not in ("Deployment", "StatefulSet", "JobSet"):
            continue
        count = (spec["replicas"] if "replicas" in spec
                 else spec["replicatedJobs"][0]["template"]["spec"]["completions"])
        for index in range(count):
            made.append(Pod(document, index, f"127.0.1.{len(made) + 1}", root))
    return made


def names_of(documents, pods):
    """Service and pod names, each with the address of one of its pods."""
    hosts = {host: pod.address for pod in pods for host in pod.hosts}
    for document in documents:
        if document["kind"] == "Service":
            selector = document["spec"]["selector"]
            behind = [pod for pod in pods if selector.items() <= pod.labels.items()]
            hosts[document["metadata"]["name"]] = behind[0].address
    return hosts


def committed_updates(address):
    try:
        with urllib.request.urlopen(f"http://{address}:9464/metrics", timeout=2) as page:
            found = re.search(r"^oxbow_learner_policy_version (\d+)", page.read().decode(), re.MULTILINE)
            return int(found[1]) if found else 0
    except (OSError, urllib.error.URLError):
        return 0


def steps_in(folder):
    """Committed steps of a run's directory."""
    file = folder / "steps.jsonl"
    return len(file.read_text().splitlines()) if file.exists() else 0


def problems_of_whole_run(name, job, documents, binaries, root):
    """A Job whose pod is started again with the same command."""
    runs = root / "claims" / "runs"
    for life, steps, code in (("first", 100000, 143), ("second", None, 0)):
        pod = Pod(job, 0, "127.0.0.1", root)
        resumed = steps_in(runs / "run")
        pod.variables = {"OXBOW__RUN__DIRECTORY": str(runs), "OXBOW__RUN__STEPS": str(steps or resumed + 2)}
        pod.start(binaries, config_maps(documents), root / "secrets", {})
        try:
            deadline = time.monotonic() + SECONDS
            while not pod.ends_within(0.3) and (steps is None or steps_in(runs / "run") < 2):
                if time.monotonic() > deadline:
                    yield f"{name}: the {life} pod: no end of its steps in {SECONDS} s: {pod.last_words()}"
                    return
            pod.process.send_signal(signal.SIGTERM)
            if pod.process.wait(30) != code:
                yield f"{name}: the {life} pod: exit code {pod.process.returncode}: {pod.last_words()}"
                return
        finally:
            if pod.process.poll() is None:
                pod.process.kill()
    if steps_in(runs / "run") != resumed + 2:
        yield f"{name}: {steps_in(runs / 'run')} steps after {resumed} and 2 more"


def problems_of(name, documents, binaries, root):
    for job in filter(trains_alone, documents):
        yield from problems_of_whole_run(name, job, documents, binaries, root)
        return
    pods = pods_of(documents, root)
    hosts = names_of(documents, pods)
    for document in documents:
        if document["kind"] == "Certificate" and "dnsNames" in document["spec"]:
            make_secret(root / "secrets", binaries, document)
    deadline = time.monotonic() + SECONDS
    try:
        for pod in pods:
            pod.start(binaries, config_maps(documents), root / "secrets", hosts)
        while committed_updates(hosts["learner"]) < 4:
            ended = [pod for pod in pods if pod.process.poll() is not None]
            if ended or time.monotonic() > deadline:
                yield f"{name}: no two steps in {SECONDS} s"
                yield from (pod.last_words() for pod in ended or pods)
                return
            pods[0].ends_within(0.3)
        for pod in pods:
            yield from (f"{name}: {what}" for what in pod.probe())
        for pod in pods:
            pod.process.send_signal(signal.SIGTERM)
        for pod in pods:
            drained = 9 if pod.labels["app.kubernetes.io/component"] == "learner" else 0
            if pod.process.wait(30) != drained:
                yield f"{name}: SIGTERM: exit code {pod.process.returncode}: {pod.last_words()}"
    finally:
        for pod in pods:
            if pod.process is not None and pod.process.poll() is None:
                pod.process.kill()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", type=Path, required=True)
    parser.add_argument("--kubectl", default="kubectl")
    parser.add_argument("renderings", nargs="+")
    arguments = parser.parse_args()
    rendered = all_rendered(arguments.kubectl)
    begun = time.monotonic()
    problems = []
    for name in arguments.renderings:
        root = Path(tempfile.mkdtemp(prefix="oxbow-pods-"))
        problems += problems_of(name, rendered[name], arguments.bin.resolve(), root)
        shutil.rmtree(root, ignore_errors=True)
    for problem in problems:
        print(problem)
    if problems:
        return 1
    print(f"{' and '.join(arguments.renderings)} train, answer probes and drain, {time.monotonic() - begun:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
