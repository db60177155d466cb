#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails on an include that points up the layers of docs/architecture.md, and prints each one.

    base, metrics < core < simulate < io < rewards < config < run < telemetry, rpc < services < cli;
    tests, bench and examples may see everything, and nothing of the product sees them

Further: core sees std, base and ATen only; what the replay buffer links never sees torch; base, core,
simulate and io see no gRPC, protobuf or RocksDB. `--self-test` shows that each rule catches its break.
"""
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# A file's layer by the longest matching prefix; it may include its own layer and lower ones.
LAYERS = [
    ("src/base/", 0), ("src/metrics/", 0), ("src/core/replay/", 1), ("src/core/lease/", 1.5), ("src/core/reward/", 3),
    ("src/core/parallel/", 4), ("src/core/flow/", 5), ("src/core/model/", 6), ("src/core/rl/", 7),
    ("src/simulate/", 7.8), ("src/io/", 8), ("src/rewards/", 8.5), ("proto/", 8), ("src/config/", 9), ("src/run/", 9.5), ("src/telemetry/", 10), ("src/rpc/", 10),
    ("services/", 11), ("cli/", 12), ("examples/", 13), ("tests/", 13), ("bench/", 13),
]
# Contracts that rollout, learner and cli share, and clients of other services: services may include
# only these headers of each other.
SERVICE_FACES = re.compile(r"services/\w+/\w*(client|metrics|options)\w*\.h$|services/weights/")
TORCH = re.compile(r"^(ATen|c10|torch|caffe2)/")
WIRE = re.compile(r"^(grpc|grpcpp|google/protobuf|rocksdb|prometheus)/|\.pb\.h$")
INCLUDE = re.compile(r'^\s*#\s*include\s+[<"]([^>"]+)[>"]', re.MULTILINE)


def tracked():
    out = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "*.h", "*.cc", "*.cu"],
                         cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return {name: (ROOT / name).read_text() for name in out.split() if (ROOT / name).is_file()}


def layer_of(path):
    matches = [(len(prefix), layer) for prefix, layer in LAYERS if path.startswith(prefix)]
    return max(matches)[1] if matches else None


def resolve(include, files):
    """The repository file behind an include, or None."""
    for path in ("src/" + include, include):
        if path in files:
            return path
    return "proto/" + include if include.startswith("oxbow/v1/") else None


def is_test(path):
    return path.endswith("_test.cc") or path.startswith(("tests/", "bench/"))


def upward(path, target):
    if path.startswith(("tests/", "bench/")):
        return None
    if is_test(path) and target.startswith(("tests/", "examples/")):
        return None
    if layer_of(target) is None or layer_of(target) <= layer_of(path):
        return None
    return "points up"


def sideways(path, target):
    parts, others = path.split("/"), target.split("/")
    if parts[0] != "services" or others[0] != "services" or parts[1] == others[1]:
        return None
    if SERVICE_FACES.match(target) or is_test(path):
        return None
    return "one service may include only another's client"


def foreign(path, include):
    below_services = path.startswith(("src/base/", "src/metrics/", "src/core/", "src/simulate/", "src/io/", "src/rewards/"))
    if below_services and WIRE.search(include):
        return "base, core, simulate and io build without gRPC, protobuf, RocksDB and prometheus"
    if path.startswith(("src/core/", "src/simulate/")) and not is_test(path):
        if include == "absl/time/clock.h":
            return "core and simulate have no clock; pass time in"
    return None


def reaches_torch(path, files, seen):
    """The include chain from `path` to a torch header, or None."""
    if path in seen:
        return None
    seen.add(path)
    for include in INCLUDE.findall(files.get(path, "")):
        if TORCH.match(include):
            return [path, include]
        target = resolve(include, files)
        chain = reaches_torch(target, files, seen) if target else None
        if chain:
            return [path] + chain
    return None


def torch_free(path):
    if path.startswith(("services/buffer/", "services/reward/", "src/base/", "src/metrics/", "src/telemetry/",
                        "src/core/replay/", "src/core/lease/", "examples/",
                        "src/core/reward/", "src/simulate/")):
        return "_torch" not in path
    # In io, torch is allowed only in *_torch.* files. The model loader and the checkpoint are such
    # files by name, or link against torch through CMake, which the build of the replay buffer
    # checks.
    return path.startswith(("src/io/report/", "src/io/tensorboard/"))


def check(files):
    problems = []
    for path in sorted(files):
        if layer_of(path) is None:
            continue
        for include in INCLUDE.findall(files[path]):
            target = resolve(include, files)
            reasons = [foreign(path, include)]
            if target:
                reasons += [upward(path, target), sideways(path, target)]
            problems += [f"{path}: includes {include}: {why}" for why in reasons if why]
        if torch_free(path) and not is_test(path):
            chain = reaches_torch(path, files, set())
            if chain:
                problems.append(f"{path}: sees torch: {' -> '.join(chain)}")
    return problems


def self_test():
    good = {"src/base/a.h": "#include <string>\n", "src/core/flow/b.h": '#include "base/a.h"\n',
            "services/buffer/c.cc": '#include "base/a.h"\n#include "oxbow/v1/x.pb.h"\n'}
    assert not check(good), check(good)
    breaks = {
        "src/base/up.h": '#include "core/flow/b.h"\n',
        "src/core/flow/up.h": '#include "services/buffer/c.h"\n',
        "src/core/flow/wire.h": "#include <grpcpp/grpcpp.h>\n",
        "src/io/proto.cc": '#include "oxbow/v1/x.pb.h"\n',
        "src/core/reward/toy.cc": '#include "examples/worlds/toy.h"\n',
        "src/core/rl/clock.cc": '#include "absl/time/clock.h"\n',
        "services/buffer/torch.cc": "#include <ATen/ATen.h>\n",
    }
    for path, text in breaks.items():
        assert check({**good, "services/buffer/c.h": "", "examples/worlds/toy.h": "", path: text}), f"not caught: {path}"
    chain = {"src/rpc/t.h": "#include <ATen/ATen.h>\n", "services/reward/r.cc": '#include "rpc/t.h"\n'}
    assert check({**good, **chain}), "a chain to torch is not caught"


def main():
    self_test()
    problems = check(tracked())
    print("\n".join(problems) or "layers: every include points down")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
