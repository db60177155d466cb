# SPDX-License-Identifier: Apache-2.0
"""oxbow-ray: train RUN.yaml over a Ray cluster."""
from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Sequence

from ..command_line import parser_of, stop_event
from ..config_file import read_config
from ..reward.status import EXIT_DATA, SetupError

PROGRAM = "oxbow-ray"
_CODES = """exit codes: those of `oxbow train`

The cluster is the one that RAY_ADDRESS or --address names; without either, this machine. oxbow's programs are in
the same folder on every node (--bin), and the run's directory is on a disk that all nodes share, or the learner stays
on the node where it began.

example:
  oxbow-ray configs/digits.yaml --set run.steps=50 --plaintext"""


def main(arguments: Sequence[str] | None = None) -> None:
    sys.exit(command(sys.argv[1:] if arguments is None else arguments))


def command(arguments: Sequence[str]) -> int:
    """Runs the command line and returns its exit code; errors are one line on stderr."""
    flags = _parser().parse_args(arguments)
    stop = stop_event()
    try:
        return _train(flags, arguments, stop)
    except SetupError as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return error.exit_code


def _train(flags: argparse.Namespace, arguments: Sequence[str], stop: threading.Event) -> int:
    try:
        import ray

        from .fleet import Fleet, Options
        from .plan import Setting
        from .start_record import append_start
    except ImportError as error:
        raise SetupError(f"it takes Ray: pip install './python[ray]' in oxbow's sources ({error})") from None
    oxbow = flags.bin / "oxbow"
    if not oxbow.exists():
        raise SetupError(f"--bin: no oxbow there: {flags.bin}", EXIT_DATA)
    run_dir = _prepare(oxbow, flags)
    append_start(run_dir, oxbow, [PROGRAM, *arguments], flags.resume)
    environment = {name: value for name, value in os.environ.items() if name.startswith("OXBOW_TLS_")}
    environment |= {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    if flags.plaintext:
        environment["OXBOW_PLAINTEXT"] = "1"
    config = read_config(run_dir / "config.resolved.yaml")
    if config["services"].get("http_proxy"):
        environment["OXBOW_HTTP_PROXY"] = "1"
    if not ray.is_initialized():
        ray.init(address=flags.address, log_to_driver=False, logging_level="ERROR")
    gpus = str(config["model"]["device"]).startswith("cuda")
    setting = Setting(run_dir, config, str(flags.bin.absolute()), str(Path.cwd()), environment)
    code = Fleet(setting, Options(flags.workers_per_node, gpus), stop).run()
    subprocess.run([oxbow, "report", run_dir], check=False)
    return code


def _prepare(oxbow: Path, flags: argparse.Namespace) -> Path:
    """The run's directory, with its resolved config. SetupError as `oxbow train` would refuse it."""
    settings = [word for setting in flags.set for word in ("--set", setting)]
    checked = subprocess.run([oxbow, "validate", flags.run, *settings], capture_output=True, text=True, check=False)
    if checked.returncode:
        raise SetupError(checked.stderr.strip() or checked.stdout.strip(), checked.returncode)
    draft = subprocess.run([oxbow, "config", "show", flags.run, "--resolved", *settings], capture_output=True, text=True,
                           check=True)
    with tempfile.NamedTemporaryFile("w", suffix=".yaml", encoding="utf-8") as resolved:
        resolved.write(draft.stdout)
        resolved.flush()
        run = read_config(Path(resolved.name))["run"]
    run_dir = (Path(run["directory"]) / run["name"]).absolute()
    if run_dir.exists() and not flags.resume:
        raise SetupError(f"the run exists; --resume continues it: {run_dir}")
    subprocess.run([oxbow, "config", "show", flags.run, "--out", run_dir / "config.resolved.yaml", *settings],
                   stdout=subprocess.DEVNULL, check=True)
    return run_dir


def _parser() -> argparse.ArgumentParser:
    parser = parser_of(PROGRAM, __doc__, _CODES)
    parser.add_argument("run", type=Path, metavar="RUN.yaml")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="may be repeated")
    parser.add_argument("--resume", action="store_true", help="continue the run from its newest checkpoint")
    parser.add_argument("--address", default=None, help="of the Ray cluster; default: RAY_ADDRESS, or this machine")
    parser.add_argument("--workers-per-node", type=int, default=1, help="rollout workers on each node")
    parser.add_argument("--bin", type=Path, default=Path(shutil.which("oxbow") or "/opt/oxbow/bin/oxbow").parent,
                        help="folder of oxbow's programs, on every node; default: where `oxbow` is")
    parser.add_argument("--plaintext", action="store_true", help="no TLS, on a network that can be trusted")
    return parser


if __name__ == "__main__":
    main()
