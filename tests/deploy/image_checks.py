# SPDX-License-Identifier: Apache-2.0
"""Checks of the images alone: size, user, content, a read-only root, health and an orderly end."""
import json
import re
import sys
import time
from pathlib import Path

from engine import Failure

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "tools"))
import sbom  # noqa: E402

COMPILERS = re.compile(r"(^|/)(gcc|g\+\+|cc|c\+\+|clang|cc1|cc1plus|ld|as|make|cmake|ninja|protoc|python3|perl5?)"
                       r"([-.]?[0-9.]+)?$")
# Debian's base contains Perl, which is not a compiler; nothing else of the above is allowed.
ALLOWED = re.compile(r"(^|/)perl[0-9.]*$")
LIBTORCH = re.compile(r"(^|/)lib(torch|c10|caffe2)[^/]*\.so")
HARDENED = ["--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--network", "none"]
HEALTHY_SECONDS = 180
DRAIN_SECONDS = 15


def files_of(docker, image):
    """Every path in an image."""
    found = docker("run", "--rm", "--network", "none", "--user", "0", image, "find", "/", "-xdev", "!", "-type", "d")
    return [path.lstrip("/") for path in found.stdout.splitlines()]


def require(kept, promise):
    if not kept:
        raise Failure(promise)


def check_content(docker, image, with_torch):
    files = files_of(docker, image)
    compilers = [f for f in files if COMPILERS.search(f) and not ALLOWED.search(f) and "/bin/" in f"/{f}"]
    compilers += [f for f in files if f.endswith(("cc1plus", ".a", "/ATen.h"))]
    require(not compilers, f"{image} has a compiler or what one needs: {compilers[:5]}")
    require(any(map(LIBTORCH.search, files)) == with_torch,
            f"{image} {'lacks' if with_torch else 'has'} LibTorch")


def check_labels(docker, image):
    require(docker.inspect(image, "{{.Config.User}}", kind="image") == "10001:10001", f"{image} runs as root")
    for label in ("title", "description", "version", "revision"):
        value = docker.inspect(image, '{{index .Config.Labels "org.opencontainers.image.%s"}}' % label, kind="image")
        require(value and value != "<no value>", f"{image} has no label {label}")


def check_bill(docker, image, packages):
    """The image says what is in it: a valid bill of materials that names `packages`."""
    said = docker("run", "--rm", *HARDENED, image, "cat", "/opt/oxbow/sbom/sbom.cdx.json").stdout
    bill = json.loads(said)
    wrong = list(sbom.breaches(bill))
    require(not wrong, f"the bill of materials of {image}: {wrong[:3]}")
    named = {component["name"] for component in bill["components"]}
    require(packages <= named, f"the bill of materials of {image} lacks {packages - named}")


def check_versions(docker, image, binaries):
    for binary in binaries:
        said = docker("run", "--rm", *HARDENED, image, binary, "--version").stdout
        require(re.search(r"\d+\.\d+\.\d+", said), f"{binary} of {image} does not say its version: {said}")


def check_cuda(docker, image, binaries):
    """Each program is linked with CUDA's LibTorch, and all its libraries are there but the driver's."""
    for binary in binaries:
        libraries = docker("run", "--rm", *HARDENED, image, "sh", "-c", f"ldd $(command -v {binary})").stdout
        missing = [line.strip() for line in libraries.splitlines() if "not found" in line and "libcuda.so" not in line]
        require(not missing, f"{binary} of {image} does not find {missing[:3]}")
        require("libtorch_cuda.so" in libraries, f"{binary} of {image} is not linked with libtorch_cuda.so")


def check_kernels(docker, image, binaries):
    """The programs that run networks have the fused kernels: names of kernels stay in a stripped binary."""
    for binary in binaries:
        found = docker("run", "--rm", *HARDENED, image, "sh", "-c", f"grep -c 5fused.*GateKernel $(command -v {binary})", check=False)
        require(found.returncode == 0, f"{binary} of {image} was built without nvcc: it has no fused kernels")


def check_runs(docker, image):
    """A short run on the CPU ends well; the same on a GPU that is not there ends at once with a line that says so."""
    command = ("run", "--rm", *HARDENED, "--tmpfs", "/tmp", "--tmpfs", "/runs:uid=10001", image, "oxbow", "train", "configs/digits.yaml",
               "--set", "run.directory=/runs", "--set", "run.steps=2")
    docker(*command, seconds=300)
    gpu = docker(*command, "--set", "model.device=cuda", seconds=300, check=False)
    require(gpu.returncode == 2 and "GPU" in gpu.stderr, f"without a GPU: exit code {gpu.returncode}: {gpu.stderr[-300:]}")


def check_service(docker, image, command=(), flags=(), health="127.0.0.1:7071"):
    """Starts a service with a read-only root, without capabilities and without a network, waits until its health
    check passes, and stops it. Returns the seconds until each."""
    start = time.monotonic()
    container = docker("run", "--detach", *HARDENED, *flags, "--env", f"OXBOW_HEALTH_ADDR={health}", image,
                       *command).stdout.strip()
    try:
        docker.await_healthy(container, HEALTHY_SECONDS)
        healthy = time.monotonic() - start
        processes = docker("top", container, "-o", "pid,args").stdout.splitlines()[1:]
        require(not any("sh -c" in p for p in processes), f"a shell stands before the service: {processes}")
        touch = docker("exec", container, "touch", "/opt/oxbow/written", check=False)
        require(touch.returncode != 0, f"the root of {image} can be written")
        require(docker("exec", container, "id", "-u").stdout.strip() == "10001", f"{image} runs as another user")
        alone = docker("exec", container, "oxbow_health", "--addr", "127.0.0.1:1", check=False)
        require(alone.returncode == 2, f"oxbow_health where nobody listens: exit code {alone.returncode}")
        start = time.monotonic()
        docker("stop", "--time", 2 * DRAIN_SECONDS, container)
        drained = time.monotonic() - start
        code = docker.exit_code(container)
        require(code == 0, f"{image} {' '.join(command)} ends by SIGTERM with {code}")
        require(drained < DRAIN_SECONDS, f"{image} took {drained:.1f} s to end")
        return healthy, drained
    finally:
        docker("rm", "-f", container)
