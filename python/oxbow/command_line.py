# SPDX-License-Identifier: Apache-2.0
"""What the package's commands share: the parser's form, and a stop signal as an event."""
from __future__ import annotations

import argparse
import signal
import threading

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
