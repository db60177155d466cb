# SPDX-License-Identifier: Apache-2.0
"""Shared by the package's commands: the parser's form, a stop signal as an event, and their end."""
from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from typing import Any, Callable, NoReturn

from . import __version__


def parser_of(program: str, description: str | None, epilog: str) -> argparse.ArgumentParser:
    """A parser that keeps the lines of its texts, with --version."""
    parser = argparse.ArgumentParser(program, description=description, epilog=epilog,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", action="version", version=f"{program} {__version__}")
    return parser


def stop_event() -> threading.Event:
    """Set by a stop signal from here on; SIGUSR1 and SIGUSR2 are how Slurm warns."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, lambda *_: stop.set())
    return stop


def end_with(main: Callable[[], int]) -> NoReturn:
    """Ends the process with the code of main(). Where nobody reads its output any more it ends quietly, with the code that a shell
    gives for SIGPIPE."""
    code: Any
    try:
        code = main()
    except SystemExit as end:  # The parser's.
        code = end.code
    except BrokenPipeError:
        code = 128 + signal.SIGPIPE
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except OSError as why:
            code = code or (128 + signal.SIGPIPE if isinstance(why, BrokenPipeError) else 1)
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())  # The interpreter would try again, and say so.
    sys.exit(code)
