# SPDX-License-Identifier: Apache-2.0
"""oxbow-follow: copy a run to an experiment tracker while it trains."""
from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Sequence

from ..command_line import parser_of, stop_event
from ..reward.status import EXIT_DATA, EXIT_OK, SetupError
from .follower import Follower, Options, wait_for_run
from .tracker import NAMES, Where, tracker_of

PROGRAM = "oxbow-follow"
_CODES = """exit codes:
  0  the run has ended and all its steps are copied, or after SIGINT or SIGTERM
  2  a bad flag, or the tracker's package is not installed
  3  the tracker does not take the run: no key, no network
  4  no run is there, or a file of it is damaged

examples:
  oxbow-follow runs/digits --to wandb --project digits
  oxbow-follow runs/digits --to mlflow --directory mlruns --once"""


def main(arguments: Sequence[str] | None = None) -> None:
    sys.exit(command(sys.argv[1:] if arguments is None else arguments))


def command(arguments: Sequence[str]) -> int:
    """Runs the command line and returns its exit code; errors are one line on stderr."""
    flags = _parser().parse_args(arguments)
    stop = stop_event()
    where = Where(flags.project, flags.directory, flags.offline, tuple(flags.tag))
    options = Options(where, flags.interval, flags.once, flags.silence_max * 60, flags.new, flags.pictures)
    try:
        tracker = tracker_of(flags.to)
        run = wait_for_run(flags.run, flags.wait, stop, say=lambda line: print(f"{PROGRAM}: {line}", file=sys.stderr, flush=True))
        copied = Follower(run, flags.to, tracker, options, stop, tell=_tell).follow()
    except SetupError as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return error.exit_code
    except (FileNotFoundError, ValueError) as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return EXIT_DATA
    print(f"{PROGRAM}: {copied} steps of {run.directory} copied to {flags.to}")
    return EXIT_OK


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"a number from 0 on, not {text!r}")
    return int(text)


def _tell(step: int) -> None:
    print(f"{PROGRAM}: step {step} handed over", flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = parser_of(PROGRAM, __doc__, _CODES)
    parser.add_argument("run", type=Path, metavar="RUN", help="directory of the run: runs/NAME")
    parser.add_argument("--to", choices=NAMES, required=True)
    parser.add_argument("--project", default=Where.project, help="project (mlflow: experiment); default: %(default)s")
    parser.add_argument("--tag", action="append", default=[], help="may be given several times")
    parser.add_argument("--directory", default="", help="for the tracker's local files; for mlflow: a local store")
    parser.add_argument("--offline", action="store_true", help="wandb and swanlab: write files, send nothing")
    parser.add_argument("--once", action="store_true", help="copy what is there and end")
    parser.add_argument("--new", action="store_true", help="a new run in the tracker, from step 0")
    parser.add_argument("--pictures", type=_count, default=Options.pictures, metavar="N",
                        help="of each evaluation, at most; 0: none; default: %(default)s")
    parser.add_argument("--wait", type=float, default=60.0, metavar="SECONDS", help="for a run that is not there yet")
    parser.add_argument("--interval", type=float, default=Options.interval, metavar="SECONDS",
                        help="between looks at the run")
    parser.add_argument("--silence-max", type=float, default=Options.silence_max / 60, metavar="MINUTES",
                        help="a run on another machine has ended when it was silent for so long")
    return parser


if __name__ == "__main__":
    main()
