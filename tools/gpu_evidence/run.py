#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures a GPU with what pack.py has packed: needs Python, its torch, and nothing else; no network.

    tools/gpu_evidence/run.py PACK.tar.xz --out DIR [--seconds 480] [--only NAME ...]
    tools/gpu_evidence/run.py PACK.tar.xz --out DIR --smoke --device cpu     all steps, tiny

Each step has a time limit of its own. One that fails, hangs or lacks a file is a line of the table, and the others go on.
DIR gets evidence.md, written anew after each step, and log.txt. Exit code 1: a step did not end well.
"""
import argparse
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import table  # noqa: E402
from steps import steps  # noqa: E402

LEAST_SECONDS = 5  # With less left, a step is not begun.


def missing_libraries(program, environment):
    """Names that the loader does not find, versions of symbols too."""
    done = subprocess.run(["ldd", program], env=environment, capture_output=True, text=True, check=False)
    lines = [line for line in (done.stdout + done.stderr).splitlines() if "not found" in line]
    return [re.sub(r" => not found$", "", line.strip()) for line in lines]


class Machine:
    """Where the programs are, and what they are run with."""

    def __init__(self, root, device, gpus):
        import torch  # Its libraries are those of the programs.
        self.torch, self.root, self.device = torch, root, device
        self.gpus = torch.cuda.device_count() if gpus is None else gpus
        libraries = [root / "lib", pathlib.Path(torch.__file__).parent / "lib", os.environ.get("LD_LIBRARY_PATH")]
        self.environment = os.environ | {
            "LD_LIBRARY_PATH": ":".join(str(folder) for folder in libraries if folder),
            "PYTHONPATH": ":".join(filter(None, [str(root / "site"), os.environ.get("PYTHONPATH")])),
            "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "PYTHONUNBUFFERED": "1",
            "OXBOW_MODEL_GOLDENS": str(root / "goldens/models"), "OXBOW_EXPORTED_GOLDENS": str(root / "goldens/exported"),
            "OXBOW_SCORER_GOLDENS": str(root / "goldens/scorers"), "OXBOW_SMALL_MODELS": str(root / "models")}

    def lines(self):
        revision = self.root / "REVISION"
        yield f"oxbow {revision.read_text().strip() if revision.exists() else 'of an unknown revision'}"
        cuda = self.torch.version.cuda
        cudnn = self.torch.backends.cudnn.version() if cuda else "none"
        yield f"torch {self.torch.__version__}, CUDA {cuda or 'none'}, cuDNN {cudnn}, Python {sys.version.split()[0]}"
        if not shutil.which("nvidia-smi"):
            yield "no nvidia-smi"
            return
        asked = "--query-gpu=name,driver_version,memory.total,clocks.max.sm"
        done = subprocess.run(["nvidia-smi", asked, "--format=csv,noheader"], capture_output=True, text=True, check=False,
                              timeout=30)
        yield from (done.stdout or done.stderr).strip().splitlines()

    def command(self, step):
        places = {"root": self.root, "python": sys.executable, "device": self.device}
        return [word.format(**places) for word in step.command]

    def lacks(self, step):
        """Reason why a step cannot run here; empty where it can."""
        if step.gpus > max(self.gpus, 1):
            return f"left out: needs {step.gpus} GPUs"
        for word in self.command(step):
            if word.startswith(str(self.root)) and not pathlib.Path(word).exists():
                return f"not packed: {pathlib.Path(word).relative_to(self.root)}"
        program = pathlib.Path(self.command(step)[0])
        missing = missing_libraries(program, self.environment) if program.parent == self.root / "bin" else []
        return f"libraries not found: {', '.join(missing)}" if missing else ""

    def environment_of(self, step):
        """A device that pack.py has packed for a rehearsal comes before what the programs were linked with."""
        stand_in = self.root / "lib/libtorch_cuda.so"
        preload = {"LD_PRELOAD": str(stand_in)} if stand_in.exists() and "python" not in step.command[0] else {}
        return self.environment | step.environment | preload


def run(command, seconds, log, environment, folder):
    """Exit code, or None where the time was over. All processes of the step end with it."""
    process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment, cwd=folder,
                               start_new_session=True)
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()


def last_line(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:160].replace("|", "/") if lines else "it printed nothing"


def do(machine, step, left, out):
    """How the step ended, empty for well, and what it printed."""
    reason = machine.lacks(step)
    if not reason and left < LEAST_SECONDS:
        reason = "left out: no time was left"
    if reason:
        return reason, ""
    path = out / "step.log"
    limit = min(step.seconds, left)
    with open(path, "wb") as log:
        try:
            code = run(machine.command(step), limit, log, machine.environment_of(step), machine.root)
        except OSError as error:
            return f"not started: {error}", ""
    text = path.read_text(errors="replace")
    path.unlink()
    if code is None:
        return f"stopped after {limit:.0f} s", text
    return f"exit code {code}: {last_line(text)}" if code else "", text


def unpack(pack, folder):
    try:
        with tarfile.open(pack) as files:
            files.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    except tarfile.CompressionError:  # A Python without lzma.
        subprocess.run(["tar", "-xJf", pack, "-C", folder], check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pack", type=pathlib.Path, help="of pack.py, or the folder that it was unpacked into")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--gpus", type=int, help="so many; else as many as torch sees")
    parser.add_argument("--seconds", type=float, default=480, help="for all steps")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="steps whose names begin so")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes")
    args = parser.parse_args()
    begin = time.monotonic()
    args.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        root = args.pack.absolute()
        if root.is_file():
            unpack(root, scratch)
            root = pathlib.Path(scratch)
        machine = Machine(root, args.device, args.gpus)
        about, lines, failed = list(machine.lines()), [], 0
        print(*about, sep="\n", flush=True)
        with open(args.out / "log.txt", "w") as log:
            for step in steps(args.smoke):
                if args.only and not step.name.startswith(tuple(args.only)):
                    continue
                started = time.monotonic()
                outcome, text = do(machine, step, args.seconds - (started - begin), args.out)
                failed += bool(outcome) and not outcome.startswith("left out: needs")
                log.write(f"== {step.name}: {' '.join(machine.command(step))}\n{text}\n")
                log.flush()
                new = list(table.rows(step, outcome, text, args.smoke))
                print(f"{time.monotonic() - started:6.1f} s", *new, sep="\n", flush=True)
                lines += new
                (args.out / "evidence.md").write_text(table.document(about, lines, time.monotonic() - begin))
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
