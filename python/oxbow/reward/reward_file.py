# SPDX-License-Identifier: Apache-2.0
"""Reads a FILE.py and finds its rewards."""
from __future__ import annotations

import runpy
import sys
from pathlib import Path

from .definition import Reward
from .status import EXIT_DATA, SetupError, one_line

_reading = False


def is_reading() -> bool:
    """True while read_rewards runs a file: serve() in that file then does nothing."""
    return _reading


def read_rewards(path: Path) -> list[Reward]:
    """The rewards among the file's variables, in the order of the file. SetupError if it has none, or if it
    cannot be read or run."""
    global _reading
    if not path.is_file():
        raise SetupError(f"no such file: {path}", EXIT_DATA)
    sys.path.insert(0, str(path.parent.resolve()))  # As Python does for a script.
    _reading = True
    try:
        variables = runpy.run_path(str(path), run_name="oxbow_rewards")
    except SetupError as error:
        raise SetupError(f"{path}: {error}", error.exit_code) from None
    except (Exception, SystemExit) as error:
        raise SetupError(f"{path}{_line(error, path)}: {one_line(error)}", EXIT_DATA) from None
    finally:
        _reading = False
    found = list({id(value): value for value in variables.values() if isinstance(value, Reward)}.values())
    if not found:
        raise SetupError(f"{path}: no reward in it: mark a function or class with @reward")
    return found


def _line(error: BaseException, path: Path) -> str:
    """`:LINE` of the file where the error arose."""
    if isinstance(error, SyntaxError) and error.lineno:
        return f":{error.lineno}"
    found, trace = "", error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            found = f":{trace.tb_lineno}"
        trace = trace.tb_next
    return found
