#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Packs programs of a build with CUDA's LibTorch for run.py on a machine with a GPU and no network.

    tools/gpu_evidence/pack.py BUILD [--out build/evidence] [--parts tests bench peers fleets]
                               [--cpu-results DIR] [--site DIR/diffusers] [--rehearsal] [--folder]

Programs are stripped; libraries of this machine come along, but for LibTorch's and the C library's. DIR gets pack.tar.xz
and run.py; the last lines say what weighs how much and what to type there. Fleets are trained on the CPU here, unless
--cpu-results has them (tests/gpu/fleets.py --cpu-only). With --rehearsal BUILD's programs for the rehearsal device are
packed, with the device. Exit code 1: the pack is larger than 45 MB, or a file is not there.
"""
import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent
MEGABYTES_MAX, TREE_MEGABYTES_MAX = 45, 15
TESTS, BENCHES = ["gpu_test", "nccl_ranks_test"], ["graph_bench", "decoder_bench"]
SERVICES = ["oxbow", "oxbow_models", "oxbow_spawn", "learner", "rollout_worker", "replay_buffer", "reward_server"]
GRAPHS = ["SD3Transformer2DModel-sd3.5-medium", "FluxTransformer2DModel-flux.1-dev", "WanTransformer3DModel-wan2.1-t2v-1.3b",
          "AutoencoderKL-sd3"]
TINY = ["sd3_tiny", "flux_dev_tiny", "wan_tiny"]
FLEETS = ["bf16", "flux"]
# LibTorch's come with Python's torch, and the C library's with every machine.
ELSEWHERE = re.compile(r"lib(torch|c10|cud|cublas|nccl|nv|gomp|shm|stdc\+\+|gcc_s|(c|m|dl|rt|pthread|resolv)\.so)|ld-linux")
COPIES = {  # A part's files beside its programs: where from, and where to in the pack.
    "tests": {f"tests/golden/{kind}": f"goldens/{kind}" for kind in ("models", "exported", "scorers")} | {
        "models/digits": "models/digits"},
    "bench": {f"models/graphs/{graph}.json.gz": f"graphs/{graph}.json.gz" for graph in GRAPHS} | {
        f"tests/golden/exported/{tiny}/graph.json.gz": f"goldens/exported/{tiny}/graph.json.gz" for tiny in TINY} | {
        "tools/gpu_evidence/ceilings.py": "ceilings.py"},
    "peers": {f"bench/{name}": name for name in ("sd35m_diffusers.py", "sd35m_train.py")},
    "fleets": {"tests/gpu/fleets.py": "fleets.py", "configs": "configs"} | {
        f"models/{name}": f"models/{name}" for name in ("digits", "digits_flux", "clip")}}
PROGRAMS = {"tests": TESTS, "bench": BENCHES, "peers": [], "fleets": SERVICES}


def megabytes(paths):
    return sum(path.stat().st_size for path in paths if path.is_file()) / 1e6


def found(build, name, rehearsal):
    """A program of the build: for the rehearsal device, where there is one for it."""
    places = [build / "rehearsal/tests" / f"{name}_rehearsed", build / "rehearsal/bin" / name] if rehearsal else []
    for path in [*places, build / "bin" / name, build / "tests" / name]:
        if path.is_file():
            return path
    raise FileNotFoundError(f"{build} has no {name}")


def libraries(program):
    """Shared libraries of this machine that the program loads."""
    said = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    paths = [pathlib.Path(match) for match in re.findall(r"=> (/\S+)", said)]
    return [path for path in paths if not ELSEWHERE.match(path.name)]


def stripped(source, target):
    target.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["strip", "--strip-unneeded", "-o", target, source], check=True)


def copy(source, target):
    ignored = shutil.ignore_patterns("__pycache__", "*.pyc")
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True, ignore=ignored)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)


def stage(args, root, part):
    """The files of a part, in the folder that run.py unpacks."""
    for name in PROGRAMS[part]:
        program = found(args.build, name, args.rehearsal)
        stripped(program, root / "bin" / name)
        for library in libraries(program):
            if not (root / "lib" / library.name).exists():
                stripped(library, root / "lib" / library.name)
    for source, target in COPIES[part].items():
        copy(ROOT / source, root / target)
    if part == "peers":
        sites = [args.site] if args.site else list((ROOT / ".deps/export/lib").glob("python3*/site-packages/diffusers"))
        for site in sites:
            copy(site, root / "site" / site.name)
        if not sites:
            print("no diffusers to carry: --site, or tools/install_deps.sh --export", file=sys.stderr)
    if part == "fleets":
        carry_cpu_results(args, root)
    if args.rehearsal:
        stripped(args.build / "rehearsal/lib/libtorch_cuda.so", root / "lib/libtorch_cuda.so")
        (root / "lib/libc10_cuda.so").unlink(missing_ok=True)
        (root / "lib/libc10_cuda.so").symlink_to("libtorch_cuda.so")


def carry_cpu_results(args, root):
    with tempfile.TemporaryDirectory() as scratch:
        results = args.cpu_results
        if not results:
            subprocess.run([ROOT / "tests/gpu/fleets.py", args.build, "--cpu-only", "--out", scratch, "--only", *FLEETS],
                           check=True, cwd=ROOT)
            results = pathlib.Path(scratch) / "cpu"
        for name in FLEETS:
            copy(results / name / "metrics.jsonl", root / "cpu" / name / "metrics.jsonl")


def tree_megabytes():
    """The weight of a copy of the working tree: tracked files, and others that git does not ignore."""
    said = subprocess.run(["git", "ls-files", "-coz", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True,
                          check=True).stdout
    return megabytes(ROOT / name for name in said.split("\0") if name)


def report(out, weights):
    pack = megabytes([out / "pack.tar.xz"])
    tree = tree_megabytes()
    print("unpacked: " + ", ".join(f"{part} {weight:.1f} MB" for part, weight in weights.items()))
    print(f"{out / 'pack.tar.xz'}: {pack:.1f} of {MEGABYTES_MAX} MB, beside a tree of {tree:.1f} MB")
    if tree > TREE_MEGABYTES_MAX:
        print("a smaller tree: git sparse-checkout set --no-cone '/*' '!/tests/golden/' '!/models/', and later "
              "git sparse-checkout disable")
    print(f"there: python3 {out}/run.py {out}/pack.tar.xz --out DIR")
    return pack <= MEGABYTES_MAX


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("build/evidence"))
    parser.add_argument("--parts", nargs="+", choices=COPIES, default=list(COPIES))
    parser.add_argument("--cpu-results", type=pathlib.Path)
    parser.add_argument("--site", type=pathlib.Path, help="diffusers' package; else that of .deps/export")
    parser.add_argument("--rehearsal", action="store_true")
    parser.add_argument("--folder", action="store_true", help="make the folder DIR/pack and no archive: for a test here")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        root, weights, before = pathlib.Path(scratch), {}, 0
        for part in args.parts:
            try:
                stage(args, root, part)
            except FileNotFoundError as error:
                print(f"pack.py: {part}: {error}", file=sys.stderr)
                return 1
            now = megabytes(root.rglob("*"))
            weights[part], before = now - before, now
        described = subprocess.run(["git", "describe", "--always", "--dirty", "--exclude=*"], cwd=ROOT, capture_output=True, text=True,
                                   check=False)
        if described.returncode == 0:  # A copy of the sources without git has no revision.
            (root / "REVISION").write_text(described.stdout)
        if args.folder:
            shutil.copytree(root, args.out / "pack", symlinks=True, dirs_exist_ok=True)
            return 0
        with tarfile.open(args.out / "pack.tar.xz", "w:xz", preset=9) as pack:  # It sees what programs share.
            pack.add(root, arcname=".")
    for name in ("run.py", "steps.py", "table.py"):
        copy(HERE / name, args.out / name)
    return 0 if report(args.out, weights) else 1


if __name__ == "__main__":
    sys.exit(main())
